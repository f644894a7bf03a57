//! The part of a client's request that the origin sees.

use http::header::{COOKIE, HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Uri};

use crate::http::headers::{FORWARDED_HOST, remove_named_hops};
use crate::http::router::cookie;
use crate::http::router::key_form::KeyForm;
use crate::http::router::query::Query;
use crate::http::router::rejection::Rejection;
use crate::http::router::route::Route;
use crate::http::router::routes::Routes;

impl Routes {
    /// Returns a request with keyed input only: GET, the host, the path, and the query, headers and cookies that the route
    /// lists. The page is for everyone, so nothing else of the client's request may influence it.
    ///
    /// The request and the cache key must agree. A request that cannot be rebuilt is rejected.
    pub(crate) fn keyed_request(&self, route: &Route, client: &Parts) -> Result<Request<()>, Rejection> {
        let malformed = || Rejection::bad("the request cannot be forwarded");
        let (host, _) = self.hosts.host(client)?;
        let mut request = Request::new(());
        let form = self.key_form_of(route);
        *request.uri_mut() = keyed_uri(route, client, form).ok_or_else(malformed)?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::try_from(host.to_ascii_lowercase()).map_err(|_| malformed())?);
        for name in route.headers.iter().chain(&route.tenant_header) {
            // The tenant header may be listed as well.
            if !headers.contains_key(name) {
                client.headers.get_all(name).iter().for_each(|value| {
                    headers.append(name.clone(), value.clone());
                });
            }
        }
        let cookies: Vec<Vec<u8>> = match form {
            KeyForm::Default => cookie::listed(&client.headers, &route.cookies)
                .into_iter()
                .map(|(name, value)| [name, b"=", value].concat())
                .collect(),
            KeyForm::FacetheoryTs { .. } => cookie::listed_decoded(&client.headers, &route.cookies)
                .iter()
                .map(|(name, value)| cookie::encoded(name, value))
                .collect(),
        };
        if !cookies.is_empty() {
            let line = cookies.join(&b"; "[..]);
            headers.insert(COOKIE, HeaderValue::from_bytes(&line).map_err(|_| malformed())?);
        }
        Ok(request)
    }

    /// Changes a client's request to the one that an origin sees that decides itself how its responses are cached.
    ///
    /// The host is the one of the key, in lower case, or the site's own where the key has none: one client must not choose
    /// what others get.
    pub(crate) fn make_forwardable(&self, route: &Route, client: &mut Parts) {
        remove_named_hops(&mut client.headers);
        let dropped: Vec<HeaderName> =
            client.headers.keys().filter(|name| !route.forwards(name)).cloned().collect();
        dropped.iter().for_each(|name| drop(client.headers.remove(name)));
        // The key of the request was built, so its host is valid.
        let Ok((host, is_keyed)) = self.hosts.host(client) else { return };
        let Ok(host) = HeaderValue::try_from(host.to_ascii_lowercase()) else { return };
        let target = client.uri.path_and_query().cloned();
        client.uri = target.map(Uri::from).unwrap_or_default();
        client.headers.insert(HOST, host);
        if !is_keyed {
            client.headers.remove(FORWARDED_HOST);
        }
    }
}

/// Returns the request target for an origin that sees the whole request otherwise, or `None` if the client's own has the query
/// of the key.
pub(crate) fn narrowed_uri(route: &Route, client: &Parts) -> Option<Uri> {
    // The key of `/a?` is that of `/a`.
    let is_keyed = route.query == Query::All && client.uri.query() != Some("");
    if is_keyed { None } else { keyed_uri(route, client, &KeyForm::Default) }
}

fn keyed_uri(route: &Route, client: &Parts, form: &KeyForm) -> Option<Uri> {
    let path = client.uri.path();
    // The key of the request was built, so the query is not too long.
    let query = route.query.keyed_part(client.uri.query(), form, usize::MAX);
    let text = match query.unwrap_or_default() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    PathAndQuery::try_from(text).map(Uri::from).ok()
}
