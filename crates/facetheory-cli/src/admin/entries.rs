//! Which pages there are, and how one of them is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use facetheory::protocol::{Freshness, Generation, Meta};
use facetheory::{Listing, PageKey, Tag, Tenant};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Admin;
use super::extract::{Query, number};
use super::page_selector::Address;
use super::problem::Problem;

/// So many pages are listed, unless the request says how many.
const USUAL: usize = 50;
/// More are not listed at once.
const MOST: usize = 1000;

/// Which pages are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only those of this tenant.
    tenant: Option<String>,
    /// Only those at this path and below it, as far as their rows tell.
    path: Option<String>,
    /// Only those with this tag.
    tag: Option<String>,
    /// At most so many; 50 by default, and 1,000 at most.
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<usize>)]
    limit: Option<usize>,
    /// The `next` of an earlier answer.
    cursor: Option<String>,
}

/// Some of the pages that there are.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Entries {
    /// The pages, in no particular order; there may be none although there are more.
    entries: Vec<Summary>,
    /// Where to go on; absent when there are no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A page, as its row tells of it.
#[derive(Debug, Serialize, ToSchema)]
struct Summary {
    /// The partition that its rows are in.
    pk: String,
    /// Whose page it is.
    tenant: Option<String>,
    /// Its cache key, where its writer told it.
    cache_key: Option<String>,
    /// Its path, where its writer told it.
    path: Option<String>,
    /// What is served; null if the row cannot be read.
    meta: Option<Row>,
}

/// What a row tells of what is served.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Row {
    #[serde(flatten)]
    generation: Told,
    /// The version that is served, where versions are kept.
    current_version: Option<String>,
    /// How often the pointer has moved, where versions are kept.
    version: Option<u64>,
    /// Since when it is invalid, in epoch seconds.
    stale_since: Option<i64>,
    /// Whether it may not be served any more.
    must_not_serve: bool,
    /// Until when it is kept as it is, in epoch seconds.
    pinned_until: Option<i64>,
}

/// What is told of a render.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Told {
    /// The key of the body.
    s3_key: String,
    /// When the render started, in epoch seconds.
    generated_at: i64,
    /// For how many seconds it is fresh.
    revalidate_seconds: i64,
    /// The entity tag.
    etag: Option<String>,
    /// The HTTP status.
    status: Option<u16>,
    /// The content type.
    content_type: Option<String>,
    /// The digest of the body.
    digest: Option<String>,
    /// The tags that it was given.
    tags: Vec<String>,
    /// The deployment that rendered it.
    deployment: Option<String>,
}

impl From<Generation> for Told {
    fn from(generation: Generation) -> Self {
        let content = generation.content;
        Told {
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

impl From<Meta> for Row {
    fn from(meta: Meta) -> Self {
        Row {
            generation: meta.generation.into(),
            current_version: meta.current_sk,
            version: meta.version,
            stale_since: meta.stale_since,
            must_not_serve: meta.must_not_serve,
            pinned_until: meta.pinned_until,
        }
    }
}

/// Some of the pages that there are: a bounded part of the table is looked at.
#[utoipa::path(
    get, path = "/api/v1/entries", operation_id = "entries", tag = "pages", params(Which),
    responses(
        (status = 200, description = "Some pages, and where to go on", body = Entries),
        Problem,
    ),
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Query(which): Query<Which>,
) -> Result<Json<Entries>, Problem> {
    let mut listing = Listing::new(which.limit.unwrap_or(USUAL).min(MOST));
    if let Some(tenant) = which.tenant {
        listing = listing.of(Tenant::new(tenant)?);
    }
    if let Some(path) = which.path {
        // The same rules as where a path is invalidated.
        Tag::path(&path)?;
        listing = listing.below(path);
    }
    if let Some(tag) = which.tag {
        listing = listing.tagged(Tag::new(tag)?.as_str());
    }
    if let Some(cursor) = which.cursor {
        let wrong = |_| Problem::bad("the cursor is none that an earlier answer had as `next`");
        listing = listing.after(cursor.parse().map_err(wrong)?);
    }
    let listed = admin.isr.pages().store().list(&listing).await?;
    let summary = |entry: facetheory::Entry| Summary {
        pk: entry.pk,
        tenant: entry.tenant,
        cache_key: entry.cache_key,
        path: entry.path,
        meta: entry.meta.map(Row::from),
    };
    let entries = listed.entries.into_iter().map(summary).collect();
    Ok(Json(Entries { entries, next: listed.next.map(|next| next.to_string()) }))
}

/// Which page is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Named {
    /// The address that visitors have it under.
    #[param(example = "http://example.com/posts/a")]
    url: String,
    /// Headers that its route tells pages apart by, as in `accept-language: de`.
    #[serde(default)]
    header: Vec<String>,
    /// Cookies that its route tells pages apart by, as in `theme=dark`.
    #[serde(default)]
    cookie: Vec<String>,
}

/// How a page is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Condition {
    /// The partition that its rows are in.
    pk: String,
    /// Its cache key.
    cache_key: String,
    /// Whose page it is.
    tenant: Option<String>,
    /// The route that it is of.
    route: Option<String>,
    /// What it is good for now, by its times and its tags.
    state: Good,
    /// Whether it is kept as it is for now.
    pinned: bool,
    /// The tags by which it can be invalidated: those that it has by itself, and those that it was given.
    tags: Vec<String>,
    /// What is served; null if there is nothing.
    meta: Option<Row>,
    /// Who renews it; null if nobody does.
    lease: Option<Lease>,
}

/// What a page is good for.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Good {
    /// It is served.
    Fresh,
    /// It may be served while it is renewed.
    Stale,
    /// It may not be served any more.
    Forbidden,
    /// There is none.
    Absent,
}

/// Who renews a page.
#[derive(Debug, Serialize, ToSchema)]
struct Lease {
    /// Whether it is held now.
    held: bool,
    /// Until when, in epoch seconds.
    expires_at: i64,
    /// By whom, where that is told.
    owner: Option<String>,
}

/// How a page is: what is served, what that is good for, and who renews it.
#[utoipa::path(
    get, path = "/api/v1/entry", operation_id = "entry", tag = "pages", params(Named),
    responses(
        (status = 200, description = "How it is", body = Condition),
        Problem,
    ),
)]
pub(super) async fn show(
    State(admin): State<Arc<Admin>>,
    Query(named): Query<Named>,
) -> Result<Json<Condition>, Problem> {
    let page = Address::in_query(&named.url, &named.header, &named.cookie)?.page(&admin)?;
    let store = admin.isr.pages().store();
    let view = store.lookup(&page).await?;
    let now = store.now();
    let state = match &view.meta {
        None => Good::Absent,
        Some(meta) => match store.freshness(&page, meta).await? {
            Freshness::Fresh => Good::Fresh,
            Freshness::Stale => Good::Stale,
            Freshness::MustNotServe => Good::Forbidden,
        },
    };
    let given = view.meta.iter().flat_map(|meta| meta.generation.content.tags.iter().cloned());
    Ok(Json(Condition {
        pk: page.pk().to_owned(),
        cache_key: page.cache_key().to_owned(),
        tenant: page.tenant().map(|tenant| tenant.as_str().to_owned()),
        route: page.route().map(str::to_owned),
        state,
        pinned: view.meta.as_ref().is_some_and(|meta| meta.is_pinned(now)),
        tags: own_tags(&page).chain(given).collect(),
        meta: view.meta.map(Row::from),
        lease: view.lock.map(|lock| Lease {
            held: lock.is_held(now),
            expires_at: lock.lease_expires_at,
            owner: lock.owner,
        }),
    }))
}

fn own_tags(page: &PageKey) -> impl Iterator<Item = String> {
    page.tags().iter().map(|tag| tag.as_str().to_owned())
}
