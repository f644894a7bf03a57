//! Builds the cache key of a request.

use std::ops::Range;

use http::request::Parts;
use http::uri::Scheme;
use sha2::{Digest, Sha256};

use crate::http::router::cookie;
use crate::http::router::key_form::KeyForm;
use crate::http::router::path::{push_part, push_short_digest};
use crate::http::router::route::Route;
use crate::http::router::routes::Params;
use crate::protocol::javascript::push_encoded;

/// Room for the separators and the digests of a key.
const SEPARATOR_BYTES: usize = 96;

/// Returns the key and the range of the query in it.
///
/// It has the form of [`CacheKey`](crate::CacheKey), with the host before the pattern unless one site is served under
/// every host, and `https://` before that for requests with the extension [`Scheme::HTTPS`]:
/// `acme::acme.example.com/news/{slug}?slug=hello&page=2#auth=<24 hex>&cookies=<24 hex>`, where `auth` covers all
/// headers that the route lists. For the form of FaceTheory's TypeScript services see [`KeyForm::FacetheoryTs`].
///
/// `host` is in any case, and empty where one site is served under every host. `query` is in the form of the key.
pub(super) fn cache_key(
    request: &Parts,
    form: &KeyForm,
    route: &Route,
    params: Params<'_>,
    tenant: &str,
    host: &str,
    query: Option<&str>,
) -> (String, Range<usize>) {
    // Pages may differ by scheme in the links that they contain. The server that received the request says whether it came
    // over TLS; the client's own claim, in the request target or in a header, does not count.
    let is_https = request.extensions.get() == Some(&Scheme::HTTPS);
    let (scheme, host) = match form {
        KeyForm::Default => (if is_https { "https://" } else { "" }, host),
        KeyForm::FacetheoryTs { .. } => ("", ""),
    };
    let param_bytes: usize = params.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let names = tenant.len() + scheme.len() + host.len() + route.pattern().len();
    let mut key = String::with_capacity(names + param_bytes + query.map_or(0, str::len) + SEPARATOR_BYTES);
    key.push_str(tenant);
    key.push_str("::");
    key.push_str(scheme);
    let host_start = key.len();
    key.push_str(host);
    key[host_start..].make_ascii_lowercase();
    key.push_str(route.pattern());
    let mut separator = '?';
    let mut push_separator = |key: &mut String| key.push(std::mem::replace(&mut separator, '&'));
    for index in &route.by_name {
        let (name, value) = params.at(*index);
        match form {
            KeyForm::Default => {
                push_separator(&mut key);
                key.push_str(name);
                key.push('=');
                push_part(&mut key, value);
            }
            // The key has no parameter for a rest of the path that is empty.
            KeyForm::FacetheoryTs { .. } if value.is_empty() => {}
            KeyForm::FacetheoryTs { .. } => {
                push_separator(&mut key);
                key.push_str(name);
                key.push('=');
                push_encoded(&mut key, value);
            }
        }
    }
    let mut query_range = 0..0;
    if let Some(query) = query {
        push_separator(&mut key);
        query_range = key.len()..key.len() + query.len();
        key.push_str(query);
    }
    if separator == '?' {
        key.push('?');
    }
    let cookies_label = |has_headers| if has_headers { "&cookies=" } else { "#cookies=" };
    let headers = route.headers.iter().flat_map(|name| {
        request.headers.get_all(name).iter().map(move |value| (name.as_str(), value.as_bytes()))
    });
    match form {
        KeyForm::Default => {
            let headers = headers.map(|(name, value)| (name.as_bytes(), value));
            let has_headers = push_digest(&mut key, "#auth=", headers);
            let cookies = cookie::listed(&request.headers, &route.cookies);
            push_digest(&mut key, cookies_label(has_headers), cookies.into_iter());
        }
        KeyForm::FacetheoryTs { .. } => {
            let headers: Vec<(&str, String)> =
                headers.map(|(name, value)| (name, cookie::latin1(value))).collect();
            let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let has_headers = push_digest(&mut key, "#auth=", headers);
            let cookies = cookie::listed_decoded(&request.headers, &route.cookies);
            let cookies = cookies.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            push_digest(&mut key, cookies_label(has_headers), cookies);
        }
    }
    (key, query_range)
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
        push_short_digest(key, digest);
    }
    last.is_some()
}
