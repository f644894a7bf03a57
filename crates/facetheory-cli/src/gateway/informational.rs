//! Interim answers (102, 103): what the origin says before its answer reaches the visitor before the answer, too, as RFC 9110
//! §15.2 wants of a proxy.

use std::time::Duration;

use bytes::Bytes;
use facetheory::remove_hop_by_hop_headers;
use http::{HeaderMap, Request, StatusCode, Version};
use tokio::sync::mpsc;

use super::body::RequestBody;
use crate::wire::InformationalSender;

/// The most hints of one answer.
const MOST: usize = 8;
/// How long the answer waits for a visitor who does not take its hints: others may wait for the same answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The version in which a visitor asked, in the extensions of the request to the origin, which has its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientVersion(pub(crate) Version);

/// The hints of one answer, as they come.
#[derive(Debug)]
pub(crate) struct InformationalForwarder {
    coming: Option<(mpsc::Receiver<Bytes>, InformationalSender)>,
    version: Version,
}

impl InformationalForwarder {
    /// Those for a request. A render has none, since they are for one visitor; nor has what nobody waits for; nor has a visitor
    /// who speaks HTTP/2, where hyper cannot send them.
    pub(crate) fn of(request: &mut Request<RequestBody>) -> Self {
        let ClientVersion(version) =
            request.extensions_mut().remove().unwrap_or(ClientVersion(Version::HTTP_11));
        let Some(informational) = request
            .body()
            .client_context
            .as_ref()
            .and_then(|client_context| client_context.informational.clone())
        else {
            return InformationalForwarder { coming: None, version };
        };
        let (sender, receiver) = mpsc::channel(MOST);
        hyper::ext::on_informational(request, move |hint| {
            // These two are for us: whether the body of a request is wanted, and another protocol.
            if ![StatusCode::CONTINUE, StatusCode::SWITCHING_PROTOCOLS].contains(&hint.status()) {
                // More than these are dropped: they are hints.
                let _ = sender.try_send(written(hint.status(), hint.headers()));
            }
        });
        InformationalForwarder { coming: Some((receiver, informational)), version }
    }

    /// Waits for an answer, and passes on the hints that come before it, for as long as the visitor takes them.
    pub(crate) async fn passed_on_until<T>(self, answer: impl Future<Output = T>) -> T {
        let version = self.version;
        let Some((mut hints, informational)) = self.coming else { return answer.await };
        let tell = |hint| tokio::time::timeout(PATIENCE, informational.send(version, hint));
        let mut answer = std::pin::pin!(answer);
        let answer = loop {
            tokio::select! {
                biased;
                Some(hint) = hints.recv() => if tell(hint).await.is_err() {
                    return answer.await;
                },
                answer = &mut answer => break answer,
            }
        };
        while let Ok(hint) = hints.try_recv() {
            if tell(hint).await.is_err() {
                break;
            }
        }
        answer
    }
}

/// A hint as it stands on a connection.
fn written(status: StatusCode, headers: &HeaderMap) -> Bytes {
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
    use super::*;
    use crate::wire::{ClientTimeouts, DeadlineTicker, RequestLimits};

    #[tokio::test(start_paused = true)]
    async fn an_answer_does_not_wait_forever_for_a_visitor_who_takes_no_hints() {
        let (_client, server) = tokio::io::duplex(1);
        // Nobody writes to this connection, as where its client does not read.
        let wire =
            DeadlineTicker::new().register(server, RequestLimits::default(), &ClientTimeouts::default());
        let prelude = wire.state().informational();
        let (sender, receiver) = mpsc::channel(MOST);
        let hints =
            InformationalForwarder { coming: Some((receiver, prelude.sender())), version: Version::HTTP_11 };
        for _ in 0..MOST {
            sender.try_send(Bytes::from_static(b"a hint")).expect("room");
        }
        let answer = tokio::time::timeout(2 * PATIENCE, hints.passed_on_until(async { "the answer" })).await;
        assert_eq!(answer, Ok("the answer"));
    }
}
