//! The tenants whose pages a purge concerns.

use facetheory::{Tenant, TenantFrom};

use super::Refusal;
use crate::config::Rules;

/// The routes whose pages belong to tenants: their patterns, and the sources of the tenants.
#[derive(Clone, Debug)]
pub(crate) struct TenantRoutes(Vec<(String, TenantFrom)>);

impl From<&Rules> for TenantRoutes {
    fn from(rules: &Rules) -> Self {
        TenantRoutes(rules.tenants().map(|(pattern, from)| (pattern.to_owned(), from.clone())).collect())
    }
}

impl TenantRoutes {
    /// The tenants of the pages at or below a path, as far as a purge with this host is about them. It is refused if it does not say
    /// which tenant of a route it is about: it would succeed without an effect.
    pub(crate) fn below(&self, host: Option<&str>, path: &str) -> Result<Vec<Tenant>, Refusal> {
        let mut tenants = Vec::new();
        for (pattern, from) in &self.0 {
            let Some(params) = params(pattern, path) else { continue };
            let tenant = match from {
                TenantFrom::Param(name) => {
                    let param = params.iter().find(|(param, _)| param == name);
                    let (_, value) = param.ok_or(Refusal::UnknownTenant)?;
                    // Requests for a tenant with an invalid name are rejected, so it has no pages.
                    Tenant::new(*value).ok()
                }
                from => Some(host.and_then(|host| from.of_host(host)).ok_or(Refusal::UnknownTenant)?),
            };
            tenants.extend(tenant.filter(|tenant| !tenants.contains(tenant)));
        }
        Ok(tenants)
    }
}

/// The parameters that a path determines in the pattern of a route. `None` if no page of the route is at or below the path.
fn params<'p>(pattern: &'p str, path: &'p str) -> Option<Vec<(&'p str, &'p str)>> {
    let path = path.trim_end_matches('/').strip_prefix('/');
    let mut parts = path.into_iter().flat_map(|path| path.split('/'));
    let mut params = Vec::new();
    for segment in pattern.strip_prefix('/')?.split('/') {
        let name = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        if name.is_some_and(|name| name.starts_with('*') || name.ends_with(['+', '*'])) {
            return Some(params);
        }
        match (name, parts.next()) {
            (_, None) => return Some(params),
            (Some(name), Some(value)) => params.push((name, value)),
            (None, Some(part)) if part == segment => {}
            (None, Some(_)) => return None,
        }
    }
    parts.next().is_none().then_some(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(routes: &[(&str, TenantFrom)], host: &str, path: &str) -> Result<Vec<String>, Refusal> {
        let routes = routes.iter().map(|(pattern, from)| ((*pattern).to_owned(), from.clone())).collect();
        let tenants = TenantRoutes(routes).below(Some(host), path)?;
        Ok(tenants.iter().map(|tenant| tenant.as_str().to_owned()).collect())
    }

    #[test]
    fn a_path_names_the_tenants_of_the_routes_below_it() {
        let routes = [
            ("/t/{tenant}/{*rest}", TenantFrom::Param("tenant".to_owned())),
            ("/t/{tenant}", TenantFrom::Param("tenant".to_owned())),
            ("/app/{*rest}", TenantFrom::TrustedHeader("x-tenant-id".to_owned())),
            ("/host/", TenantFrom::Subdomain("example.com".to_owned())),
        ];
        let unknown = Err(Refusal::UnknownTenant);
        for (host, path, expected) in [
            ("a.example.com", "/t/acme", Ok(vec!["acme"])),
            ("a.example.com", "/t/acme/x/y", Ok(vec!["acme"])),
            ("a.example.com", "/t/ac#me/x", Ok(vec![])),
            ("a.example.com", "/t", unknown.clone()),
            ("a.example.com", "/", unknown.clone()),
            ("a.example.com", "/app/x", unknown.clone()),
            ("a.example.com", "/host", Ok(vec!["a"])),
            ("a.example.com", "/host/", Ok(vec!["a"])),
            ("cache", "/host", unknown),
            ("cache", "/host/x", Ok(vec![])),
            ("cache", "/other", Ok(vec![])),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(below(&routes, host, path), expected, "{host}{path}");
        }
        assert_eq!(below(&routes[3..], "a.example.com", "/"), Ok(vec!["a".to_owned()]));
        assert_eq!(below(&[], "cache", "/"), Ok(vec![]));
    }
}
