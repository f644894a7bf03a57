//! Performs a [`Purge`] by the operations of the engine.

use facetheory::{InvalidationMode, Isr, IsrService, PageKey, Tag, Tenant};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::header::HOST;
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderValue, Request};

use super::tenants::TenantRoutes;
use super::{Failed, Purge, Scope};
use crate::gateway::Origin;

/// How many tags are written at the same time.
const CONCURRENT_WRITES: usize = 16;

/// Invalidates pages of these routes.
#[derive(Clone, Debug)]
pub(crate) struct Executor {
    pub(crate) isr: Isr,
    pub(crate) service: IsrService<Origin>,
    /// Whether all hosts that are served are known.
    pub(crate) knows_hosts: bool,
    pub(crate) tenants: TenantRoutes,
}

impl Executor {
    /// Performs a purge. It is stored, and in effect in this process, when this returns. `host` is that of the request: it and the
    /// path name the tenants. Pages without a tenant are always among those that are invalidated.
    pub(crate) async fn execute(&self, purge: &Purge, host: Option<&str>) -> Result<(), Failed> {
        let mode = purge.mode;
        let (tags, path) = match &purge.scope {
            Scope::Url { host, target } => return self.url(host.as_deref(), target, mode).await,
            Scope::Tags(names) => (names.iter().filter_map(|name| Tag::of_header(name).ok()).collect(), "/"),
            Scope::Prefix(path) => (vec![path_tag(path)], path.as_str()),
            Scope::Everything => (vec![Tag::everything()], "/"),
        };
        let tenants = self.tenants.below(host, path)?;
        self.tags(tags, &tenants, mode).await
    }

    /// Invalidates a page with its variants. Clients may have requested it by HTTP or HTTPS, and with a port that the product does not
    /// know.
    async fn url(&self, host: Option<&str>, target: &str, mode: InvalidationMode) -> Result<(), Failed> {
        let hosts = host.into_iter().flat_map(|host| [Some(host), without_port(host)]).flatten();
        let requests: Vec<Parts> = hosts.flat_map(|host| requests(host, target)).collect();
        let mut pages: Vec<PageKey> = Vec::new();
        // Whether the host is one of a site, and whether the pages that were found are all. Some products send the name of the cache
        // or omit the port, which cannot be told from the host of a site unless the hosts are known.
        let (mut is_known, mut is_all) = (false, self.knows_hosts);
        for request in &requests {
            // A request that is rejected is not for a host or a tenant with pages.
            let Ok(page) = self.service.page(request) else { continue };
            is_known = true;
            is_all &= !self.service.is_selected_by_headers(request);
            // Without a page, responses to it are not cached.
            pages.extend(page.filter(|page| !pages.contains(page)));
        }
        let path = target.split('?').next().unwrap_or(target);
        let tenants = if is_known {
            let mut tenants: Vec<Tenant> = pages.iter().filter_map(|page| page.tenant().cloned()).collect();
            tenants.dedup();
            tenants
        } else {
            self.tenants.below(host, path)?
        };
        for page in &pages {
            self.isr.invalidate(page, mode).await?;
        }
        if is_known && is_all {
            return Ok(());
        }
        // Its keys cannot be listed, but all of them have the path.
        self.tags(vec![path_tag(path)], &tenants, mode).await
    }

    /// Invalidates the pages with one of these tags, of these tenants and of none.
    async fn tags(&self, tags: Vec<Tag>, tenants: &[Tenant], mode: InvalidationMode) -> Result<(), Failed> {
        let tenants = [None].into_iter().chain(tenants.iter().map(Some));
        let writes: Vec<(Tag, Option<Tenant>)> =
            tenants.flat_map(|tenant| tags.iter().map(move |tag| (tag.clone(), tenant.cloned()))).collect();
        let writes = stream::iter(writes).map(|(tag, tenant)| async move {
            self.isr.invalidate_tag_with(&tag, tenant.as_ref(), mode).await
        });
        Ok(writes.buffer_unordered(CONCURRENT_WRITES).try_collect().await?)
    }
}

/// Requests of clients for a target, by HTTP and by HTTPS.
fn requests(host: &str, target: &str) -> Vec<Parts> {
    let request = |scheme: Scheme| {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.uri = target.parse().ok()?;
        parts.headers.insert(HOST, HeaderValue::from_str(host).ok()?);
        if scheme == Scheme::HTTPS {
            parts.extensions.insert(scheme);
        }
        Some(parts)
    };
    [Scheme::HTTP, Scheme::HTTPS].into_iter().filter_map(request).collect()
}

fn without_port(host: &str) -> Option<&str> {
    let (name, port) = host.rsplit_once(':')?;
    port.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
}

/// The tag of a path, or of the nearest path above it that has one.
fn path_tag(path: &str) -> Tag {
    let mut path = path.trim_end_matches('/');
    loop {
        if let Ok(tag) = Tag::path(if path.is_empty() { "/" } else { path }) {
            return tag;
        }
        path = path.rfind('/').map_or("", |end| &path[..end]);
    }
}
