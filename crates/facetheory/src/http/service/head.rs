//! HEAD requests on routes that follow their origin: they are forwarded, and their responses update the stored response
//! (RFC 9111 §4.3.5).

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response};
use tabletheory::Timestamp;

use super::CacheHandler;
use super::exchange::Exchange;
use super::select::Selected;
use crate::engine::{CachedPage, boxed};
use crate::error::Result;
use crate::http::body::IsrBody;
use crate::http::cacheability::Limits;
use crate::http::fetch::Fetch;
use crate::http::renderer::Renderer;
use crate::http::respond::PassThrough;
use crate::http::semantics::revalidation;
use crate::pages::reason::RegenerateReason;
use crate::pages::render::{Render, RenderContext, RenderError};
use crate::protocol::invalidate::InvalidationMode;

impl CacheHandler {
    pub(super) async fn serve_head<S, B>(
        self: &Arc<Self>,
        exchange: &Arc<Exchange<S, B>>,
        selected: &Selected<'_>,
        request_id: &HeaderValue,
    ) -> std::result::Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let requested = self.now();
        let pass = PassThrough { forward_reason: selected.forward_reason, detail: "head", request_id };
        let response = self.pass_page_through(exchange, &selected.key, pass).await?;
        let is_same =
            |page: &&Arc<CachedPage>| page.follows_origin() && page.status() == response.status().as_u16();
        if let Some(stored) = selected.found.as_ref().map(|(page, _)| page).filter(is_same)
            && let Err(error) =
                self.update_by_head(exchange, selected, stored, response.headers(), requested).await
        {
            let page = selected.key.redacted();
            tracing::warn!(%error, %page, "the response to HEAD did not update the stored response");
        }
        Ok(response)
    }

    /// Updates the stored response if the response to HEAD is about it, and invalidates it otherwise.
    async fn update_by_head<S, B>(
        self: &Arc<Self>,
        exchange: &Arc<Exchange<S, B>>,
        selected: &Selected<'_>,
        stored: &Arc<CachedPage>,
        answer: &HeaderMap,
        requested: Timestamp,
    ) -> Result<()>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        if !revalidation::is_about(stored.headers(), stored.bytes().len() as u64, answer) {
            return self.isr.invalidate_entry(&selected.key, InvalidationMode::Soft).await.map(drop);
        }
        let (handler, exchange, answer) = (self.clone(), exchange.clone(), answer.clone());
        let (generation, received) = (stored.generation().clone(), self.now());
        let policy = self.routes.at(exchange.route).policy;
        let reason = RegenerateReason::HeadUpdate(generation.generated_at);
        let update = move |context: RenderContext| async move {
            // A page that has changed or was invalidated in the meantime needs more than a HEAD, which may be from before that.
            let is_current = |row: &&crate::protocol::row::Meta| {
                row.generation == generation && !row.must_not_serve && row.stale_since.is_none()
            };
            let Some(stored) = context.served.as_ref().filter(is_current) else {
                return Ok(Render::Uncacheable);
            };
            if handler.isr.pages().store().is_outdated(&context.page, stored).await.unwrap_or(true) {
                return Ok(Render::Uncacheable);
            }
            let fetch = Fetch {
                page: &context.page,
                route: handler.routes.at(exchange.route),
                client: &exchange.client,
                stored: Some(stored),
                may_revalidate: true,
                is_whole_request: true,
                limits: Limits { max_bytes: handler.max_page_bytes, allows_new: true },
                requested,
            };
            Ok::<_, RenderError>(fetch.revalidated(stored, &answer, None, received).asked_at(requested))
        };
        self.isr.regenerate_for(&selected.key, &policy, reason, None, boxed(update)).await.map(drop)
    }
}
