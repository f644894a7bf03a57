//! The gateway: a reverse proxy whose pages are rendered once, served to everyone, and renewed by one worker.

mod body;
mod client;
mod forwarding;
mod health;
mod listener;
mod origin;
mod place;
mod tls;
mod tunnel;

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use facetheory::{IsrBody, IsrLayer, IsrService};
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::uri::Scheme;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tower::{Layer as _, Service as _};

pub(crate) use body::{RequestBody, Terms};
pub(crate) use client::Client;
pub(crate) use forwarding::Trust;
pub(crate) use listener::{Endpoint, Listener};
pub(crate) use origin::{Origin, Timeouts};
pub(crate) use place::Places;
pub(crate) use tls::Tls;
pub(crate) use tunnel::Tunnels;

/// What answers visitors, on whatever connection they come. Its rules can be replaced while it does.
#[derive(Debug)]
pub(crate) struct Gateway {
    rules: ArcSwap<Rules>,
}

/// What a gateway goes by.
#[derive(Debug)]
pub(crate) struct Rules {
    service: IsrService<Origin>,
    trust: Trust,
    body: Terms,
}

impl Rules {
    /// Pages as this layer keeps them, of this origin.
    pub(crate) fn new(layer: &IsrLayer, origin: Origin, trust: Trust, body: Terms) -> Self {
        Rules { service: layer.layer(origin), trust, body }
    }
}

impl Gateway {
    pub(crate) fn new(rules: Rules) -> Arc<Self> {
        Arc::new(Gateway { rules: ArcSwap::from_pointee(rules) })
    }

    /// Goes by these rules from now on. What has begun by others ends by them.
    pub(crate) fn replace(&self, rules: Rules) {
        self.rules.store(Arc::new(rules));
    }

    /// Answers one request.
    pub(crate) async fn answer(
        &self,
        client: &Arc<Client>,
        request: Request<Incoming>,
    ) -> Result<Response<IsrBody>, Infallible> {
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Ok(not_allowed());
        }
        let (mut service, request) = {
            let rules = self.rules.load();
            let (mut parts, body) = request.into_parts();
            if rules.trust.scheme(client, &parts.headers) == Scheme::HTTPS {
                parts.extensions.insert(Scheme::HTTPS);
            }
            let body = RequestBody::of(client.clone(), body, rules.body);
            (rules.service.clone(), Request::from_parts(parts, body))
        };
        service.call(request).await
    }
}

fn not_allowed() -> Response<IsrBody> {
    let mut response = Response::new(IsrBody::from("this server is no tunnel\n"));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
