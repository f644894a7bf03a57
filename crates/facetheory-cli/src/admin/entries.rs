//! Lists cached pages, and shows the state of one.

use axum::Json;
use facetheory::protocol::{Freshness, Generation, Meta};
use facetheory::{Listing, Tag, Tenant};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{NoParams, Page, PageParams, Query, number};
use super::problem::Problem;
use super::{AdminState, ApiResult};

/// The default number of entries in a list.
pub(super) const DEFAULT_LIMIT: usize = 50;
/// The most entries in a list.
pub(super) const MAX_LIMIT: usize = 1000;

/// Which pages are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Only pages of this tenant.
    tenant: Option<String>,
    /// Only pages at or below this path, as far as their rows contain it.
    path: Option<String>,
    /// Only pages with this tag.
    tag: Option<String>,
    /// The most pages to return; the default is 50, the maximum 1,000.
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<usize>)]
    limit: Option<usize>,
    /// The `next` of the previous response.
    cursor: Option<String>,
}

/// A part of the list of pages.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Entries {
    /// The pages, in no particular order. The list may be empty although there are more.
    entries: Vec<Entry>,
    /// The cursor of the next part; absent if this is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A cached page.
#[derive(Debug, Serialize, ToSchema)]
struct Entry {
    /// The partition key of its rows.
    pk: String,
    /// The tenant that owns it.
    tenant: Option<String>,
    /// The cache key, if the row contains it.
    cache_key: Option<String>,
    /// The path, if the row contains it.
    path: Option<String>,
    /// The metadata; null if the row is invalid.
    meta: Option<Metadata>,
}

/// The metadata of a page.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Metadata {
    #[serde(flatten)]
    generation: GenerationInfo,
    /// The current version, if versions are retained.
    current_version: Option<String>,
    /// How often the current version has changed, if versions are retained.
    version: Option<u64>,
    /// When the page was invalidated, in epoch seconds.
    stale_since: Option<i64>,
    /// Whether the page was hard invalidated and must not be served.
    must_not_serve: bool,
    /// Until when the page is pinned after a rollback, in epoch seconds.
    pinned_until: Option<i64>,
}

/// The result of a render.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GenerationInfo {
    /// The key of the body in the body store.
    s3_key: String,
    /// When the render started, in epoch seconds.
    generated_at: i64,
    /// How long it is fresh, in seconds.
    revalidate_seconds: i64,
    /// The entity tag.
    etag: Option<String>,
    /// The HTTP status.
    status: Option<u16>,
    /// The content type.
    content_type: Option<String>,
    /// The digest of the body.
    digest: Option<String>,
    /// The tags of the response.
    tags: Vec<String>,
    /// The deployment that rendered it.
    deployment: Option<String>,
}

impl From<Generation> for GenerationInfo {
    fn from(generation: Generation) -> Self {
        let content = generation.content;
        GenerationInfo {
            s3_key: generation.s3_key,
            generated_at: generation.generated_at,
            revalidate_seconds: generation.revalidate_seconds,
            etag: generation.etag,
            status: content.status,
            content_type: content.content_type,
            digest: content.digest,
            tags: content.tags,
            deployment: content.deployment,
        }
    }
}

impl From<Meta> for Metadata {
    fn from(meta: Meta) -> Self {
        Metadata {
            generation: meta.generation.into(),
            current_version: meta.current_sk,
            version: meta.version,
            stale_since: meta.stale_since,
            must_not_serve: meta.must_not_serve,
            pinned_until: meta.pinned_until,
        }
    }
}

/// List cached pages; each response scans a bounded part of the table
#[utoipa::path(
    get, path = "/api/v1/entries", operation_id = "entries", tag = "pages", params(ListParams),
    responses((status = 200, description = "Some pages, and the cursor of the next ones", body = Entries), Problem),
)]
pub(super) async fn list(admin: AdminState, Query(params): Query<ListParams>) -> ApiResult<Entries> {
    let mut listing = Listing::new(params.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT));
    listing.tenant = params.tenant.map(Tenant::new).transpose()?;
    // Validates the path as an invalidation does.
    params.path.as_deref().map(Tag::path).transpose()?;
    listing.below = params.path;
    listing.tag = params.tag.map(Tag::new).transpose()?.map(|tag| tag.as_str().to_owned());
    let invalid = |_| Problem::bad_request("invalid cursor: use the `next` of the previous response");
    listing.after = params.cursor.map(|cursor| cursor.parse()).transpose().map_err(invalid)?;
    let listed = admin.isr.list(&listing).await?;
    let entry = |entry: facetheory::Entry| Entry {
        pk: entry.pk,
        tenant: entry.tenant,
        cache_key: entry.cache_key,
        path: entry.path,
        meta: entry.meta.map(Metadata::from),
    };
    let entries = listed.entries.into_iter().map(entry).collect();
    Ok(Json(Entries { entries, next: listed.next.map(|next| next.to_string()) }))
}

/// The state of a page.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EntryState {
    /// The partition key of its rows.
    pk: String,
    /// The cache key.
    cache_key: String,
    /// The tenant that owns it.
    tenant: Option<String>,
    /// The pattern of its route.
    route: Option<String>,
    /// Whether it is fresh, considering its age and the invalidation of its tags.
    state: PageState,
    /// Whether it is pinned after a rollback.
    pinned: bool,
    /// The tags by which it can be purged: those of its route and path, and those of the response.
    tags: Vec<String>,
    /// The metadata; null if the page is not cached.
    meta: Option<Metadata>,
    /// The lease of a regeneration; null if there is none.
    lease: Option<Lease>,
}

/// Whether a page can be served.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum PageState {
    /// It is served from the cache.
    Fresh,
    /// It may be served while it is regenerated.
    Stale,
    /// It was hard invalidated, so it is not served.
    MustNotServe,
    /// It is not cached.
    Absent,
}

/// The lease of a regeneration.
#[derive(Debug, Serialize, ToSchema)]
struct Lease {
    /// Whether it is held now.
    held: bool,
    /// When it expires, in epoch seconds.
    expires_at: i64,
    /// The holder, if it is recorded.
    owner: Option<String>,
}

/// Show the state of a page: freshness, metadata, tags and lease
#[utoipa::path(
    get, path = "/api/v1/entry", operation_id = "entry", tag = "pages", params(PageParams),
    responses((status = 200, description = "The state of the page", body = EntryState), Problem),
)]
pub(super) async fn show(admin: AdminState, Page(page, _): Page<NoParams>) -> ApiResult<EntryState> {
    let isr = &admin.isr;
    let view = isr.lookup(&page).await?;
    let now = isr.now();
    let state = match &view.meta {
        None => PageState::Absent,
        Some(meta) => match isr.freshness(&page, meta).await? {
            Freshness::Fresh => PageState::Fresh,
            Freshness::Stale => PageState::Stale,
            Freshness::MustNotServe => PageState::MustNotServe,
        },
    };
    let of_page = page.tags().iter().map(|tag| tag.as_str().to_owned());
    let of_response = view.meta.iter().flat_map(|meta| meta.generation.content.tags.iter().cloned());
    Ok(Json(EntryState {
        pk: page.pk().to_owned(),
        cache_key: page.cache_key().to_owned(),
        tenant: page.tenant().map(|tenant| tenant.as_str().to_owned()),
        route: page.route().map(str::to_owned),
        state,
        pinned: view.meta.as_ref().is_some_and(|meta| meta.is_pinned(now)),
        tags: of_page.chain(of_response).collect(),
        meta: view.meta.map(Metadata::from),
        lease: view.lock.map(|lock| Lease {
            held: lock.is_held(now),
            expires_at: lock.lease_expires_at,
            owner: lock.owner,
        }),
    }))
}
