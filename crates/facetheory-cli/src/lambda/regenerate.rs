//! Regenerates the pages that the messages of a queue name.

use bytes::Bytes;
use facetheory::{Isr, Outcome};
use futures_util::stream::{self, StreamExt as _};
use http::Request;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::event::Message;
use super::queue::PageMessage;
use crate::gateway::{Gateway, describe};

/// Pages of one batch that are regenerated at the same time.
const MAX_AT_ONCE: usize = 8;

/// The messages that SQS has to deliver again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BatchResponse {
    batch_item_failures: Vec<ItemFailure>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ItemFailure {
    item_identifier: String,
}

/// Regenerates the page of each message until the deadline. Returns the response to SQS, which names the messages that have
/// to be delivered again.
pub(super) async fn all(gateway: &Gateway, isr: &Isr, messages: Vec<Message>, deadline: Instant) -> Bytes {
    let regenerations = messages.into_iter().map(|message| async move {
        let error = match timeout_at(deadline, regenerate(gateway, isr, &message)).await {
            Ok(Ok(outcome)) => {
                tracing::info!(message_id = message.message_id, outcome, "a message was handled");
                return None;
            }
            Ok(Err(error)) => error,
            Err(_) => "the page was not regenerated before the timeout of the function".to_owned(),
        };
        tracing::warn!(message_id = message.message_id, error, "a message will be delivered again");
        Some(ItemFailure { item_identifier: message.message_id })
    });
    let failures = stream::iter(regenerations).buffer_unordered(MAX_AT_ONCE);
    let batch_item_failures = failures.filter_map(std::future::ready).collect().await;
    serde_json::to_vec(&BatchResponse { batch_item_failures }).unwrap_or_default().into()
}

/// Regenerates the page of a message, once however often the message is delivered. An error means that the message has to be
/// delivered again.
async fn regenerate(gateway: &Gateway, isr: &Isr, message: &Message) -> Result<&'static str, String> {
    let (parts, ()) = PageMessage::parse(&message.body)?.into_parts();
    let service = gateway.service();
    let page = service.page(&parts).map_err(|error| describe(&error))?;
    let page = page.ok_or("responses to the request in the message are not cached")?;
    let once = isr.idempotent_request(&page, Some(&message.message_id));
    let outcome = service.regenerate(Request::from_parts(parts, ()), Some(once)).await;
    match outcome.map_err(|error| describe(&error))? {
        Outcome::Published(_) => Ok("published"),
        Outcome::Unchanged(_) => Ok("unchanged"),
        Outcome::AlreadyFresh(_) => Ok("already-fresh"),
        Outcome::Replayed { .. } => Ok("replayed"),
        // The origin decided so, and would decide the same again.
        Outcome::Declined => Ok("declined"),
        Outcome::Invalidated => Ok("invalidated"),
        Outcome::Held { .. } | Outcome::InProgress { .. } => {
            Err("another process renders the page; if it does not finish, this message does it".to_owned())
        }
        // An earlier deployment has begun with the message. The pages of that deployment are stale now, so they are
        // regenerated when they are requested.
        Outcome::OtherRequest => Ok("of-another-deployment"),
        _ => Err("the page changed while it was rendered".to_owned()),
    }
}
