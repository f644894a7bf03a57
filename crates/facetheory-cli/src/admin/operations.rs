//! What an operator does to pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use facetheory::{IdempotentRequest, Invalidated, InvalidationMode, Outcome, RolledBack, Tag, Tenant};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::Admin;
use super::extract::Json;
use super::page_selector::Address;
use super::problem::Problem;
use super::versions::no_version;

/// For how long a page that was rolled back is kept as it is, unless the request says for how long.
const PIN: Duration = Duration::from_secs(24 * 3600);

/// Which version is to be served again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RollBack {
    /// The address that visitors have the page under.
    #[schema(example = "http://example.com/posts/a")]
    url: String,
    /// Headers that its route tells pages apart by.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Cookies that its route tells pages apart by.
    #[serde(default)]
    cookies: BTreeMap<String, String>,
    /// The version, as `history` names it.
    version: String,
    /// For how many seconds it is kept as it is, a day by default; with 0 it is renewed at once.
    pin_seconds: Option<u32>,
}

/// What was done.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Done {
    /// The cache key of the page.
    cache_key: String,
    /// Whether there was anything to do.
    done: bool,
}

/// Goes back to a version, and keeps it for a while.
#[utoipa::path(
    post, path = "/api/v1/rollback", operation_id = "rollback", tag = "operations", request_body = RollBack,
    responses(
        (status = 200, description = "That version is served now", body = Done),
        Problem,
    ),
)]
pub(super) async fn roll_back(
    State(admin): State<Arc<Admin>>,
    Json(wish): Json<RollBack>,
) -> Result<axum::Json<Done>, Problem> {
    let page = Address::of(&wish.url, &wish.headers, &wish.cookies).page(&admin)?;
    let pin = wish.pin_seconds.map_or(PIN, |seconds| Duration::from_secs(seconds.into()));
    match admin.isr.roll_back(&page, &wish.version, pin).await? {
        RolledBack::Done => {
            tracing::info!(page = %page.redacted(), version = wish.version, "an operator rolled a page back");
            Ok(axum::Json(Done { cache_key: page.cache_key().to_owned(), done: true }))
        }
        RolledBack::NoSuchVersion => Err(no_version()),
    }
}

/// Which page is meant.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    /// The address that visitors have the page under.
    #[schema(example = "http://example.com/posts/a")]
    url: String,
    /// Headers that its route tells pages apart by.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Cookies that its route tells pages apart by.
    #[serde(default)]
    cookies: BTreeMap<String, String>,
}

impl Named {
    fn address(&self) -> Address<'_> {
        Address::of(&self.url, &self.headers, &self.cookies)
    }

    /// What tells this wish from any other.
    fn hash(&self) -> String {
        let text = serde_json::to_vec(&("regenerate", self)).unwrap_or_default();
        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Ends a pin: the page is stale from now on.
#[utoipa::path(
    post, path = "/api/v1/unpin", operation_id = "unpin", tag = "operations", request_body = Named,
    responses(
        (status = 200, description = "It is not pinned any more; `done` says whether it was", body = Done),
        Problem,
    ),
)]
pub(super) async fn unpin(
    State(admin): State<Arc<Admin>>,
    Json(named): Json<Named>,
) -> Result<axum::Json<Done>, Problem> {
    let page = named.address().page(&admin)?;
    let done = admin.isr.unpin(&page).await?;
    tracing::info!(page = %page.redacted(), done, "an operator ended a pin");
    Ok(axum::Json(Done { cache_key: page.cache_key().to_owned(), done }))
}

/// What is to be stale: a page by its address, or all at a path, with a tag, of a tenant, or without one. One of them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Invalidate {
    /// The address of one page.
    #[schema(example = "http://example.com/posts/a")]
    url: Option<String>,
    /// With an address: headers that its route tells pages apart by.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// With an address: cookies that its route tells pages apart by.
    #[serde(default)]
    cookies: BTreeMap<String, String>,
    /// Everything at this path and below it.
    path: Option<String>,
    /// Everything with this tag.
    tag: Option<String>,
    /// Everything of this tenant; or, with a path or a tag, what of it is this tenant's.
    tenant: Option<String>,
    /// Everything that is no tenant's.
    #[serde(default)]
    everything: bool,
    /// Whether one page may not even be served while it is renewed.
    #[serde(default)]
    hard: bool,
}

/// What an invalidation met.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Met {
    /// It is stale now.
    Stale,
    /// The page is pinned, so it was left alone; a hard invalidation ends a pin.
    Pinned,
    /// There is no page, and renders that began before cannot publish one.
    Absent,
}

/// What came of an invalidation.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Invalidation {
    outcome: Met,
}

/// Makes a page stale, or all that has something in common, with one write.
#[utoipa::path(
    post, path = "/api/v1/invalidate", operation_id = "invalidate", tag = "operations", request_body = Invalidate,
    responses(
        (status = 200, description = "What it met", body = Invalidation),
        Problem,
    ),
)]
pub(super) async fn invalidate(
    State(admin): State<Arc<Admin>>,
    Json(wish): Json<Invalidate>,
) -> Result<axum::Json<Invalidation>, Problem> {
    let outcome = match wish.target()? {
        Target::Page(address) => {
            let page = address.page(&admin)?;
            let strength = if wish.hard { InvalidationMode::Hard } else { InvalidationMode::Soft };
            match admin.isr.invalidate(&page, strength).await? {
                Invalidated::Stale => Met::Stale,
                Invalidated::Pinned => Met::Pinned,
                Invalidated::Absent => Met::Absent,
            }
        }
        Target::Tag(tag, tenant) => {
            admin.isr.invalidate_tag(&tag, tenant.as_ref()).await?;
            Met::Stale
        }
    };
    let Invalidate { url, path, tag, tenant, hard, .. } = &wish;
    tracing::info!(url, path, tag, tenant, hard, ?outcome, "an operator invalidated");
    Ok(axum::Json(Invalidation { outcome }))
}

/// What an invalidation is about.
#[derive(Debug)]
enum Target<'a> {
    Page(Address<'a>),
    Tag(Tag, Option<Tenant>),
}

impl Invalidate {
    fn target(&self) -> Result<Target<'_>, Problem> {
        let tenant = self.tenant.as_deref().map(Tenant::new).transpose()?;
        let target = match (&self.url, &self.path, &self.tag, self.everything) {
            (Some(url), None, None, false) if tenant.is_none() => {
                return Ok(Target::Page(Address::of(url, &self.headers, &self.cookies)));
            }
            (None, Some(path), None, false) => Target::Tag(Tag::path(path)?, tenant),
            (None, None, Some(tag), false) => Target::Tag(Tag::new(tag)?, tenant),
            (None, None, None, false) if tenant.is_some() => Target::Tag(Tag::everything(), tenant),
            (None, None, None, true) if tenant.is_none() => Target::Tag(Tag::everything(), None),
            _ => {
                return Err(Problem::bad(
                    "say one of `url`, `path`, `tag`, `tenant` and `everything`; a `tenant` may also go with a `path` or a `tag`",
                ));
            }
        };
        if self.hard || !self.headers.is_empty() || !self.cookies.is_empty() {
            return Err(Problem::bad(
                "only a page by its `url` can be invalidated hard, or has headers and cookies",
            ));
        }
        Ok(target)
    }
}

/// What came of a regeneration. It is told in the same words however often it is asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Regeneration {
    /// The cache key of the page.
    cache_key: String,
    outcome: Ending,
    /// The key of the body that came of it.
    s3_key: Option<String>,
}

/// How a regeneration ended.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Ending {
    /// The page was rendered, and is served.
    Rendered,
    /// It was fresh, so nothing was done. Invalidate it first if it has to be rendered all the same.
    Fresh,
}

/// Names a request, so that it is done once however often it is sent.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that a request was done before.
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Renders a page that is not fresh, as if a visitor had come, once for an idempotency key.
#[utoipa::path(
    post, path = "/api/v1/regenerate", operation_id = "regenerate", tag = "operations", request_body = Named,
    params(("Idempotency-Key" = String, Header, description = "Names the request, so that it is done once however often it is sent")),
    responses(
        (status = 200, description = "It is rendered, or was fresh", body = Regeneration,
            headers(("Idempotency-Replayed" = String, description = "`true` if it was done before"))),
        (status = 400, description = "The key is missing, or the request is wrong", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Somebody is at it", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The key came with another request before", body = Problem, content_type = "application/problem+json"),
        Problem,
    ),
)]
pub(super) async fn regenerate(
    State(admin): State<Arc<Admin>>,
    headers: HeaderMap,
    Json(named): Json<Named>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let address = named.address();
    let page = address.page(&admin)?;
    let service = admin.gateway.service();
    let outcome =
        service.regenerate(address.request()?, Some(IdempotentRequest::new(key, named.hash()))).await?;
    let now = admin.isr.pages().store().now().seconds();
    let again = |until: i64| until.saturating_sub(now);
    let (outcome, s3_key, replayed) = match outcome {
        Outcome::Published(generation) => (Ending::Rendered, Some(generation.s3_key), false),
        Outcome::Unchanged(meta) => (Ending::Rendered, Some(meta.generation.s3_key), false),
        Outcome::Replayed { s3_key } => (Ending::Rendered, s3_key, true),
        Outcome::AlreadyFresh(meta) => (Ending::Fresh, Some(meta.generation.s3_key), false),
        Outcome::Held { until } => {
            return Err(Problem::in_progress(
                "somebody else renders this page; try again later",
                again(until),
            ));
        }
        Outcome::InProgress { until } => {
            let seconds = until.map_or(1, again);
            return Err(Problem::in_progress("this request is being worked on; ask again later", seconds));
        }
        Outcome::OtherRequest => return Err(Problem::other_request()),
        Outcome::Declined => {
            return Err(Problem::not_rendered(
                "the origin answered with what is not to be kept, such as a cookie or `no-store`; what is served stays as it is",
            ));
        }
        Outcome::Invalidated => {
            return Err(Problem::not_rendered(
                "the origin answered again with what is not to be kept, such as a cookie or `no-store`; what was served is not served any more",
            ));
        }
        // Lost or superseded.
        _ => {
            return Err(Problem::in_progress("the page was changed while it was rendered; try again", 1));
        }
    };
    tracing::info!(page = %page.redacted(), ?outcome, replayed, "an operator had a page rendered");
    let cache_key = page.cache_key().to_owned();
    let mut response = axum::Json(Regeneration { cache_key, outcome, s3_key }).into_response();
    if replayed {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn idempotency_key(headers: &HeaderMap) -> Result<&str, Problem> {
    let wrong = |what: &str| {
        Problem::bad(format!(
            "the Idempotency-Key header {what}; send one that you make up for this request and keep for its repetitions"
        ))
    };
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = keys.next().ok_or_else(|| wrong("is missing"))?;
    if keys.next().is_some() {
        return Err(wrong("comes twice"));
    }
    key.to_str()
        .ok()
        .filter(|key| !key.is_empty())
        .ok_or_else(|| wrong("is empty, or not of visible ASCII characters"))
}
