//! The versions of a page: which there are, what one of them is, and how two of them differ.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use facetheory::{Body, BodyDiff, PageKey};
use http::HeaderMap;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Admin;
use super::entries::Told;
use super::extract::{Query, number};
use super::page_selector::Address;
use super::problem::Problem;

/// So many versions are shown, unless the request says how many.
const USUAL: usize = 50;
/// More are not shown.
const MOST: usize = 1000;

/// Whose history is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// The address that visitors have the page under.
    #[param(example = "http://example.com/posts/a")]
    url: String,
    /// Headers that its route tells pages apart by, as in `accept-language: de`.
    #[serde(default)]
    header: Vec<String>,
    /// Cookies that its route tells pages apart by, as in `theme=dark`.
    #[serde(default)]
    cookie: Vec<String>,
    /// At most so many; 50 by default, and 1,000 at most.
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<usize>)]
    limit: Option<usize>,
}

/// The versions of a page that are kept.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct History {
    /// Its cache key.
    cache_key: String,
    /// The versions, newest first.
    versions: Vec<Version>,
}

/// A version.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    /// What it is named by.
    version: String,
    /// Whether it is the one that is served.
    current: bool,
    #[serde(flatten)]
    generation: Told,
    /// When it may be collected, in epoch seconds; null while it is served.
    ttl: Option<i64>,
}

/// The versions of a page that are kept, newest first.
#[utoipa::path(
    get, path = "/api/v1/history", operation_id = "history", tag = "pages", params(Whose),
    responses(
        (status = 200, description = "The versions", body = History),
        Problem,
    ),
)]
pub(super) async fn history(
    State(admin): State<Arc<Admin>>,
    Query(whose): Query<Whose>,
) -> Result<Json<History>, Problem> {
    let page = Address::in_query(&whose.url, &whose.header, &whose.cookie)?.page(&admin)?;
    let store = admin.isr.pages().store();
    let current = store.lookup(&page).await?.meta.and_then(|meta| meta.current_sk);
    let versions = store.versions(&page, whose.limit.unwrap_or(USUAL).min(MOST)).await?;
    let version = |(sk, version): (String, facetheory::protocol::Version)| Version {
        current: current.as_deref() == Some(sk.as_str()),
        version: sk,
        generation: version.generation.into(),
        ttl: version.ttl,
    };
    let versions = versions.into_iter().map(version).collect();
    Ok(Json(History { cache_key: page.cache_key().to_owned(), versions }))
}

/// Which body is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// The address that visitors have the page under.
    #[param(example = "http://example.com/posts/a")]
    url: String,
    /// Headers that its route tells pages apart by, as in `accept-language: de`.
    #[serde(default)]
    header: Vec<String>,
    /// Cookies that its route tells pages apart by, as in `theme=dark`.
    #[serde(default)]
    cookie: Vec<String>,
    /// The version, as `history` names it; the one that is served, if none is named.
    version: Option<String>,
}

/// The body of a page, or of one of its versions. It is to be saved: nothing in it runs.
#[utoipa::path(
    get, path = "/api/v1/body", operation_id = "body", tag = "pages", params(Which),
    responses(
        (status = 200, description = "The body, with its own content type", body = String, content_type = "*/*"),
        Problem,
    ),
)]
pub(super) async fn body(
    State(admin): State<Arc<Admin>>,
    Query(which): Query<Which>,
) -> Result<Response, Problem> {
    let page = Address::in_query(&which.url, &which.header, &which.cookie)?.page(&admin)?;
    let (content_type, body) = find(&admin, &page, which.version.as_deref()).await?;
    let mut headers = HeaderMap::new();
    let content_type = content_type.and_then(|content_type| HeaderValue::try_from(content_type).ok());
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(unknown));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok((headers, body.bytes).into_response())
}

async fn find(
    admin: &Admin,
    page: &PageKey,
    version: Option<&str>,
) -> Result<(Option<String>, Body), Problem> {
    let pages = admin.isr.pages();
    let gone = || Problem::not_found("the body is not there, or it is damaged");
    let Some(sk) = version else {
        let (meta, body) = pages
            .read(page)
            .await?
            .ok_or_else(|| Problem::not_found("there is nothing that may be served; see /api/v1/entry"))?;
        return Ok((meta.generation.content.content_type, body));
    };
    let (version, body) = pages.read_version(page, sk).await?.ok_or_else(no_version)?;
    let body = body.ok_or_else(gone)?;
    let content_type = version.generation.content.content_type.or_else(|| body.content_type.clone());
    Ok((content_type, body))
}

pub(super) fn no_version() -> Problem {
    Problem::not_found("the page, or that version of it, is not kept; see /api/v1/history")
}

/// Which versions are compared.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Two {
    /// The address that visitors have the page under.
    #[param(example = "http://example.com/posts/a")]
    url: String,
    /// Headers that its route tells pages apart by, as in `accept-language: de`.
    #[serde(default)]
    header: Vec<String>,
    /// Cookies that its route tells pages apart by, as in `theme=dark`.
    #[serde(default)]
    cookie: Vec<String>,
    /// The version on the left.
    from: String,
    /// The version on the right.
    to: String,
}

/// What differs between two versions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Difference {
    /// Whether nothing differs but the times.
    same: bool,
    /// What is told of the bodies and is not the same.
    fields: Vec<Field>,
    /// What differs between the bodies, as `diff -u` tells it; null where they are not compared line by line.
    body: Option<String>,
    /// All of it, in words.
    text: String,
}

/// Something that is told of a body and differs.
#[derive(Debug, Serialize, ToSchema)]
struct Field {
    /// Its name.
    name: String,
    /// On the left.
    from: Option<String>,
    /// On the right.
    to: Option<String>,
}

/// What differs between two versions of a page.
#[utoipa::path(
    get, path = "/api/v1/diff", operation_id = "diff", tag = "pages", params(Two),
    responses(
        (status = 200, description = "What differs", body = Difference),
        Problem,
    ),
)]
pub(super) async fn diff(
    State(admin): State<Arc<Admin>>,
    Query(two): Query<Two>,
) -> Result<Json<Difference>, Problem> {
    let page = Address::in_query(&two.url, &two.header, &two.cookie)?.page(&admin)?;
    let diff = admin.isr.pages().diff(&page, &two.from, &two.to).await?.ok_or_else(no_version)?;
    let text = diff.to_string();
    let field = |field: &facetheory::FieldDiff| Field {
        name: field.name.clone(),
        from: field.from.clone(),
        to: field.to.clone(),
    };
    Ok(Json(Difference {
        same: diff.is_empty(),
        fields: diff.fields.iter().map(field).collect(),
        body: match diff.body {
            BodyDiff::Text(text) => Some(text),
            BodyDiff::Same => Some(String::new()),
            _ => None,
        },
        text,
    }))
}
