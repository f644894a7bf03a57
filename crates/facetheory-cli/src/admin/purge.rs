//! Purges on the admin listener, by the protocols and the APIs of other products.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{Extensions, Method};

use super::problem::{Problem, TOO_LONG, WRONG_METHOD};
use super::{Admin, unknown_path};
use crate::purge::{self, Endpoint, Purged, is_purge_method};

/// The largest body of a request to one of the APIs.
const MAX_BYTES: usize = 1 << 20;

/// The address of the peer, in the extensions of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

impl Peer {
    pub(super) fn of(extensions: &Extensions) -> IpAddr {
        extensions.get().map_or(Ipv4Addr::UNSPECIFIED.into(), |Peer(address)| *address)
    }
}

/// Whether a request is a purge of another product: by its method, or by the path of an API.
pub(super) fn is_purge(method: &Method, path: &str) -> bool {
    is_purge_method(method.as_str()) || (method == Method::POST && Endpoint::at(path).is_some())
}

/// Responds to purges, and leaves all other requests to the routes.
pub(super) async fn intercept(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    if is_purge_method(method.as_str()) {
        let (parts, _) = request.into_parts();
        return by_method(&admin, &parts).await;
    }
    match Endpoint::at(path).filter(|_| method == Method::POST) {
        Some(endpoint) => by_api(&admin, &endpoint, request).await,
        None => next.run(request).await,
    }
}

async fn by_method(admin: &Admin, request: &Parts) -> Response {
    let Some(parsed) = admin.gateway.purges().rules.parse(request) else {
        let detail = "this dialect is switched off: add it to `dialects` in [purge]";
        return Problem::new(&WRONG_METHOD, detail).into_response();
    };
    let executor = admin.gateway.executor();
    let outcome = executor.perform(parsed, Peer::of(&request.extensions), purge::host(request)).await;
    purge::respond(&outcome, request).map(Body::from)
}

async fn by_api(admin: &Admin, endpoint: &Endpoint, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BYTES).await else {
        return Problem::new(&TOO_LONG, format!("the body is larger than {MAX_BYTES} bytes, or incomplete"))
            .into_response();
    };
    let rules = admin.gateway.purges().rules;
    let Some(purges) = endpoint.parse(&rules, parts.uri.query(), &parts.headers, &body) else {
        return unknown_path().await.into_response();
    };
    let mut outcome = Ok(Purged);
    for parsed in purges {
        let host = parsed.host().map(str::to_owned);
        outcome = admin.gateway.executor().perform(parsed, Peer::of(&parts.extensions), host).await;
        if outcome.is_err() {
            break;
        }
    }
    let (status, body) = endpoint.respond(&outcome, &parts.headers, &body);
    (status, Json(body)).into_response()
}
