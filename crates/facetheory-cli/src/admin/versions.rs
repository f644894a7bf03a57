//! The versions of a page: list them, read one, compare two.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use facetheory::{Body, BodyDiff, PageKey};
use http::HeaderMap;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::entries::{DEFAULT_LIMIT, GenerationInfo, MAX_LIMIT};
use super::extract::{Page, PageParams, number};
use super::problem::Problem;
use super::{Admin, AdminState, ApiResult};

/// How many versions are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryParams {
    /// The most versions to return; the default is 50, the maximum 1,000.
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<usize>)]
    limit: Option<usize>,
}

/// The retained versions of a page.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct History {
    /// The cache key.
    cache_key: String,
    /// The versions, newest first.
    versions: Vec<Version>,
}

/// A version.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    /// The name of the version.
    version: String,
    /// Whether it is the one that is served.
    current: bool,
    #[serde(flatten)]
    generation: GenerationInfo,
    /// When it may be deleted, in epoch seconds; null while it is served.
    ttl: Option<i64>,
}

/// List the retained versions of a page, newest first
#[utoipa::path(
    get, path = "/api/v1/history", operation_id = "history", tag = "pages", params(PageParams, HistoryParams),
    responses((status = 200, description = "The versions", body = History), Problem),
)]
pub(super) async fn history(
    admin: AdminState,
    Page(page, params): Page<HistoryParams>,
) -> ApiResult<History> {
    let isr = &admin.isr;
    let current = isr.lookup(&page).await?.meta.and_then(|meta| meta.current_sk);
    let versions = isr.versions(&page, params.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT)).await?;
    let version = |(sk, version): (String, facetheory::protocol::Version)| Version {
        current: current.as_deref() == Some(sk.as_str()),
        version: sk,
        generation: version.generation.into(),
        ttl: version.ttl,
    };
    let versions = versions.into_iter().map(version).collect();
    Ok(Json(History { cache_key: page.cache_key().to_owned(), versions }))
}

/// Which body is returned.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BodyParams {
    /// The name of a version from `history`; the default is the current version.
    version: Option<String>,
}

/// Download the body of a page, or of one of its versions
#[utoipa::path(
    get, path = "/api/v1/body", operation_id = "body", tag = "pages", params(PageParams, BodyParams),
    responses(
        (status = 200, description = "The body, with its own content type", body = String, content_type = "*/*"),
        Problem,
    ),
)]
pub(super) async fn body(
    admin: AdminState,
    Page(page, params): Page<BodyParams>,
) -> Result<Response, Problem> {
    let (content_type, body) = read(&admin, &page, params.version.as_deref()).await?;
    let mut headers = HeaderMap::new();
    let content_type = content_type.and_then(|content_type| HeaderValue::try_from(content_type).ok());
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(unknown));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok((headers, body.bytes).into_response())
}

async fn read(
    admin: &Admin,
    page: &PageKey,
    version: Option<&str>,
) -> Result<(Option<String>, Body), Problem> {
    let isr = &admin.isr;
    let Some(sk) = version else {
        let not_servable = || Problem::not_found("the page cannot be served; see /api/v1/entry");
        let (meta, body) = isr.read(page).await?.ok_or_else(not_servable)?;
        return Ok((meta.generation.content.content_type, body));
    };
    let (version, body) = isr.read_version(page, sk).await?.ok_or_else(no_version)?;
    let body = body.ok_or_else(|| Problem::not_found("the body is missing or damaged"))?;
    let content_type = version.generation.content.content_type.or_else(|| body.content_type.clone());
    Ok((content_type, body))
}

pub(super) fn no_version() -> Problem {
    Problem::not_found("there is no such version of this page; see /api/v1/history")
}

/// Which versions are compared.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffParams {
    /// The old version.
    from: String,
    /// The new version.
    to: String,
}

/// The difference between two versions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Difference {
    /// Whether only the times differ.
    same: bool,
    /// The fields that differ.
    fields: Vec<Field>,
    /// The difference of the bodies as a unified diff; null if they are not text.
    body: Option<String>,
    /// The whole difference as text.
    text: String,
}

/// A field that differs.
#[derive(Debug, Serialize, ToSchema)]
struct Field {
    /// The name of the field.
    name: String,
    /// The value in the old version.
    from: Option<String>,
    /// The value in the new version.
    to: Option<String>,
}

/// Compare two versions of a page
#[utoipa::path(
    get, path = "/api/v1/diff", operation_id = "diff", tag = "pages", params(PageParams, DiffParams),
    responses((status = 200, description = "The difference", body = Difference), Problem),
)]
pub(super) async fn diff(admin: AdminState, Page(page, params): Page<DiffParams>) -> ApiResult<Difference> {
    let diff = admin.isr.diff(&page, &params.from, &params.to).await?.ok_or_else(no_version)?;
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
