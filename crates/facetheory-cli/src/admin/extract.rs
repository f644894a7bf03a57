//! Extractors for JSON bodies and queries. Unknown fields are rejected: a misspelt field must not pass for a missing one.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use facetheory::PageKey;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::IntoParams;

use super::Admin;
use super::page_selector::PageSelector;
use super::problem::{NOT_JSON, Problem, TOO_LONG};

/// The largest request body.
const MAX_BYTES: usize = 64 * 1024;

/// A JSON body.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let is_json = request.headers().get(CONTENT_TYPE).is_some_and(|kind| {
            let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
            kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
        });
        // Another site's page can make a browser send other content types without a preflight request.
        if !is_json {
            return Err(Problem::new(&NOT_JSON, "send JSON, with `Content-Type: application/json`"));
        }
        let bytes = to_bytes(request.into_body(), MAX_BYTES).await.map_err(|_| {
            Problem::new(&TOO_LONG, format!("the body is larger than {MAX_BYTES} bytes, or incomplete"))
        })?;
        // serde would read an array as the fields of an object.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::bad_request("invalid body: it must be a JSON object"));
        }
        let invalid = |error: serde_json::Error| Problem::bad_request(format!("invalid body: {error}"));
        serde_json::from_slice(&bytes).map(Json).map_err(invalid)
    }
}

/// The query of a URL.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        deserialize(parse(parts.uri.query().unwrap_or_default())?).map(Query)
    }
}

/// The page that a query selects with [`PageParams`], and the further parameters of the query.
#[derive(Debug)]
pub(super) struct Page<T>(pub(super) PageKey, pub(super) T);

/// Query parameters that select a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageParams {
    /// The URL under which clients request the page.
    #[param(example = "http://example.com/posts/a")]
    url: String,
    /// Request headers that are part of the cache key, such as `accept-language: de`.
    #[serde(default)]
    header: Vec<String>,
    /// Request cookies that are part of the cache key, such as `theme=dark`.
    #[serde(default)]
    cookie: Vec<String>,
}

/// No parameters besides [`PageParams`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParams {}

impl<T: DeserializeOwned> FromRequestParts<Arc<Admin>> for Page<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, Problem> {
        let (of_page, others): (Map<_, _>, Map<_, _>) = parse(parts.uri.query().unwrap_or_default())?
            .into_iter()
            .partition(|(name, _)| matches!(name.as_str(), "url" | "header" | "cookie"));
        let PageParams { url, header, cookie } = deserialize(of_page)?;
        let page = PageSelector::from_query(&url, &header, &cookie)?.resolve(admin)?;
        Ok(Page(page, deserialize(others)?))
    }
}

/// Parameters that may be repeated.
const REPEATED: [&str; 2] = ["header", "cookie"];

fn parse(query: &str) -> Result<Map<String, Value>, Problem> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).map_err(invalid)?;
    let mut values = Map::new();
    for (name, value) in pairs {
        if REPEATED.contains(&name.as_str()) {
            let list = values.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut().into_iter().for_each(|list| list.push(value.clone().into()));
        } else if values.insert(name.clone(), value.into()).is_some() {
            return Err(invalid(format!("`{name}` is repeated")));
        }
    }
    Ok(values)
}

fn deserialize<T: DeserializeOwned>(values: Map<String, Value>) -> Result<T, Problem> {
    T::deserialize(Value::Object(values)).map_err(invalid)
}

fn invalid(error: impl ToString) -> Problem {
    Problem::bad_request(format!("invalid query: {}", error.to_string()))
}

/// Deserializes a number in a query, where all values are strings.
pub(super) fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let invalid = |_| serde::de::Error::custom(format!("`{text}` is not a number"));
    text.parse().map(Some).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Params {
        url: String,
        #[serde(default)]
        header: Vec<String>,
        #[serde(default, deserialize_with = "number")]
        limit: Option<usize>,
    }

    fn read(query: &str) -> Result<Params, Problem> {
        deserialize(parse(query)?)
    }

    #[test]
    fn a_query_may_contain_numbers_and_repeated_parameters() {
        let params = read("url=http%3A%2F%2Fa%2F%3Fb%3Dc&header=x:1&header=y:2&limit=7").expect("a query");
        assert_eq!((params.url.as_str(), params.limit), ("http://a/?b=c", Some(7)));
        assert_eq!(params.header, ["x:1", "y:2"]);
    }

    #[test]
    fn unknown_and_repeated_parameters_are_rejected() {
        for query in ["", "url=a&urls=b", "url=a&url=b", "url=a&limit=x", "url=a&limit=-1"] {
            read(query).expect_err(query);
        }
    }
}
