//! Everything that a reload of the configuration replaces.

use std::sync::Arc;

use facetheory::{InvalidationMode, Isr, IsrLayer, IsrService, RegenerationQueue};
use http::Request;
use http::header::{CACHE_CONTROL, HeaderName, PRAGMA};
use http::request::Parts;
use http::uri::Scheme;
use tower::Layer as _;

use super::body::BodyLimits;
use super::forwarded_headers::TrustedProxies;
use super::origin::Origin;
use super::tunnel::Tunnels;
use crate::config::{self, Config};
use crate::purge::{Executor, Purges};
use crate::wire::{ClientTimeouts, MinRate, RequestLimits};

/// The configuration of a [`Gateway`](super::Gateway), ready for use.
#[derive(Debug)]
pub(crate) struct ServingConfig {
    pub(super) service: IsrService<Origin>,
    pub(super) origin: Origin,
    pub(super) trusted_proxies: TrustedProxies,
    pub(super) purges: Purges,
    pub(super) isr: Isr,
    pub(super) body_limits: BodyLimits,
    pub(super) client: ClientLimits,
}

/// The limits on clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientLimits {
    pub(super) request: RequestLimits,
    pub(super) timeouts: ClientTimeouts,
}

impl ServingConfig {
    /// Builds the cache layer and the origin's connection pool from a configuration. With a queue, stale pages are regenerated
    /// by the processes that read it.
    pub(crate) fn new(
        config: &Config,
        origin: &config::Origin,
        isr: Isr,
        tunnels: Tunnels,
        queue: Option<Arc<dyn RegenerationQueue>>,
        is_logged: bool,
    ) -> anyhow::Result<Self> {
        let (limits, timeouts) = (&config.limits, &config.timeouts);
        let trusted_proxies = TrustedProxies {
            networks: config.trusted_proxies.clone(),
            directives: config.client_cache_control,
            directive_clients: config.cache_control_clients.clone(),
            tenant_headers: names(config.rules.resolved().filter_map(|rule| rule.tenant_header())),
            untrusted_tenant_headers: names(config.tenant_headers.iter().map(String::as_str)),
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let count = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
        let origin = Origin::new(origin, config, trusted_proxies.clone(), tunnels)?;
        let layer = IsrLayer::new(isr.clone(), config.routes()?)
            .strict()
            .max_page_bytes(limits.page_bytes)
            .fetch_timeout(timeouts.fetch())
            .new_pages_per_second(count(limits.new_pages_per_second))
            .variants_per_page(size(limits.variants_per_page))
            .forced_regenerations(
                count(limits.forced_regenerations_per_page),
                count(limits.forced_regenerations_per_address),
            );
        let layer = match &config.tag_headers {
            Some(headers) => layer.tag_headers(names(headers.iter().map(String::as_str))),
            None => layer,
        };
        let purges = Purges::new(config)?;
        let strips_tags = config.strip_tags.unwrap_or(purges.access.is_open());
        let layer = if strips_tags { layer.strip_tags() } else { layer };
        let layer = match queue {
            Some(queue) => layer.regeneration_queue(queue),
            None => layer,
        };
        let layer = if is_logged { layer.expose_page_key() } else { layer };
        let allows_purge = purges.access.is_open();
        let body_bytes = if limits.body_bytes == 0 { u64::MAX } else { limits.body_bytes };
        Ok(ServingConfig {
            service: layer.layer(origin.clone()),
            origin,
            trusted_proxies,
            purges,
            isr,
            body_limits: BodyLimits {
                bytes: body_bytes,
                min_rate: MinRate {
                    bytes_per_second: limits.client_bytes_per_second,
                    grace: timeouts.client_body,
                },
            },
            client: ClientLimits {
                request: RequestLimits {
                    header_bytes: size(limits.header_bytes),
                    headers: size(limits.headers),
                    uri_bytes: size(limits.uri_bytes),
                    body_bytes,
                    allows_purge,
                },
                timeouts: ClientTimeouts {
                    head: timeouts.client_headers,
                    idle: timeouts.client_idle,
                    body: timeouts.client_body,
                    // One key for both: a client that reads nothing is idle too.
                    write: MinRate {
                        bytes_per_second: limits.client_bytes_per_second,
                        grace: timeouts.client_idle,
                    },
                },
            },
        })
    }
}

impl ServingConfig {
    /// Performs purges of the pages of these routes.
    pub(super) fn executor(&self) -> Executor {
        self.purges.executor(self.isr.clone(), self.service.clone())
    }

    /// Regenerates the page of a request that demands a new one, and returns the request without that demand. If the render fails, the
    /// stored page stays.
    pub(super) async fn refresh(&self, mut request: Parts) -> Parts {
        self.purges.access.remove_token(&mut request.headers);
        let mut copy = Request::new(());
        *copy.uri_mut() = request.uri.clone();
        *copy.headers_mut() = request.headers.clone();
        if let Some(scheme) = request.extensions.get::<Scheme>() {
            copy.extensions_mut().insert(scheme.clone());
        }
        let (parts, ()) = copy.into_parts();
        // The response to another request is not from the cache.
        let Ok(Some(page)) = self.service.page(&parts) else { return request };
        let invalidated = self.isr.invalidate(&page, InvalidationMode::Soft).await;
        let rendered = self.service.regenerate(Request::from_parts(parts, ()), None).await;
        if let Err(error) = invalidated.map(drop).and(rendered.map(drop)) {
            tabletheory::warn_limited!(%error, page = %page.redacted(), "a page could not be refreshed");
        }
        request.headers.remove(CACHE_CONTROL);
        request.headers.remove(PRAGMA);
        request
    }
}

fn names<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<HeaderName> {
    texts.filter_map(|text| HeaderName::from_bytes(text.as_bytes()).ok()).collect()
}
