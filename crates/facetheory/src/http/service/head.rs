//! HEAD requests on routes that follow their origin: they are forwarded, and their responses update the stored response
//! (RFC 9111 §4.3.5).

use std::sync::Arc;

use http::{HeaderMap, Response};
use tabletheory::Timestamp;

use super::exchange::Exchange;
use super::pass_through::call;
use super::select::Selected;
use super::serve::bypass;
use crate::engine::{CachedPage, boxed};
use crate::error::Result;
use crate::http::body::IsrBody;
use crate::http::fetch::Fetch;
use crate::http::renderer::Renderer;
use crate::http::respond;
use crate::http::semantics::revalidation;
use crate::pages::reason::RegenerateReason;
use crate::pages::render::{Render, RenderContext, RenderError};
use crate::protocol::invalidate::InvalidationMode;
use crate::protocol::key::PageKey;
use crate::protocol::row::Meta;

impl<S: Renderer<B>, B: Default + Send + 'static> Exchange<S, B> {
    pub(super) async fn serve_head(
        self: &Arc<Self>,
        selected: &Selected<'_>,
    ) -> std::result::Result<Response<IsrBody>, S::Error> {
        let (key, requested) = (&*selected.key, self.handler.now());
        let response = call(self.service(), self.keyed_request()).await?;
        let is_same =
            |page: &&Arc<CachedPage>| page.follows_origin() && page.status() == response.status().as_u16();
        if let Some(stored) = selected.found.as_ref().map(|(page, _)| page).filter(is_same)
            && let Err(error) = self.update_by_head(key, stored, response.headers(), requested).await
        {
            let page = key.redacted();
            tabletheory::warn_limited!(%error, %page, "the response to HEAD did not update the stored response");
        }
        // Only now, since the headers of this response must not be stored.
        let status = bypass(selected.forward_reason, "head");
        Ok(self.expose(respond::pass_through(response, status, &self.request_id), key))
    }

    /// Updates the stored response if the response to HEAD is about it, and invalidates it otherwise.
    async fn update_by_head(
        self: &Arc<Self>,
        key: &PageKey,
        stored: &CachedPage,
        response: &HeaderMap,
        requested: Timestamp,
    ) -> Result<()> {
        let isr = &self.handler.isr;
        if !revalidation::is_about(stored.headers(), stored.bytes().len() as u64, response) {
            return isr.invalidate_entry(key, InvalidationMode::Soft).await.map(drop);
        }
        let (exchange, response) = (self.clone(), response.clone());
        let (generation, received) = (stored.generation().clone(), self.handler.now());
        let reason = RegenerateReason::HeadUpdate(generation.generated_at);
        let update = move |context: RenderContext| async move {
            // A page that has changed or was invalidated in the meantime needs more than a HEAD, which may be from before that.
            let is_current = |row: &&Meta| {
                row.generation == generation && !row.must_not_serve && row.stale_since.is_none()
            };
            let Some(stored) = context.served.as_ref().filter(is_current) else {
                return Ok(Render::Uncacheable);
            };
            let store = exchange.handler.isr.pages().store();
            if store.is_outdated(&context.page, stored).await.unwrap_or(true) {
                return Ok(Render::Uncacheable);
            }
            let fetch = Fetch { stored: Some(stored), ..exchange.fetch(&context.page, requested) };
            let updated = fetch.revalidated(stored, &response, None, received);
            // No tag was invalidated since the stored response was rendered, as far as is known.
            Ok::<_, RenderError>(updated.requested_at(requested, stored.generation.seen_epochs().cloned()))
        };
        isr.regenerate_for(key, &self.route().policy, reason, None, boxed(update)).await.map(drop)
    }
}
