//! Operations on pages: purge (invalidate), regenerate, roll back, unpin.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use facetheory::{Invalidated, InvalidationMode, Outcome, RolledBack, Tag, Tenant};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::Json;
use super::page_selector::PageSelector;
use super::problem::{NOT_RENDERED, OTHER_REQUEST, Problem};
use super::versions::no_version;
use super::{AdminState, ApiResult};
use crate::purge;

/// How long a page is pinned after a rollback by default.
const DEFAULT_PIN: Duration = Duration::from_secs(24 * 3600);

/// A rollback to an earlier version.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rollback {
    /// The URL under which clients request the page.
    #[schema(example = "http://example.com/posts/a")]
    url: String,
    /// Request headers that are part of the cache key.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Request cookies that are part of the cache key.
    #[serde(default)]
    cookies: BTreeMap<String, String>,
    /// The name of the version, from `history`.
    version: String,
    /// How long the version is pinned, in seconds; the default is a day. With 0 the page is regenerated at once.
    pin_seconds: Option<u32>,
}

/// The result of a rollback or unpin.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Done {
    /// The cache key of the page.
    cache_key: String,
    /// Whether anything changed.
    done: bool,
}

/// Roll a page back to an earlier version, and pin it
#[utoipa::path(
    post, path = "/api/v1/rollback", operation_id = "rollback", tag = "operations", request_body = Rollback,
    responses((status = 200, description = "The version is served now", body = Done), Problem),
)]
pub(super) async fn roll_back(admin: AdminState, Json(request): Json<Rollback>) -> ApiResult<Done> {
    let page = PageSelector::new(&request.url, &request.headers, &request.cookies).resolve(&admin)?;
    let pin = request.pin_seconds.map_or(DEFAULT_PIN, |seconds| Duration::from_secs(seconds.into()));
    match admin.isr.roll_back(&page, &request.version, pin).await? {
        RolledBack::Done => {
            tracing::info!(page = %page.redacted(), version = request.version, "page rolled back by an operator");
            Ok(axum::Json(Done { cache_key: page.cache_key().to_owned(), done: true }))
        }
        RolledBack::NoSuchVersion => Err(no_version()),
    }
}

/// A page.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PageRequest {
    /// The URL under which clients request the page.
    #[schema(example = "http://example.com/posts/a")]
    url: String,
    /// Request headers that are part of the cache key.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Request cookies that are part of the cache key.
    #[serde(default)]
    cookies: BTreeMap<String, String>,
}

impl PageRequest {
    fn selector(&self) -> PageSelector<'_> {
        PageSelector::new(&self.url, &self.headers, &self.cookies)
    }
}

/// End the pin of a page; the page is stale from then on
#[utoipa::path(
    post, path = "/api/v1/unpin", operation_id = "unpin", tag = "operations", request_body = PageRequest,
    responses((status = 200, description = "The page is not pinned; `done` says whether it was", body = Done), Problem),
)]
pub(super) async fn unpin(admin: AdminState, Json(request): Json<PageRequest>) -> ApiResult<Done> {
    let page = request.selector().resolve(&admin)?;
    let done = admin.isr.unpin(&page).await?;
    tracing::info!(page = %page.redacted(), done, "page unpinned by an operator");
    Ok(axum::Json(Done { cache_key: page.cache_key().to_owned(), done }))
}

/// The pages to purge: exactly one of `url`, `path`, `tag`, `route`, `tenant` and `everything`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Invalidate {
    /// The URL of one page.
    #[schema(example = "http://example.com/posts/a")]
    url: Option<String>,
    /// With `url`: request headers that are part of the cache key.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// With `url`: request cookies that are part of the cache key.
    #[serde(default)]
    cookies: BTreeMap<String, String>,
    /// All pages at or below this path.
    path: Option<String>,
    /// All pages with this tag.
    tag: Option<String>,
    /// All pages of the route with this pattern.
    route: Option<String>,
    /// All pages of this tenant; with `path`, `tag` or `route`, only those.
    tenant: Option<String>,
    /// All pages that belong to no tenant.
    #[serde(default)]
    everything: bool,
    /// Whether the pages may be served while they are regenerated.
    mode: Option<Mode>,
    /// Whether the pages must not be served any more, as with the mode `hard`.
    #[serde(default)]
    hard: bool,
}

/// Whether invalidated pages may be served while they are regenerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// They may be served stale.
    Soft,
    /// They must not be served. This ends pins.
    Hard,
}

/// The effect of an invalidation.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum InvalidationOutcome {
    /// The pages are stale now.
    Stale,
    /// The page is pinned and was not changed; a hard invalidation ends a pin.
    Pinned,
    /// The page is not cached, and renders that started before cannot publish it.
    Absent,
}

/// The result of an invalidation.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Invalidation {
    outcome: InvalidationOutcome,
}

/// Purge a page, or all pages of a path, tag or tenant, at a cost that does not depend on the number of pages
#[utoipa::path(
    post, path = "/api/v1/invalidate", operation_id = "invalidate", tag = "operations", request_body = Invalidate,
    responses((status = 200, description = "The effect", body = Invalidation), Problem),
)]
pub(super) async fn invalidate(
    admin: AdminState,
    Json(request): Json<Invalidate>,
) -> ApiResult<Invalidation> {
    let mode = request.mode()?;
    let outcome = match request.target()? {
        Target::Page(selector) => {
            let page = selector.resolve(&admin)?;
            match admin.isr.invalidate(&page, mode).await? {
                Invalidated::Stale => InvalidationOutcome::Stale,
                Invalidated::Pinned => InvalidationOutcome::Pinned,
                Invalidated::Absent => InvalidationOutcome::Absent,
            }
        }
        Target::Tags(tags, tenant) => {
            for tag in tags {
                admin.isr.invalidate_tag_with(&tag, tenant.as_ref(), mode).await?;
            }
            InvalidationOutcome::Stale
        }
    };
    let Invalidate { url, path, tag, route, tenant, .. } = &request;
    tracing::info!(url, path, tag, route, tenant, ?mode, ?outcome, "invalidated by an operator");
    Ok(axum::Json(Invalidation { outcome }))
}

/// The pages that an invalidation applies to.
#[derive(Debug)]
enum Target<'a> {
    Page(PageSelector<'a>),
    Tags(Vec<Tag>, Option<Tenant>),
}

impl Invalidate {
    fn target(&self) -> Result<Target<'_>, Problem> {
        let tenant = self.tenant.as_deref().map(Tenant::new).transpose()?;
        let named = [&self.url, &self.path, &self.tag, &self.route];
        let is_one = named.into_iter().flatten().count() + usize::from(self.everything) <= 1;
        let tags = match self {
            _ if !is_one => None,
            Invalidate { url: Some(url), .. } if tenant.is_none() => {
                return Ok(Target::Page(PageSelector::new(url, &self.headers, &self.cookies)));
            }
            Invalidate { path: Some(path), .. } => Some(vec![Tag::path(path)?]),
            Invalidate { tag: Some(tag), .. } => Some(tags_of(tag)?),
            Invalidate { route: Some(pattern), .. } => Some(vec![Tag::route(pattern)?]),
            Invalidate { url: None, everything, .. } if *everything != tenant.is_some() => {
                Some(vec![Tag::everything()])
            }
            _ => None,
        };
        let Some(tags) = tags else {
            return Err(Problem::bad_request(
                "name exactly one of `url`, `path`, `tag`, `route`, `tenant` and `everything`; `tenant` can be combined with \
                 `path`, `tag` or `route`",
            ));
        };
        if !self.headers.is_empty() || !self.cookies.is_empty() {
            return Err(Problem::bad_request("`headers` and `cookies` need a `url`"));
        }
        Ok(Target::Tags(tags, tenant))
    }

    fn mode(&self) -> Result<InvalidationMode, Problem> {
        match (self.mode, self.hard) {
            (Some(Mode::Soft), true) => {
                Err(Problem::bad_request("`mode` is `soft`, and `hard` is true; send only one of them"))
            }
            (Some(Mode::Hard), _) | (None, true) => Ok(InvalidationMode::Hard),
            (Some(Mode::Soft) | None, false) => Ok(InvalidationMode::Soft),
        }
    }
}

/// The tag of a rule with this name, and the tags that headers of responses would name by it: they separate tags by commas and spaces.
fn tags_of(name: &str) -> Result<Vec<Tag>, Problem> {
    let mut tags = vec![Tag::new(name)?];
    for tag in purge::names(name).filter_map(|name| Tag::of_header(name).ok()) {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    Ok(tags)
}

/// The result of a regeneration. A repeated request returns the same result.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Regeneration {
    /// The cache key of the page.
    cache_key: String,
    outcome: RegenerationOutcome,
    /// The key of the body in the body store.
    s3_key: Option<String>,
}

/// How a regeneration ended.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum RegenerationOutcome {
    /// The page was rendered and published.
    Rendered,
    /// The page was fresh and was not rendered. To render it anyway, invalidate it first.
    Fresh,
}

/// The headers that identify a request, so that it is executed once however often it is sent. The first one sent is used.
const REQUEST_KEYS: [&str; 2] = ["Idempotency-Key", "X-Request-Id"];
/// Marks the result of an earlier execution.
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Regenerate a page that is not fresh, once per idempotency key
#[utoipa::path(
    post, path = "/api/v1/regenerate", operation_id = "regenerate", tag = "operations", request_body = PageRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Identifies the request, so that it is executed once however often it is sent"),
        ("X-Request-Id" = Option<String>, Header, description = "The idempotency key, if the request has no Idempotency-Key header. A request without either header gets a key that is derived from the page, the deployment and the policy version, so the page is rendered once for each of them"),
    ),
    responses(
        (status = 200, description = "The page was rendered, or was fresh", body = Regeneration,
            headers(("Idempotency-Replayed" = String, description = "`true` if this is the result of an earlier execution"))),
        (status = 400, description = "The key or the request is invalid", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "A regeneration is in progress", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The key was used for another request", body = Problem, content_type = "application/problem+json"),
        Problem,
    ),
)]
pub(super) async fn regenerate(
    admin: AdminState,
    headers: HeaderMap,
    Json(request): Json<PageRequest>,
) -> Result<Response, Problem> {
    let key = request_key(&headers)?;
    let selector = request.selector();
    let page = selector.resolve(&admin)?;
    let service = admin.gateway.service();
    let idempotent = admin.isr.idempotent_request(&page, key);
    let outcome = service.regenerate(selector.request()?, Some(idempotent)).await?;
    let now = admin.isr.now().seconds();
    let (outcome, s3_key, replayed) = match outcome {
        Outcome::Published(generation) => (RegenerationOutcome::Rendered, Some(generation.s3_key), false),
        Outcome::Unchanged(meta) => (RegenerationOutcome::Rendered, Some(meta.generation.s3_key), false),
        Outcome::Replayed { s3_key } => (RegenerationOutcome::Rendered, s3_key, true),
        Outcome::AlreadyFresh(meta) => (RegenerationOutcome::Fresh, Some(meta.generation.s3_key), false),
        not_rendered => return Err(regeneration_problem(&not_rendered, now)),
    };
    tracing::info!(page = %page.redacted(), ?outcome, replayed, "page regenerated by an operator");
    let cache_key = page.cache_key().to_owned();
    let mut response = axum::Json(Regeneration { cache_key, outcome, s3_key }).into_response();
    if replayed {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Returns the error response for a regeneration that published nothing.
fn regeneration_problem(outcome: &Outcome, now: i64) -> Problem {
    let retry_after = |until: i64| until.saturating_sub(now);
    match outcome {
        Outcome::Held { until } => {
            Problem::in_progress("another process renders this page; try again later", retry_after(*until))
        }
        Outcome::InProgress { until } => {
            let seconds = until.map_or(1, retry_after);
            Problem::in_progress("this request is being executed; try again later", seconds)
        }
        Outcome::OtherRequest => {
            let detail = "this idempotency key was used for another page, or by another deployment or policy version; \
                          nothing was done; choose a new key";
            Problem::new(&OTHER_REQUEST, detail)
        }
        Outcome::Declined => Problem::new(
            &NOT_RENDERED,
            "the response of the origin is not cacheable, for example because of a cookie or `no-store`; the cached page \
             stays in use",
        ),
        Outcome::Invalidated => Problem::new(
            &NOT_RENDERED,
            "the response of the origin is repeatedly not cacheable, for example because of a cookie or `no-store`; the \
             cached page is no longer served",
        ),
        _ => Problem::in_progress("the page changed while it was rendered; try again", 1),
    }
}

/// Returns the idempotency key of a request, or `None` if the client sent none.
fn request_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(name) = REQUEST_KEYS.into_iter().find(|name| headers.contains_key(*name)) else {
        return Ok(None);
    };
    let invalid = |what: &str| {
        Problem::bad_request(format!(
            "the {name} header {what}; send one unique value, and the same value when you repeat the request"
        ))
    };
    let mut keys = headers.get_all(name).iter();
    let key = keys.next().and_then(|key| key.to_str().ok()).filter(|key| !key.is_empty());
    if keys.next().is_some() {
        return Err(invalid("is repeated"));
    }
    key.map(Some).ok_or_else(|| invalid("is empty, or contains invisible characters"))
}
