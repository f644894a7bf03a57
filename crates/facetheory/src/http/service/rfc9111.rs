//! Pages that follow their origin's own headers: the decisions of `http::shared`, carried out.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{HeaderValue, IF_MATCH, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::BodyExt as _;
use tabletheory::Timestamp;
use tower::ServiceExt as _;

use super::{CacheHandler, no_answer, told};
use crate::engine::state::State;
use crate::engine::{
    BypassReason, CachedPage, FreshPage, GetResult, Rendering, ServeDecision, Served, boxed,
};
use crate::error::Error;
use crate::http::body::IsrBody;
use crate::http::cacheability_rfc9111::{Limits, Received};
use crate::http::compression::Coding;
use crate::http::fetch::FailedRender;
use crate::http::fetch_rfc9111::Fetch;
use crate::http::headers::has_named_hops;
use crate::http::renderer::Renderer;
use crate::http::request_origin::RequestOrigin;
use crate::http::respond::{Visitor, refused, tell, without_hops};
use crate::http::respond_rfc9111::{self, ForwardInfo};
use crate::http::response_cache::Hit;
use crate::http::router::host::asked;
use crate::http::router::origin_request::narrowed_uri;
use crate::http::router::rejection::Rejection;
use crate::http::semantics::cache_status::CacheStatus;
use crate::http::semantics::reuse::RequestDirectives;
use crate::http::semantics::revalidation;
use crate::http::semantics::unsafe_methods;
use crate::http::variants;
use crate::pages::policy::Policy;
use crate::pages::reason::RegenerateReason;
use crate::pages::render::{Render, RenderContext, RenderError, Rendered};
use crate::protocol::generation::Generation;
use crate::protocol::invalidate::InvalidationMode;
use crate::protocol::key::PageKey;
use crate::protocol::row::Meta;

/// By what an origin says that it, or what is behind it, cannot do any more now.
const OVERLOADED: [StatusCode; 3] =
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];

/// How often a visitor looks for its variant, while what selects variants changes.
const ROUNDS: usize = 3;

/// What a visit and the request that it makes of the origin share.
pub(super) struct OriginRequest<S, B> {
    parts: Parts,
    /// What the origin is asked for, if that is not all of the query.
    target: Option<Uri>,
    /// The number of the route.
    route: usize,
    service: Mutex<S>,
    /// The body of the visitor's request, for the first time that the origin is asked.
    body: Mutex<Option<B>>,
}

/// The origin's response, for the client whose request was forwarded.
pub(super) struct OriginResponse {
    /// `None` if the origin did not respond.
    status: Option<StatusCode>,
    /// The response itself, if it is not cached.
    response: Option<Response<IsrBody>>,
}

impl<S: Clone, B: Default> OriginRequest<S, B> {
    fn service(&self) -> S {
        self.service.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn body(&self) -> B {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

/// Which stored response a visitor is for, and what is known of it.
struct Selected {
    key: PageKey,
    peeked: Option<(Arc<CachedPage>, ServeDecision)>,
    /// Why the origin is asked, if it is.
    why: &'static str,
    /// The page by whose headers a variant was selected.
    primary: Option<Arc<CachedPage>>,
}

impl Selected {
    /// Whether it is served without anyone waiting for the origin.
    fn at_once(&self) -> bool {
        let usable = self.peeked.as_ref().map(|(_, usable)| usable);
        matches!(usable, Some(ServeDecision::Fresh | ServeDecision::Stale { while_revalidate: true, .. }))
    }
}

impl CacheHandler {
    pub(super) fn origin_request<S, B>(
        &self,
        mut parts: Parts,
        service: S,
        body: Option<B>,
        route: usize,
    ) -> OriginRequest<S, B> {
        let target = narrowed_uri(self.routes.at(route), &parts);
        self.routes.make_forwardable(&mut parts);
        OriginRequest { parts, target, route, service: Mutex::new(service), body: Mutex::new(body) }
    }

    /// Answers a visitor of a page that follows its origin.
    pub(super) async fn follow<S, B>(
        self: &Arc<Self>,
        forward: OriginRequest<S, B>,
        primary: &PageKey,
        policy: &Policy,
        id: &HeaderValue,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let forward = Arc::new(forward);
        let (parts, asked) = (&forward.parts, RequestDirectives::of(&forward.parts.headers));
        // These are about what the origin has now, which only it can tell (RFC 9110 §13.1).
        let for_origin = [IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| parts.headers.contains_key(name));
        if asked.no_store() || for_origin {
            return self.pass_forward(&forward, primary, ("request", "not-asked-for"), id).await;
        }
        for _ in 0..ROUNDS {
            let (reuse, selected) = match self.select(primary, &asked, parts).await {
                Ok(selected) => selected,
                Err(error) => return Ok(refused(&Rejection::bad(error.to_string()), "refused", id)),
            };
            if !selected.at_once() {
                if asked.only_if_cached() {
                    let text = "the response is not stored, and only a stored one was asked for".to_owned();
                    let refusal = Rejection { status: StatusCode::GATEWAY_TIMEOUT, text };
                    return Ok(refused(&refusal, "only-if-cached", id));
                }
                if parts.method == Method::HEAD {
                    return self.head(&forward, &selected, policy, id).await;
                }
            }
            let render = {
                let (site, forward) = (self.clone(), forward.clone());
                let is_variant = selected.primary.is_some();
                let behalf =
                    if selected.at_once() { RequestOrigin::Background } else { RequestOrigin::Client };
                move |context| site.fetch(forward, context, is_variant, behalf)
            };
            let (answer, fetched) = self.isr.get_with(&selected.key, policy, &reuse, render).await;
            let (status, own) = fetched.map_or((None, None), |fetched| (fetched.status, fetched.response));
            return match (answer, own) {
                (Ok(GetResult::Page(served)), _) => {
                    Ok(self.page(&forward, &selected, policy, &served, status, id).await)
                }
                (Ok(GetResult::Bypass(BypassReason::OtherVariant)), None) => continue,
                (Ok(GetResult::Bypass(reason)), Some(own)) => {
                    Ok(self.passed(&forward, without_hops(own), (selected.why, reason.word()), id))
                }
                (Ok(GetResult::Bypass(reason)), None) => {
                    self.pass_forward(&forward, &selected.key, (selected.why, reason.word()), id).await
                }
                (Err(_), Some(own)) => {
                    Ok(self.passed(&forward, without_hops(own), (selected.why, "render-failed"), id))
                }
                (Err(error), None) => Ok(match FailedRender::answer_in(&error) {
                    Some(own) => {
                        self.passed(&forward, without_hops(own), (selected.why, "render-failed"), id)
                    }
                    None => match FailedRender::of_another(&error) {
                        // An origin that has too much to do must not be asked by all who waited. A status is nobody's own.
                        Some(status) if OVERLOADED.contains(&status) => {
                            refused(&Rejection { status, ..no_answer(&told(&error)) }, "render-failed", id)
                        }
                        Some(_) => {
                            let way = (selected.why, "render-failed");
                            return self.pass_forward(&forward, &selected.key, way, id).await;
                        }
                        None => refused(&no_answer(&told(&error)), "render-failed", id),
                    },
                }),
            };
        }
        self.pass_forward(&forward, primary, ("vary-miss", "restless"), id).await
    }

    /// Which stored response a request selects (RFC 9111 §4.1): the page itself, or the variant that its `Vary` leads to.
    async fn select<'a>(
        &self,
        primary: &PageKey,
        asked: &RequestDirectives<'a>,
        parts: &Parts,
    ) -> Result<(RequestDirectives<'a>, Selected), Error> {
        let peeked = self.isr.lookup(primary, asked).await;
        let Some((page, ServeDecision::OtherVariant)) = peeked else {
            let why = why(peeked.as_ref(), "uri-miss");
            return Ok((asked.clone(), Selected { key: primary.clone(), peeked, why, primary: None }));
        };
        let (key, reuse) = (variant_of(primary, &page, &parts.headers)?, asked.of_variant());
        let peeked = self.isr.lookup(&key, &reuse).await;
        let why = why(peeked.as_ref(), "vary-miss");
        Ok((reuse, Selected { key, peeked, why, primary: Some(page) }))
    }

    /// What a visitor who asks plainly selects, if it is in memory and fresh; and under which key.
    pub(super) fn stored_at_hand<'k>(
        &self,
        visitor: &Visitor<'_>,
        primary: &'k PageKey,
    ) -> Option<(Cow<'k, PageKey>, Hit<'k>)> {
        let (headers, policy, now) = (&visitor.parts.headers, &visitor.route.policy, visitor.now);
        let asked = RequestDirectives::of(headers);
        if asked.no_store() || has_named_hops(headers) {
            return None;
        }
        let (key, served) = match self.isr.get_fresh_with(primary, policy, &asked, now)? {
            FreshPage::Page(served) => (Cow::Borrowed(primary), served),
            FreshPage::OtherVariant(page) => {
                let key = variant_of(primary, &page, headers).ok()?;
                match self.isr.get_fresh_with(&key, policy, &asked.of_variant(), now)? {
                    FreshPage::Page(served) => (Cow::Owned(key), served),
                    FreshPage::OtherVariant(_) => return None,
                }
            }
        };
        let coded = (Coding::Identity, served.page.bytes().clone());
        let hit = self.responses.reply(visitor, &served, coded, |_| {
            let way = ForwardInfo { key: key.cache_key(), ..ForwardInfo::default() };
            let mut response = respond_rfc9111::page(visitor.parts, &served, way, now, visitor.id);
            self.strip(response.headers_mut());
            response
        });
        Some((key, hit))
    }

    /// Asks the origin, and decides what is kept of its answer.
    pub(super) async fn fetch<S, B>(
        self: Arc<Self>,
        forward: Arc<OriginRequest<S, B>>,
        context: RenderContext,
        is_variant: bool,
        behalf: RequestOrigin,
    ) -> Rendering<OriginResponse>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let stored = context.served.as_ref().filter(|meta| meta.generation.follows_origin());
        let welcome = context.served.is_some()
            || (self.welcomes(context.started)
                && (!is_variant || self.variants.welcomes(&context.page, context.started)));
        let limits = Limits { max_bytes: self.max_page_bytes, welcome };
        let tags = &self.routes.at(forward.route).tags;
        let offered = match stored {
            // Whether its address was invalidated hard is not known of a variant.
            Some(stored) if is_variant => {
                let outdated = self.isr.pages().store().is_outdated(&context.page, stored).await;
                !outdated.unwrap_or(true)
            }
            stored => stored.is_some_and(|stored| !stored.must_not_serve),
        };
        let (visitor, requested) = (&forward.parts, context.started);
        let fetch = Fetch { visitor, stored, offered, limits, tags, requested };
        let complete = |request: Request<()>| {
            let mut request = request.map(|()| forward.body());
            request.extensions_mut().insert(behalf);
            if let Some(target) = &forward.target {
                request.uri_mut().clone_from(target);
            }
            request
        };
        let now = || self.isr.pages().store().now();
        let (rendering, status) = fetch.ask(forward.service(), complete, now).await;
        let private = Some(OriginResponse { status, response: rendering.private });
        Rendering { outcome: rendering.outcome, private }
    }

    async fn page<S: Clone, B: Default>(
        self: &Arc<Self>,
        forward: &OriginRequest<S, B>,
        selected: &Selected,
        policy: &Policy,
        served: &Served,
        status: Option<StatusCode>,
        id: &HeaderValue,
    ) -> Response<IsrBody> {
        let asked_here = served.state == State::Miss;
        if let Some(primary) = selected.primary.as_ref().filter(|_| asked_here) {
            self.promote(selected, policy, primary, served).await;
        }
        let answered = status.filter(|_| asked_here);
        let way = ForwardInfo { key: selected.key.cache_key(), forward: Some(selected.why), answered };
        let mut response =
            respond_rfc9111::page(&forward.parts, served, way, self.isr.pages().store().now(), id);
        if self.expose_page_key {
            response.extensions_mut().insert(selected.key.clone());
        }
        response
    }

    /// A variant that is for everyone, or that depends on more than the page by which it was selected, takes the place of
    /// that page: what came last tells what to select by.
    async fn promote(
        self: &Arc<Self>,
        selected: &Selected,
        policy: &Policy,
        primary: &CachedPage,
        served: &Served,
    ) {
        let (known, names) = (&primary.stored().names, &served.page.stored().names);
        let for_everyone = served.page.generation().content.variant.is_none();
        if !for_everyone && names.iter().all(|name| known.contains(name)) {
            return;
        }
        let Ok(page) = selected.key.primary() else { return };
        let (promoted, last) =
            (served.page.clone(), RegenerateReason::VariantPromotion(primary.generation().generated_at));
        let site = self.clone();
        let copy = move |context: RenderContext| async move {
            let is_outdated = site.isr.pages().store().is_outdated(&context.page, promoted.meta()).await;
            // What was asked for before an invalidation, of the page or of a tag, is not for everyone after it.
            let from_before = is_outdated.unwrap_or(true)
                || context.served.as_ref().is_some_and(|row| site.is_later(row, promoted.generation()));
            Ok::<_, RenderError>(if from_before { Render::Uncacheable } else { copied(&promoted) })
        };
        if let Err(error) = self.isr.regenerate_for(&page, policy, last, None, boxed(copy)).await {
            tracing::warn!(%error, page = %page.redacted(), "a page is still selected by what it was");
        }
    }

    /// Whether a row tells of something later than this content: other content, or an invalidation.
    fn is_later(&self, row: &Meta, content: &Generation) -> bool {
        let asked = Timestamp::from_seconds(content.generated_at);
        row.generation.generated_at > content.generated_at
            || self.isr.pages().store().invalidated_since(row, asked)
    }

    /// Passes a HEAD on, and takes its answer for one about what is stored, if it is (RFC 9111 §4.3.5).
    async fn head<S, B>(
        self: &Arc<Self>,
        forward: &Arc<OriginRequest<S, B>>,
        selected: &Selected,
        policy: &Policy,
        id: &HeaderValue,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let requested = self.isr.pages().store().now();
        let response = self.pass_forward(forward, &selected.key, (selected.why, "head"), id).await?;
        let stored = selected.peeked.as_ref().map(|(page, _)| page).filter(|page| page.follows_origin());
        let Some(stored) = stored.filter(|page| page.status() == response.status().as_u16()) else {
            return Ok(response);
        };
        let outcome =
            if revalidation::is_about(stored.headers(), stored.bytes().len() as u64, response.headers()) {
                let (site, forward, answer) = (self.clone(), forward.clone(), response.headers().clone());
                let about = stored.generation().clone();
                let (limits, received) = (
                    Limits { max_bytes: self.max_page_bytes, welcome: true },
                    self.isr.pages().store().now(),
                );
                let freshen = move |context: RenderContext| async move {
                    // What was invalidated, or has changed meanwhile, needs more than a HEAD that may be from before that.
                    let stored = context.served.as_ref().filter(|row| row.generation == about);
                    let stored = stored.filter(|row| !row.must_not_serve && row.stale_since.is_none());
                    let Some(stored) = stored else { return Ok(Render::Uncacheable) };
                    if site.isr.pages().store().is_outdated(&context.page, stored).await.unwrap_or(true) {
                        return Ok(Render::Uncacheable);
                    }
                    let (visitor, tags) = (&forward.parts, &site.routes.at(forward.route).tags);
                    let fetch =
                        Fetch { visitor, stored: Some(stored), offered: true, limits, tags, requested };
                    Ok::<_, RenderError>(fetch.freshened(stored, &answer, received).asked_at(requested))
                };
                let again = RegenerateReason::HeadUpdate(stored.generation().generated_at);
                self.isr.regenerate_for(&selected.key, policy, again, None, boxed(freshen)).await.map(drop)
            } else {
                self.isr.invalidate_entry(&selected.key, InvalidationMode::Soft).await.map(drop)
            };
        if let Err(error) = outcome {
            tracing::warn!(%error, page = %selected.key.redacted(), "what a HEAD told of a page is not kept");
        }
        Ok(response)
    }

    /// Passes a request on as it came, and keeps nothing of the answer.
    async fn pass_forward<S, B>(
        &self,
        forward: &Arc<OriginRequest<S, B>>,
        key: &PageKey,
        (why, detail): (&'static str, &'static str),
        id: &HeaderValue,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default,
    {
        let parts = &forward.parts;
        let requested = self.isr.pages().store().now();
        let mut request = Request::from_parts(parts.clone(), forward.body());
        request.extensions_mut().insert(RequestOrigin::Client);
        let response = forward.service().oneshot(request).await?;
        let received = Received {
            method: &parts.method,
            request: &parts.headers,
            status: response.status(),
            headers: response.headers(),
            hint: None,
            bytes: 0,
            requested,
            received: self.isr.pages().store().now(),
        };
        if received.storing(Limits { max_bytes: u64::MAX, welcome: true }).is_ok() {
            self.isr.forget_declined(key);
        }
        let response = response.map(|body| IsrBody::passed(body.map_err(Into::into).boxed_unsync()));
        let mut response = self.passed(forward, response, (why, detail), id);
        if self.expose_page_key {
            response.extensions_mut().insert(key.clone());
        }
        Ok(response)
    }

    fn passed<S, B>(
        &self,
        forward: &OriginRequest<S, B>,
        mut response: Response<IsrBody>,
        (why, detail): (&'static str, &'static str),
        id: &HeaderValue,
    ) -> Response<IsrBody> {
        let mut status = CacheStatus::of(State::Bypass);
        status.forward = Some(why);
        status.rendered = Some(response.status());
        status.detail = Some(detail);
        tell(response.headers_mut(), &status, id);
        if forward.parts.method == Method::HEAD {
            let length = response.body().size_hint();
            *response.body_mut() = IsrBody::unsent(length);
        }
        response
    }

    /// Makes stale what an unsafe request has changed (RFC 9111 §4.4), before its visitor hears that it has.
    pub(super) async fn invalidate_after(&self, parts: &Parts, status: StatusCode, headers: HeaderMap) {
        let Ok(host) = asked(parts) else { return };
        let targets = unsafe_methods::targets(&parts.method, &parts.uri, host, status, &headers);
        for target in targets {
            if let Some(page) = self.routes.page_at(parts, &target, &self.scheme) {
                self.isr.invalidate_target(&page).await;
            }
        }
    }
}

/// A stored response, to be stored once more, as of when it was asked for.
fn copied(page: &CachedPage) -> Render {
    let generation = page.generation();
    let mut rendered = Rendered::new(page.bytes().clone(), generation.content.clone());
    rendered.etag.clone_from(&generation.etag);
    let fresh_for = u64::try_from(generation.revalidate_seconds).unwrap_or(0);
    rendered.revalidate = Some(Duration::from_secs(fresh_for));
    Render::from(rendered).asked_at(Timestamp::from_seconds(generation.generated_at))
}

/// The variant of a page that a request with these headers selects.
fn variant_of(primary: &PageKey, page: &CachedPage, headers: &HeaderMap) -> Result<PageKey, Error> {
    let digest = variants::digest(&page.stored().names, headers).unwrap_or_default();
    primary.variant(&digest)
}

/// Why the origin is asked, in the words of RFC 9211.
fn why(peeked: Option<&(Arc<CachedPage>, ServeDecision)>, missing: &'static str) -> &'static str {
    match peeked {
        None | Some((_, ServeDecision::OtherVariant)) => missing,
        Some((_, ServeDecision::Stale { reason: RegenerateReason::RequestDirective(_), .. })) => "request",
        Some((_, ServeDecision::Unusable(RegenerateReason::OtherVariant(_)))) => "vary-miss",
        Some((_, ServeDecision::Unusable(RegenerateReason::OtherPolicy(_)))) => "miss",
        Some(_) => "stale",
    }
}
