//! Reads and stores the bodies of pages, with a timeout.

use tabletheory::Timestamp;

use super::Pages;
use super::policy::Policy;
use super::render::Rendered;
use crate::bodies::{Body, NewBody, ReadBody};
use crate::error::{Error, Kind, Result};
use crate::protocol::{Generation, Meta, PageKey, ttl::seconds};

impl Pages {
    /// Reads the body of a page. Returns `None` if it is missing or damaged.
    pub(crate) async fn body(&self, meta: &Meta) -> Result<Option<Body>> {
        let page = &meta.generation;
        self.with_timeout(self.bodies.get(&page.s3_key, page.content.digest.as_deref())).await
    }

    /// Like [`body`](Self::body), but reads it only if `admit` returns a permit for its length.
    pub(crate) async fn admitted_body<P, F>(
        &self,
        meta: &Meta,
        admit: impl Fn(u64) -> F,
    ) -> Result<ReadBody<P>>
    where
        F: Future<Output = Option<P>>,
    {
        let page = &meta.generation;
        let read = self.bodies.get_admitted(&page.s3_key, page.content.digest.as_deref(), admit);
        self.with_timeout(read).await
    }

    /// Limits how long an object store that accepts a request and never responds can block a regeneration.
    async fn with_timeout<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.body_timeout;
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            Err(Error::bodies_unavailable(format!("the object storage did not respond within {limit:?}")))
        })
    }

    /// Stores the body of a render, unless it is the body of the `current` page.
    pub(super) async fn store_body(
        &self,
        page: &PageKey,
        policy: &Policy,
        mut rendered: Rendered,
        current: Option<&Meta>,
        started: Timestamp,
    ) -> Result<Generation> {
        let revalidate = seconds(rendered.revalidate.unwrap_or(policy.revalidate));
        let as_of = rendered.as_of.take();
        let generated_at = as_of.as_ref().map_or(started, |as_of| as_of.requested.min(started)).seconds();
        let mut generation = Generation::new("", generated_at, revalidate);
        generation.epochs = as_of.and_then(|as_of| as_of.epochs).map(|seen| seen.of_copy_at(generated_at));
        rendered.identify();
        // A row stores tags as a set, so their order must not make two renders differ.
        rendered.content.tags.sort_unstable();
        rendered.content.tags.dedup();
        generation.content = rendered.content;
        let Some(bytes) = rendered.bytes else {
            let current = current.ok_or_else(|| {
                let context =
                    format!("{} was rendered as unchanged, but there is no page yet", page.redacted());
                Error::new(Kind::Render, context)
            })?;
            generation.s3_key.clone_from(&current.generation.s3_key);
            generation.etag = rendered.etag;
            generation.content.digest.clone_from(&current.generation.content.digest);
            return Ok(generation);
        };
        (generation.etag, generation.content.digest) = (rendered.etag, rendered.digest);
        if let Some(current) = current.filter(|current| current.has_same_body(&generation)) {
            generation.s3_key.clone_from(&current.generation.s3_key);
            return Ok(generation);
        }
        let body = NewBody { page, generated_at: started, bytes, content: &generation.content };
        let store = self.bodies.store(body, &*self.random);
        generation.s3_key = self.with_timeout(store).await?;
        Ok(generation)
    }
}
