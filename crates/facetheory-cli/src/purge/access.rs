//! Decides whether a client may purge.

use std::net::IpAddr;

use anyhow::Result;
use http::header::{ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HeaderMap, HeaderName, ORIGIN, REFERER, VIA};

use crate::config::{self, Network};
use crate::gateway::is_of_anyone;
use crate::token::{self, Token};

/// Headers that a proxy adds, besides those that are not accepted from anyone: the request is from somebody else than the peer.
const OF_PROXY: [HeaderName; 4] = [
    VIA,
    HeaderName::from_static("cdn-loop"),
    HeaderName::from_static("x-amz-cf-id"),
    HeaderName::from_static("x-varnish"),
];
/// Headers with the host (FOSHttpCache) and the tenant of a page. Programs send them too, though they are not accepted from anyone.
const OF_PROGRAM: [HeaderName; 3] = [
    HeaderName::from_static("x-facetheory-tenant"),
    HeaderName::from_static("x-host"),
    HeaderName::from_static("x-tenant-id"),
];
/// Headers that a browser adds. It may send a request for the page of another site, whose name resolves to this address.
const OF_BROWSER: [HeaderName; 2] = [ORIGIN, HeaderName::from_static("sec-fetch-site")];
/// Headers that a browser adds to a `GET` for a page that it shows. A request with a purge method cannot be such a one.
const OF_PAGE_VIEW: [HeaderName; 4] =
    [COOKIE, REFERER, ACCEPT_LANGUAGE, HeaderName::from_static("upgrade-insecure-requests")];
/// Headers in which products send a token, besides `Authorization`.
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-invalidate-token"),
    HeaderName::from_static("fastly-key"),
    HeaderName::from_static("x-auth-key"),
];

/// The peers that may purge, and the token that they need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    from: Vec<Network>,
    token: Option<Token>,
    token_header: Option<HeaderName>,
}

impl Access {
    pub(crate) fn new(purge: &config::Purge) -> Result<Self> {
        let token = purge.token_file.as_deref().map(|file| Token::of_file(file, "the token of [purge]"));
        let header = purge.token_header.as_deref().map(|name| HeaderName::from_bytes(name.as_bytes()));
        Ok(Access { from: purge.from.clone(), token: token.transpose()?, token_header: header.transpose()? })
    }

    /// Whether anybody may purge.
    pub(crate) fn is_open(&self) -> bool {
        !self.from.is_empty()
    }

    /// Whether this peer may purge by a request with these headers. Only the address of the connection counts.
    pub(crate) fn allows(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        self.from.iter().any(|network| network.contains(peer))
            && is_of_program(headers)
            && self.token.as_ref().is_none_or(|token| shows(headers, self.token_header.as_ref(), token))
    }

    /// Whether this peer may purge by a `GET` with these headers: also not from a browser at an allowed address.
    pub(crate) fn allows_get(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        !OF_PAGE_VIEW.iter().any(|name| headers.contains_key(name)) && self.allows(peer, headers)
    }

    /// Removes the headers that may carry the token, which is not for the origin.
    pub(crate) fn remove_token(&self, headers: &mut HeaderMap) {
        if self.token.is_some() {
            for name in TOKENS.iter().chain([&AUTHORIZATION]).chain(&self.token_header) {
                headers.remove(name);
            }
        }
    }

    /// Whether a request has this token, in one of the headers that products use.
    pub(crate) fn shows(&self, headers: &HeaderMap, token: &Token) -> bool {
        shows(headers, self.token_header.as_ref(), token)
    }
}

/// Whether a request is from a program at its peer, and not from a browser or a client of a proxy. The headers are those that
/// arrived, before the gateway removes any.
pub(crate) fn is_of_program(headers: &HeaderMap) -> bool {
    let is_listed = OF_PROXY.iter().chain(&OF_BROWSER).any(|name| headers.contains_key(name));
    !is_listed && headers.keys().all(|name| is_of_anyone(name) || OF_PROGRAM.contains(name))
}

fn shows(headers: &HeaderMap, own: Option<&HeaderName>, token: &Token) -> bool {
    let is_shown = |name: &HeaderName| headers.get(name).is_some_and(|line| token.matches(line.as_bytes()));
    let is_bearer = headers.contains_key(AUTHORIZATION)
        && token::bearer(headers).is_some_and(|shown| token.matches(shown));
    is_bearer || TOKENS.iter().any(is_shown) || own.is_some_and(is_shown)
}
