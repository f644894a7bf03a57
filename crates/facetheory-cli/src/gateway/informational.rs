//! Forwards informational responses (102, 103 Early Hints) of the origin to the client, as RFC 9110 §15.2 requires of
//! proxies.

use std::time::Duration;

use bytes::Bytes;
use facetheory::remove_hop_by_hop_headers;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::mpsc;

use super::body::RequestBody;
use crate::wire::InformationalSender;

/// The number of informational responses of one request that may wait; more are dropped.
const MAX_WAITING: usize = 8;
/// How long the final response waits for a slow client to read an informational one: other clients may wait for the same
/// response.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Forwards the informational responses to one request.
#[derive(Debug)]
pub(crate) struct InformationalForwarder(Option<(mpsc::Receiver<Bytes>, InformationalSender)>);

impl InformationalForwarder {
    /// Receives the informational responses to a request. Without a client that waits there is nothing to forward, as for
    /// a render, and over HTTP/2 hyper cannot send them.
    pub(crate) fn install(request: &mut Request<RequestBody>) -> Self {
        let context = request.body().client_context.as_ref();
        let Some(to_client) = context.and_then(|context| context.informational.clone()) else {
            return InformationalForwarder(None);
        };
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        hyper::ext::on_informational(request, move |response| {
            // These two are for the gateway itself: the origin waits for the request body, or switches protocols.
            if ![StatusCode::CONTINUE, StatusCode::SWITCHING_PROTOCOLS].contains(&response.status()) {
                let _ = sender.try_send(serialize(response.status(), response.headers()));
            }
        });
        InformationalForwarder(Some((receiver, to_client)))
    }

    /// Waits for the final response, and forwards informational ones until then, for as long as the client reads them.
    pub(crate) async fn forward_until<T>(self, response: impl Future<Output = T>) -> T {
        let Some((mut receiver, to_client)) = self.0 else { return response.await };
        let send = |bytes| tokio::time::timeout(SEND_TIMEOUT, to_client.send(bytes));
        let mut response = std::pin::pin!(response);
        let response = loop {
            tokio::select! {
                biased;
                Some(bytes) = receiver.recv() => if send(bytes).await.is_err() {
                    return response.await;
                },
                response = &mut response => break response,
            }
        };
        while let Ok(bytes) = receiver.try_recv() {
            if send(bytes).await.is_err() {
                break;
            }
        }
        response
    }
}

/// An informational response as it is written to an HTTP/1.1 connection.
fn serialize(status: StatusCode, headers: &HeaderMap) -> Bytes {
    let mut headers = headers.clone();
    remove_hop_by_hop_headers(&mut headers);
    let reason = status.canonical_reason().unwrap_or_default();
    let mut text = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;
    use crate::wire::{ClientTimeouts, DeadlineTicker, InformationalWindow, RequestLimits};

    #[tokio::test(start_paused = true)]
    async fn the_final_response_does_not_wait_forever_for_a_slow_client() {
        let (_client, server) = tokio::io::duplex(1);
        // Nothing polls this connection, as if the client did not read.
        let limits = RequestLimits::default();
        let stream = DeadlineTicker::new().register(server, limits, &ClientTimeouts::default());
        let window = InformationalWindow::open(stream.state(), Version::HTTP_11).expect("a window");
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let forwarder = InformationalForwarder(Some((receiver, window.sender())));
        for _ in 0..MAX_WAITING {
            sender.try_send(Bytes::from_static(b"a hint")).expect("room");
        }
        let response = forwarder.forward_until(async { "the response" });
        assert_eq!(tokio::time::timeout(2 * SEND_TIMEOUT, response).await, Ok("the response"));
    }
}
