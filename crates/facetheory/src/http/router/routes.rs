//! The set of routes, and the lookup of the route of a path.

use std::time::Duration;

use http::header::HeaderName;

use crate::error::{Error, Result};
use crate::http::router::host::{ServedHosts, is_valid_host};
use crate::http::router::key_form::KeyForm;
use crate::http::router::pattern::{Tree, Values};
use crate::http::router::preview::Preview;
use crate::http::router::route::Route;
use crate::http::router::tenant::{KNOWN_HEADERS, TenantFrom};

/// A set of routes. The most specific route that matches a path applies to it.
///
/// Segment by segment from the left, exact bytes are more specific than `{name}`, and `{name}` is more specific than the rest of
/// a path. The order of the routes does not matter.
///
/// ```
/// use facetheory::{Policy, Route, Routes};
/// use std::time::Duration;
///
/// let route = |pattern| Route::new(pattern, Policy::every(Duration::from_secs(60)));
/// let routes = Routes::new([route("/{*rest}"), route("/news/{slug}"), route("/news/today")])?;
///
/// let (found, params) = routes.find("/news/hello").unwrap();
/// assert_eq!((found.pattern(), params.get("slug")), ("/news/{slug}", Some("hello")));
/// assert_eq!(routes.find("/news/today").unwrap().0.pattern(), "/news/today");
/// assert_eq!(routes.find("/a/b").unwrap().1.get("rest"), Some("a/b"));
/// assert!(routes.find("/").is_none());
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Routes {
    routes: Vec<Route>,
    tree: Tree,
    pub(crate) hosts: ServedHosts,
    pub(crate) key_form: KeyForm,
    pub(crate) tenant_headers: Vec<HeaderName>,
    pub(crate) preview: Option<Preview>,
    /// The index of the route for paths without another route.
    otherwise: Option<usize>,
}

/// The most routes.
const MAX_ROUTES: usize = 10_000;

impl Routes {
    /// Creates a set of routes, or returns an error that lists all mistakes.
    ///
    /// ```
    /// use facetheory::{Policy, Route, Routes};
    ///
    /// let route = |pattern| Route::new(pattern, Policy::every(std::time::Duration::ZERO));
    /// let error = Routes::new([route("/a/{x}"), route("/a/{y}"), route("b").headers(["cookie"])]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "invalid routes:\n\
    ///      - `/a/{y}`: it matches the same paths as `/a/{x}`\n\
    ///      - `b`: the header cookie cannot be listed: list the cookies that distinguish pages\n\
    ///      - `b`: it must begin with `/`"
    /// );
    /// ```
    pub fn new(routes: impl IntoIterator<Item = Route>) -> Result<Self> {
        let mut routes: Vec<Route> = routes.into_iter().collect();
        let mut errors: Vec<String> = Vec::new();
        if routes.len() > MAX_ROUTES {
            return Err(Error::invalid(format!(
                "there are {} routes; at most {MAX_ROUTES} are allowed",
                routes.len()
            )));
        }
        let mut tree = Tree::default();
        for number in 0..routes.len() {
            let checked = routes[number].check();
            let same = |other: usize| vec![format!("it matches the same paths as `{}`", routes[other].name)];
            let inserted = checked.and_then(|pattern| tree.insert(&pattern, number).map_err(same));
            let own = inserted.err().unwrap_or_default();
            errors.extend(own.iter().map(|error| format!("\n- `{}`: {error}", routes[number].pattern())));
        }
        if errors.is_empty() {
            Ok(Routes {
                routes,
                tree,
                hosts: ServedHosts::Any,
                key_form: KeyForm::Default,
                tenant_headers: KNOWN_HEADERS.to_vec(),
                preview: None,
                otherwise: None,
            })
        } else {
            Err(Error::invalid(format!("invalid routes:{}", errors.concat())))
        }
    }

    /// Serves one site under every host. The origin gets this host.
    ///
    /// The cache keys then have no host, like those of services in other languages.
    ///
    /// ```
    /// use facetheory::Routes;
    ///
    /// assert!(Routes::new([])?.of_one_site("www.example.com").is_ok());
    /// assert!(Routes::new([])?.of_one_site("https://www.example.com/").is_err());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn of_one_site(mut self, host: impl Into<String>) -> Result<Self> {
        let by_host = |route: &&Route| matches!(route.tenant, Some(TenantFrom::Subdomain(_)));
        if let Some(route) = self.routes.iter().find(by_host) {
            return Err(Error::invalid(format!(
                "`{}` identifies tenants by host, so it cannot be part of a single site",
                route.pattern()
            )));
        }
        self.hosts = ServedHosts::One(checked_host(host.into())?);
        Ok(self)
    }

    /// Serves these hosts only, each with its own pages. Requests for other hosts are rejected (421).
    ///
    /// ```
    /// use facetheory::Routes;
    ///
    /// assert!(Routes::new([])?.of_sites(["example.com", "example.org:8080"]).is_ok());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn of_sites<S: Into<String>>(mut self, hosts: impl IntoIterator<Item = S>) -> Result<Self> {
        self.hosts = ServedHosts::These(
            hosts.into_iter().map(|host| checked_host(host.into())).collect::<Result<_>>()?,
        );
        self.check_key_form()?;
        Ok(self)
    }

    /// Adds headers that name a tenant, besides `x-tenant-id` and `x-facetheory-tenant`. Routes without tenants reject
    /// requests that have them.
    ///
    /// ```
    /// use facetheory::Routes;
    ///
    /// assert!(Routes::new([])?.tenant_headers(["x-customer"]).is_ok());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn tenant_headers<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Result<Self> {
        for name in names {
            let name = name.as_ref();
            let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
                return Err(Error::invalid(format!("`{name}` is not a valid header name")));
            };
            self.tenant_headers.push(name);
        }
        Ok(self)
    }

    /// Lets editors bypass the cache with a signed cookie.
    ///
    /// ```
    /// use facetheory::{Preview, Routes};
    ///
    /// let routes = Routes::new([])?.preview(Preview::new([7; 32])?);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn preview(mut self, preview: Preview) -> Self {
        self.preview = Some(preview);
        self
    }

    /// Caches paths without a route as the origin's headers say: see [`Route::follow_origin`].
    ///
    /// ```
    /// use facetheory::Routes;
    ///
    /// let routes = Routes::new([])?.otherwise_follow_origin();
    /// assert!(routes.find("/anything").unwrap().0.follows_origin());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn otherwise_follow_origin(mut self) -> Self {
        if self.otherwise.is_none() {
            self.otherwise = Some(self.routes.len());
            self.routes.push(Route::otherwise());
        }
        self
    }

    /// Sets the render timeout of routes that follow their origin.
    pub(crate) fn set_fetch_timeout(&mut self, limit: Duration) {
        for route in self.routes.iter_mut().filter(|route| route.follow_origin) {
            route.policy.render_timeout = limit;
        }
    }

    /// Returns the route of a path, and the path's parameters.
    ///
    /// ```
    /// assert!(facetheory::Routes::new([])?.find("/").is_none());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn find<'a>(&'a self, path: &'a str) -> Option<(&'a Route, Params<'a>)> {
        let (number, params) = self.locate(path)?;
        Some((self.at(number), params))
    }

    /// Returns the index of a path's route, and the path's parameters.
    pub(crate) fn locate<'a>(&'a self, path: &'a str) -> Option<(usize, Params<'a>)> {
        let otherwise = || {
            let number = self.otherwise.filter(|_| path.starts_with('/'))?;
            let mut values = Values::default();
            values[0] = path;
            Some((number, values))
        };
        let (number, values) = self.tree.find(path).or_else(otherwise)?;
        Some((number, Params { names: &self.routes[number].params, values }))
    }

    /// Whether any route follows its origin.
    pub(crate) fn any_follows_origin(&self) -> bool {
        self.routes.iter().any(|route| route.follow_origin)
    }

    pub(super) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    pub(super) fn routes_mut(&mut self) -> impl Iterator<Item = &mut Route> {
        self.routes.iter_mut()
    }

    /// Returns the route with an index of [`Routes::locate`].
    pub(crate) fn at(&self, number: usize) -> &Route {
        &self.routes[number]
    }
}

fn checked_host(host: String) -> Result<String> {
    if is_valid_host(&host) {
        Ok(host.to_ascii_lowercase())
    } else {
        Err(Error::invalid(format!(
            "`{host}` is not a valid host; write a name and optionally a port, as in example.com:8080"
        )))
    }
}

/// The parameters of a path, byte for byte, not decoded.
///
/// ```
/// # use facetheory::{Policy, Route, Routes};
/// let routes = Routes::new([Route::new("/{a}/{b}", Policy::every(std::time::Duration::ZERO))])?;
/// let (_, params) = routes.find("/1/%32").unwrap();
/// assert_eq!(params.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "%32")]);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params<'a> {
    names: &'a [String],
    values: Values<'a>,
}

impl<'a> Params<'a> {
    /// Returns the value of a parameter.
    ///
    /// ```
    /// # use facetheory::{Policy, Route, Routes};
    /// let routes = Routes::new([Route::new("/{a}", Policy::every(std::time::Duration::ZERO))])?;
    /// assert_eq!(routes.find("/1").unwrap().1.get("b"), None);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns names and values in the order of the path.
    ///
    /// ```
    /// # use facetheory::{Policy, Route, Routes};
    /// let routes = Routes::new([Route::new("/a", Policy::every(std::time::Duration::ZERO))])?;
    /// assert_eq!(routes.find("/a").unwrap().1.iter().count(), 0);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.names.iter().map(String::as_str).zip(self.values)
    }

    /// Returns the name and the value of the parameter with this index.
    pub(crate) fn at(&self, place: usize) -> (&'a str, &'a str) {
        (&self.names[place], self.values[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::router::query::Query;
    use crate::pages::policy::Policy;
    use std::time::Duration;

    fn route(pattern: &str) -> Route {
        Route::new(pattern, Policy::every(Duration::from_secs(60)))
    }

    #[test]
    fn an_error_lists_all_mistakes() {
        let many: Vec<String> = (0..33).map(|n| format!("c{n}")).collect();
        let error = Routes::new([
            route("/a").headers(["host", "If-None-Match", "x y", "x_y", "connection", "accept-encoding"]),
            route("/b").cookies(["a b", ""]).tags(["path=/x", "fine"]),
            route("/c").query(Query::only(["page", "a=b", ""])).cookies(many),
            route("/d/{x}").tenant(TenantFrom::Param("y".into())),
            route("/e").tenant(TenantFrom::TrustedHeader("cookie".into())),
            route("/f").tenant(TenantFrom::Subdomain("https://example.com".into())),
            route("/a"),
            route("/{*all}/x"),
        ])
        .expect_err("invalid routes");
        let expected = "invalid routes:
- `/a`: the header host cannot be listed: every cache key has the host
- `/a`: the header if-none-match cannot be listed: pages are fetched as a whole and without conditions
- `/a`: `x y` is not a valid header name
- `/a`: the header x_y cannot be listed: its name has an underscore
- `/a`: the header connection cannot be listed: it is hop-by-hop
- `/a`: the header accept-encoding cannot be listed: the cache compresses pages itself
- `/b`: `a b` is not a valid cookie name
- `/b`: `` is not a valid cookie name
- `/b`: the tag `path=/x` is reserved: pages have such tags implicitly; choose another name
- `/c`: `a=b` is not a valid query parameter; write its name as URLs have it, without `=`
- `/c`: `` is not a valid query parameter; write its name as URLs have it, without `=`
- `/c`: it lists 33 cookies; at most 32 are allowed
- `/d/{x}`: its tenant parameter `y` is not in the pattern
- `/e`: the header cookie cannot be listed: list the cookies that distinguish pages
- `/f`: `https://example.com` is not a valid domain; write it without a port, as in example.com
- `/{*all}/x`: nothing may follow `{*…}` or `{…+}`";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn one_site_cannot_have_tenants_by_host() {
        let routes = Routes::new([route("/a").tenant(TenantFrom::Subdomain("example.com".into()))]);
        let error = routes.and_then(|routes| routes.of_one_site("example.com")).expect_err("several sites");
        assert_eq!(
            error.to_string(),
            "`/a` identifies tenants by host, so it cannot be part of a single site"
        );
    }

    #[test]
    fn two_routes_for_the_same_paths_are_an_error() {
        let error = Routes::new([route("/a/{x}/b"), route("/a/{y}/b")]).expect_err("the same paths");
        assert_eq!(
            error.to_string(),
            "invalid routes:\n- `/a/{y}/b`: it matches the same paths as `/a/{x}/b`"
        );
        assert!(Routes::new([route("/a/{x}"), route("/a/{*x}"), route("/a/x")]).is_ok());
    }
}
