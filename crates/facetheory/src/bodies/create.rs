//! Creates an object that must not exist yet.

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attributes, ObjectStore, PutMode, PutOptions, PutPayload};
use tabletheory::Backoff;

/// How often a put is retried after a conflict, as S3 requires.
const MAX_RETRIES: u32 = 6;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(640));

/// The result of a put that must not overwrite anything.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Created {
    /// The object was created.
    Done,
    /// The key is taken.
    Taken,
}

/// Creates an object, unless its key is taken.
///
/// S3 responds with 412 if the key is taken, and with 409 if a concurrent request won and nothing was written: that one is
/// retried. `object_store` reports both as "already exists", and only the first with a failed precondition as its cause.
pub(super) async fn create(
    objects: &dyn ObjectStore,
    path: &Path,
    bytes: &Bytes,
    attributes: &Attributes,
) -> object_store::Result<Created> {
    for retry in 0.. {
        let options =
            PutOptions { mode: PutMode::Create, attributes: attributes.clone(), ..PutOptions::default() };
        match objects.put_opts(path, PutPayload::from_bytes(bytes.clone()), options).await {
            Ok(_) => return Ok(Created::Done),
            Err(error) if is_conflict(&error) && retry < MAX_RETRIES => {
                tokio::time::sleep(BACKOFF.delay_without_jitter(retry)).await;
            }
            Err(error) if is_conflict(&error) => return Err(error),
            Err(object_store::Error::AlreadyExists { .. }) => return Ok(Created::Taken),
            Err(error) => return Err(error),
        }
    }
    unreachable!("the last retry returns")
}

/// Whether the response was 409.
fn is_conflict(error: &object_store::Error) -> bool {
    let object_store::Error::AlreadyExists { source, .. } = error else { return false };
    !source.is::<object_store::Error>() && source.to_string().contains("409 Conflict")
}
