//! Trusted proxies: whose statements about a client are believed.

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::Scheme;

use super::client::Client;
use super::forwarded_headers::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::config::Network;

/// The proxies in front of the gateway, and the headers that only they may set.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedProxies {
    /// Addresses of proxies whose `X-Forwarded-*` headers count.
    pub(crate) networks: Vec<Network>,
    /// Headers by which routes select a tenant. A proxy in front must set or remove them.
    pub(crate) tenant_headers: Vec<HeaderName>,
    /// Other headers that name a tenant. They never reach the origin.
    pub(crate) untrusted_tenant_headers: Vec<HeaderName>,
}

impl TrustedProxies {
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Makes the host and the scheme of a request those that select its page. `X-Forwarded-Host` is removed unless a
    /// trusted proxy sent it. The cache layer reads the scheme from the extensions.
    pub(crate) fn apply(&self, client: &Client, request: &mut Parts) {
        if !self.contain(client.address.ip()) {
            request.headers.remove(X_FORWARDED_HOST);
        }
        if self.scheme(client, &request.headers) == Scheme::HTTPS {
            request.extensions.insert(Scheme::HTTPS);
        }
    }

    /// The scheme that the client used, possibly to a trusted proxy.
    pub(crate) fn scheme(&self, client: &Client, headers: &HeaderMap) -> Scheme {
        if !self.contain(client.address.ip()) {
            return client.scheme.clone();
        }
        match headers.get(X_FORWARDED_PROTO).map(HeaderValue::as_bytes) {
            Some(b"https") => Scheme::HTTPS,
            Some(b"http") => Scheme::HTTP,
            _ => client.scheme.clone(),
        }
    }
}
