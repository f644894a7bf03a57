//! Performs a [`Purge`] by the operations of the engine.

use std::net::IpAddr;

use facetheory::{InvalidationMode, Isr, IsrService, PageKey, Result, Tag, Tenant};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request};

use super::{Purge, Scope};
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
}

impl Executor {
    /// Performs a purge. It is stored, and in effect in this process, when this returns. `host` is that of the request: with tenants
    /// by host, tags and paths are those of its tenant, and of pages without a tenant.
    pub(crate) async fn execute(&self, purge: &Purge, host: Option<&str>) -> Result<()> {
        let mode = purge.mode;
        match &purge.scope {
            Scope::Url { host, target } => self.url(host.as_deref(), target, mode).await,
            Scope::Tags(names) => {
                let tags = names.iter().filter_map(|name| Tag::of_header(name).ok());
                self.tags(tags.collect(), host, "/", mode).await
            }
            Scope::Prefix(path) => self.tags(vec![path_tag(path)], host, path, mode).await,
            Scope::Everything => self.tags(vec![Tag::everything()], host, "/", mode).await,
        }
    }

    /// Invalidates a page with its variants. Clients may have requested it by HTTP or HTTPS, and with a port that the product does not
    /// know.
    async fn url(&self, host: Option<&str>, target: &str, mode: InvalidationMode) -> Result<()> {
        let hosts = host.into_iter().flat_map(|host| [Some(host), without_port(host)]).flatten();
        let requests: Vec<Parts> = hosts.flat_map(|host| requests(host, target)).collect();
        let mut pages: Vec<PageKey> = Vec::new();
        // Whether the host is one of a site, and whether the pages that were found are all.
        let (mut is_known, mut is_all) =
            (false, host.is_some_and(|host| self.knows_hosts || is_of_site(host)));
        for request in &requests {
            // A request that is rejected is not for a host or a tenant with pages.
            let Ok(page) = self.service.page(request) else { continue };
            is_known = true;
            is_all &= !self.service.is_selected_by_headers(request);
            // Without a page, responses to it are not cached.
            pages.extend(page.filter(|page| !pages.contains(page)));
        }
        for page in &pages {
            self.isr.invalidate(page, mode).await?;
        }
        if is_known && is_all {
            return Ok(());
        }
        // Its keys cannot be listed, but all of them have the path.
        let path = target.split('?').next().unwrap_or(target);
        self.tags(vec![path_tag(path)], host, path, mode).await
    }

    async fn tags(
        &self,
        tags: Vec<Tag>,
        host: Option<&str>,
        path: &str,
        mode: InvalidationMode,
    ) -> Result<()> {
        let tenant = host.and_then(|host| self.tenant(host, path));
        let tenants = [None].into_iter().chain(tenant.map(Some));
        let writes: Vec<(Tag, Option<Tenant>)> =
            tenants.flat_map(|tenant| tags.iter().map(move |tag| (tag.clone(), tenant.clone()))).collect();
        let writes = stream::iter(writes).map(|(tag, tenant)| async move {
            self.isr.invalidate_tag_with(&tag, tenant.as_ref(), mode).await
        });
        writes.buffer_unordered(CONCURRENT_WRITES).try_collect().await
    }

    /// The tenant of a path of a host.
    fn tenant(&self, host: &str, path: &str) -> Option<Tenant> {
        let pages =
            requests(host, path).into_iter().filter_map(|request| self.service.page(&request).ok()?);
        pages.into_iter().find_map(|page| page.tenant().cloned())
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

/// Whether a host may be that of a site, and not the address of the cache, which some products send instead.
fn is_of_site(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.contains('.') && name.parse::<IpAddr>().is_err()
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
