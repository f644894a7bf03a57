//! A connection as hyper's service: each request gets its answer, at once where it is at hand.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use facetheory::IsrBody;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;

use super::Gateway;
use super::client::Client;
use super::connection_limit::ConnectionPermit;
use super::idle_tracker::IdleTracker;
use super::tracked_body::{ResponseGuard, TrackedBody};
use crate::log::Arrival;
use crate::wire::{FastPath, RawResponse};

/// Answers that have no body whatever is kept of them: how they are sent is left to hyper.
const BODILESS: [StatusCode; 2] = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];

/// What is asked and answered on one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionService {
    gateway: Arc<Gateway>,
    client: Arc<Client>,
    activity: Arc<IdleTracker>,
    _place: Arc<ConnectionPermit>,
}

/// An answer: most are there at once.
pub(crate) enum Answer {
    There(Option<Response<TrackedBody>>),
    Coming(Pin<Box<dyn Future<Output = Response<TrackedBody>> + Send>>),
}

impl ConnectionService {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        client: Arc<Client>,
        activity: Arc<IdleTracker>,
        place: Arc<ConnectionPermit>,
    ) -> Self {
        ConnectionService { gateway, client, activity, _place: place }
    }

    /// What the log is told of a request, if there is one.
    fn arrival(&self, request: &Parts) -> Option<Arrival> {
        self.gateway.access.as_ref().map(|_| Arrival::of(request, self.client.address.ip()))
    }

    /// Says that the connection is busy, until the answer has ended.
    fn busy(&self) -> ResponseGuard {
        match &self.client.http1_state {
            Some(http1_state) => ResponseGuard::ActiveRequest { _answering: http1_state.answering() },
            None => ResponseGuard::Stream(self.activity.begin()),
        }
    }
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let busy = self.busy();
        // What came over HTTP/1 was checked by the wire.
        let is_sound = self.client.http1_state.is_some() || !self.gateway.has_fault(&request);
        let (mut parts, body) = request.into_parts();
        let arrival = self.arrival(&parts);
        self.gateway.believe(&self.client, &mut parts);
        if is_sound {
            let resolved = self.gateway.resolve(&parts);
            if let Some(hit) = self.gateway.get_fresh(&parts, &resolved) {
                return Answer::There(Some(told(&self.gateway, arrival, hit.into_response(), busy)));
            }
            parts.extensions.insert(resolved);
        }
        let (gateway, client) = (self.gateway.clone(), self.client.clone());
        Answer::Coming(Box::pin(async move {
            let response = gateway.answer(&client, Request::from_parts(parts, body)).await;
            told(&gateway, arrival, response, busy)
        }))
    }
}

impl FastPath for ConnectionService {
    fn get_fresh(&self, mut request: Parts) -> Option<RawResponse> {
        let arrival = self.arrival(&request);
        self.gateway.believe(&self.client, &mut request);
        let resolved = self.gateway.resolve(&request);
        let hit = self.gateway.get_fresh(&request, &resolved)?;
        if hit.status().is_informational() || BODILESS.contains(&hit.status()) {
            return None;
        }
        let parcel = RawResponse { head: hit.http1_head(), body: hit.body().clone() };
        if let (Some(access), Some(arrival)) = (&self.gateway.access, arrival) {
            access.note_hit(arrival, &hit);
        }
        Some(parcel)
    }
}

/// An answer that is about to be sent, once it was told of in the log.
fn told(
    gateway: &Gateway,
    arrival: Option<Arrival>,
    mut response: Response<IsrBody>,
    busy: ResponseGuard,
) -> Response<TrackedBody> {
    if let (Some(access), Some(arrival)) = (&gateway.access, arrival) {
        access.note(arrival, &mut response);
    }
    response.map(|body| TrackedBody::new(body, busy))
}

impl Future for Answer {
    type Output = Result<Response<TrackedBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            // hyper does not ask again after that.
            Answer::There(response) => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
            Answer::Coming(answer) => answer.as_mut().poll(context).map(Ok),
        }
    }
}
