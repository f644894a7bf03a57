//! What comes with a request: a body of JSON, or a query. What nobody knows is refused, since a word that is misspelt must
//! not be taken for one that is missing.

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem::Problem;

/// The longest body that is read.
const MOST_BYTES: usize = 64 * 1024;

/// A body of JSON.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let is_json = request.headers().get(CONTENT_TYPE).is_some_and(|kind| {
            let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
            kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
        });
        // A page of somebody else can make a browser send any other type without asking first.
        if !is_json {
            return Err(Problem::not_json());
        }
        let too_long = |_| Problem::too_long(MOST_BYTES);
        let bytes = to_bytes(request.into_body(), MOST_BYTES).await.map_err(too_long)?;
        // A list would be read as the values of an object without their names.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::bad("the body is not as it should be: it must be a JSON object"));
        }
        let wrong =
            |error: serde_json::Error| Problem::bad(format!("the body is not as it should be: {error}"));
        serde_json::from_slice(&bytes).map(Json).map_err(wrong)
    }
}

/// The query of an address.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        read(parts.uri.query().unwrap_or_default()).map(Query)
    }
}

/// The parameters that may come several times.
const SEVERAL: [&str; 2] = ["header", "cookie"];

fn read<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let wrong = |error: String| Problem::bad(format!("the query is not as it should be: {error}"));
    let pairs: Vec<(String, String)> =
        serde_urlencoded::from_str(query).map_err(|error| wrong(error.to_string()))?;
    let mut values = Map::new();
    for (name, value) in pairs {
        if SEVERAL.contains(&name.as_str()) {
            let known = values.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            known.as_array_mut().into_iter().for_each(|known| known.push(value.clone().into()));
        } else if values.insert(name.clone(), value.into()).is_some() {
            return Err(wrong(format!("`{name}` comes twice")));
        }
    }
    T::deserialize(Value::Object(values)).map_err(|error| wrong(error.to_string()))
}

/// A number in a query, where everything is text.
pub(super) fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong = |_| serde::de::Error::custom(format!("`{text}` is no number"));
    text.parse().map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        url: String,
        #[serde(default)]
        header: Vec<String>,
        #[serde(default, deserialize_with = "number")]
        limit: Option<usize>,
    }

    #[test]
    fn a_query_is_read_with_numbers_and_with_what_comes_several_times() {
        let asked: Asked =
            read("url=http%3A%2F%2Fa%2F%3Fb%3Dc&header=x:1&header=y:2&limit=7").expect("a query");
        assert_eq!((asked.url.as_str(), asked.limit), ("http://a/?b=c", Some(7)));
        assert_eq!(asked.header, ["x:1", "y:2"]);
    }

    #[test]
    fn what_nobody_knows_or_comes_twice_is_refused() {
        for query in ["", "url=a&urls=b", "url=a&url=b", "url=a&limit=x", "url=a&limit=-1"] {
            read::<Asked>(query).expect_err(query);
        }
    }
}
