//! Builds the cache key of a request.

use std::ops::Range;

use http::HeaderMap;
use http::request::Parts;
use http::uri::Scheme;
use sha2::{Digest, Sha256};

use crate::http::router::cookie;
use crate::http::router::path::{push_hex, push_part};
use crate::http::router::route::Route;
use crate::http::router::routes::Params;

/// Room for the separators and the digests of a key.
const SEPARATOR_BYTES: usize = 96;

/// Everything that distinguishes a page from others.
pub(super) struct KeyParts<'a> {
    pub(super) tenant: &'a str,
    /// `https://`, or nothing.
    pub(super) scheme: &'a str,
    /// The host in any case, or nothing where one site is served under every host.
    pub(super) host: &'a str,
    pub(super) route: &'a Route,
    pub(super) params: Params<'a>,
    pub(super) query: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
}

impl KeyParts<'_> {
    /// Returns the key and the range of the query in it.
    ///
    /// It has the form of [`CacheKey`](crate::CacheKey), with the host before the pattern unless one site is served under
    /// every host, and `https://` before that for requests with the extension [`Scheme::HTTPS`]:
    /// `acme::acme.example.com/news/{slug}?slug=hello&page=2#auth=<24 hex>&cookies=<24 hex>`, where `auth` covers all
    /// headers that the route lists.
    pub(super) fn build(&self) -> (String, Range<usize>) {
        let params: usize = self.params.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        let query_length = self.query.map_or(0, str::len);
        let mut key = String::with_capacity(
            self.tenant.len()
                + self.scheme.len()
                + self.host.len()
                + self.route.pattern().len()
                + params
                + query_length
                + SEPARATOR_BYTES,
        );
        key.push_str(self.tenant);
        key.push_str("::");
        key.push_str(self.scheme);
        let host_start = key.len();
        key.push_str(self.host);
        key[host_start..].make_ascii_lowercase();
        key.push_str(self.route.pattern());
        let mut separator = '?';
        let mut push_separator = |key: &mut String| key.push(std::mem::replace(&mut separator, '&'));
        for index in &self.route.by_name {
            let (name, value) = self.params.at(*index);
            push_separator(&mut key);
            key.push_str(name);
            key.push('=');
            push_part(&mut key, value);
        }
        let mut query_range = 0..0;
        if let Some(query) = self.query {
            push_separator(&mut key);
            query_range = key.len()..key.len() + query.len();
            key.push_str(query);
        }
        if separator == '?' {
            key.push('?');
        }
        let headers = self.route.headers.iter().flat_map(|name| {
            self.headers.get_all(name).iter().map(move |value| (name.as_str().as_bytes(), value.as_bytes()))
        });
        let has_headers = push_digest(&mut key, "#auth=", headers);
        let cookies = cookie::listed(self.headers, &self.route.cookies).into_iter();
        push_digest(&mut key, if has_headers { "&cookies=" } else { "#cookies=" }, cookies);
        (key, query_range)
    }
}

/// Appends a digest of pairs that are sorted by name, as [`CacheKey`](crate::CacheKey) does. Returns false and appends
/// nothing if there are no pairs.
fn push_digest<'a>(key: &mut String, label: &str, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> bool {
    let mut digest = Sha256::new();
    let mut last: Option<&[u8]> = None;
    for (name, value) in pairs {
        if last == Some(name) {
            digest.update(b"\0");
        } else {
            digest.update(if last.is_some() { &b"\n"[..] } else { b"" });
            digest.update(name);
            digest.update(b"=");
        }
        digest.update(value);
        last = Some(name);
    }
    if last.is_some() {
        key.push_str(label);
        digest.finalize().iter().take(12).for_each(|byte| push_hex(key, *byte, b"0123456789abcdef"));
    }
    last.is_some()
}

/// Whether the server that received the request says that it came over TLS. The client's own claim, in the request target
/// or in a header, does not count.
pub(super) fn is_secure(parts: &Parts) -> bool {
    parts.extensions.get::<Scheme>() == Some(&Scheme::HTTPS)
}
