//! The gateway: a caching reverse proxy in front of an HTTP origin.
//!
//! A connection goes from the [`listener`] through [`wire`](crate::wire) to a [`connection_service`], which looks for a
//! fresh page in memory. All other requests go through the cache layer (`facetheory::IsrService`), and from there to the
//! [`origin`] if they have to.

mod body;
mod client;
mod connection_limit;
mod connection_queue;
mod connection_service;
mod failure;
mod forwarded_headers;
mod header_trust;
mod health;
mod http2_checks;
mod informational;
mod listener;
mod origin;
mod origin_pool;
mod serving_config;
mod shutdown_signal;
mod stopping;
mod tls;
mod tunnel;
mod upstream_io;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use facetheory::{ClientAddress, IsrBody, IsrService};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use tower::Service as _;

use crate::log::{AccessLog, ResponseReason};
use crate::purge::{self, Executor, PurgeRequest, Purges};
use crate::wire::{InformationalWindow, rejection};
use body::RequestBody;
use client::{Client, ClientContext};

pub(crate) use connection_limit::ConnectionLimit;
pub(crate) use failure::{causes, describe, local_response};
pub(crate) use header_trust::is_of_anyone;
pub(crate) use listener::{Endpoint, Listener};
pub(crate) use origin::{Origin, tls as client_tls};
pub(crate) use serving_config::ServingConfig;
pub(crate) use stopping::Stopping;
pub(crate) use tls::Tls;
pub(crate) use tunnel::Tunnels;

/// Responds to requests on all connections. Its configuration can be replaced while it runs.
#[derive(Debug)]
pub(crate) struct Gateway {
    config: ArcSwap<ServingConfig>,
    access_log: Option<AccessLog>,
}

impl Gateway {
    pub(crate) fn new(config: ServingConfig, access_log: Option<AccessLog>) -> Arc<Self> {
        Arc::new(Gateway { config: ArcSwap::from_pointee(config), access_log })
    }

    /// Uses another configuration for all later requests. Requests in progress finish with the one they began with.
    pub(crate) fn reload(&self, config: ServingConfig) {
        self.config.store(Arc::new(config));
    }

    /// The cache layer that is in use.
    pub(crate) fn service(&self) -> IsrService<Origin> {
        self.config.load().service.clone()
    }

    /// The origin that is in use.
    pub(crate) fn origin(&self) -> Origin {
        self.config.load().origin.clone()
    }

    /// The settings of purges: allowed addresses and dialects.
    pub(crate) fn purges(&self) -> Purges {
        self.config.load().purges.clone()
    }

    /// Performs purges under the configuration in use.
    pub(crate) fn executor(&self) -> Executor {
        self.config.load().executor()
    }

    /// Whether connections from this address come from a trusted proxy.
    fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        self.config.load().trusted_proxies.contains(address)
    }

    /// Responds to one request. `checked` is the outcome of [`http2_checks::check_head`], and `purge` is what the request wants
    /// by the headers that arrived.
    async fn respond(
        &self,
        client: &Arc<Client>,
        mut request: Request<Incoming>,
        checked: http2_checks::CheckResult,
        purge: Option<PurgeRequest>,
    ) -> Response<IsrBody> {
        let (http1_state, method) = (client.http1_state.as_ref(), request.method());
        if let Some((rejection, request)) =
            http1_state.and_then(|state| state.rejected(method, request.headers()))
        {
            let mut response = local_response(rejection);
            let reason = ResponseReason { reason: rejection.text, rejected: Some(request) };
            response.extensions_mut().insert(reason);
            return response.map(IsrBody::from);
        }
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return local_response(rejection::METHOD_NOT_SUPPORTED).map(IsrBody::from);
        }
        if http1_state.is_none() {
            let timeout = self.config.load().body_limits.min_rate.grace;
            let checked = http2_checks::check_body(&mut request, timeout).await.and(checked);
            if let Err(rejection) = checked {
                let mut response = local_response(rejection);
                if *request.method() == Method::HEAD {
                    // Over HTTP/2, hyper would send the body.
                    let length = std::mem::take(response.body_mut()).len();
                    response.headers_mut().insert(CONTENT_LENGTH, length.into());
                }
                return response.map(IsrBody::from);
            }
        }
        let config = self.config.load_full();
        let (parts, body) = request.into_parts();
        let request = match purge {
            None => Request::from_parts(parts, body),
            Some(PurgeRequest::Denied) => return purge::denied().map(IsrBody::from),
            Some(PurgeRequest::Purge(parsed)) => {
                let (executor, peer) = (config.executor(), client.address.ip());
                let outcome = executor.perform(parsed, peer, purge::host(&parts)).await;
                return purge::respond(&outcome, &parts).map(IsrBody::from);
            }
            Some(PurgeRequest::Refresh) => Request::from_parts(config.refresh(parts).await, body),
        };
        // Closed on return, which is before hyper gets the response.
        let window = http1_state.and_then(|state| InformationalWindow::open(state, request.version()));
        let mut service = config.service.clone();
        let mut request = request.map(|body| RequestBody::of(body, config.body_limits));
        let informational = window.as_ref().map(InformationalWindow::sender);
        if let Some(address) = config.trusted_proxies.client_address(client, request.headers()) {
            request.extensions_mut().insert(ClientAddress(address));
        }
        request.extensions_mut().insert(ClientContext { client: client.clone(), informational });
        match service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
