//! The query parameters that distinguish pages.

use std::borrow::Cow;

use crate::http::router::key_form::KeyForm;
use crate::protocol::javascript;

/// Which query parameters distinguish pages and reach the origin.
///
/// ```
/// use facetheory::Query;
///
/// assert_eq!(Query::only(["page"]), Query::Only(vec!["page".to_owned()]));
/// assert_eq!(Query::default(), Query::All);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Query {
    /// The whole query, byte for byte, in its order.
    #[default]
    All,
    /// No parameter.
    None,
    /// Parameters with these names, sorted by name. Names and values are compared byte for byte, without decoding.
    Only(Vec<String>),
}

impl Query {
    /// Selects the parameters with these names.
    ///
    /// ```
    /// assert_eq!(facetheory::Query::only(["a"]), facetheory::Query::Only(vec!["a".to_owned()]));
    /// ```
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Query::Only(names.into_iter().map(Into::into).collect())
    }

    /// Returns the part of a query that distinguishes pages and reaches the origin, in the form of the key, or `None` if
    /// nothing is left. It is an error if that part has more bytes than these, and is then not sorted.
    pub(super) fn keyed_part<'q>(
        &self,
        query: Option<&'q str>,
        form: &KeyForm,
        max_bytes: usize,
    ) -> Result<Option<Cow<'q, str>>, TooLong> {
        let Some(part) = self.listed_part(query) else { return Ok(None) };
        match form {
            KeyForm::Default if part.len() > max_bytes => Err(TooLong),
            KeyForm::Default => Ok(Some(part)),
            KeyForm::FacetheoryTs { .. } => Ok(canonical(&part, max_bytes)?.map(Cow::Owned)),
        }
    }

    /// Whether a query has a parameter that distinguishes pages and has one of these names in keys of TypeScript services.
    pub(super) fn has_any(&self, query: Option<&str>, names: &[&str]) -> bool {
        let part = self.listed_part(query);
        part.is_some_and(|part| pairs(&part).any(|(name, _)| names.contains(&name.as_ref())))
    }

    fn listed_part<'q>(&self, query: Option<&'q str>) -> Option<Cow<'q, str>> {
        let query = query.filter(|query| !query.is_empty())?;
        match self {
            Query::All => Some(Cow::Borrowed(query)),
            Query::None => None,
            Query::Only(names) => {
                let name = |pair: &'q str| pair.split_once('=').map_or(pair, |(name, _)| name);
                let mut pairs: Vec<&str> =
                    query.split('&').filter(|pair| names.iter().any(|listed| listed == name(pair))).collect();
                pairs.sort_by_key(|pair| name(pair));
                (!pairs.is_empty()).then(|| Cow::Owned(pairs.join("&")))
            }
        }
    }
}

/// A query is longer than the cache key may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Returns a query as TypeScript services have it in their keys: parsed as by `URLSearchParams`, sorted, and encoded again.
///
/// Sorting by the rules of a language is slow, so a query that is too long for a key is not sorted.
fn canonical(query: &str, max_bytes: usize) -> Result<Option<String>, TooLong> {
    let (mut sorted, mut bytes) = (Vec::new(), 0);
    for (name, value) in pairs(query) {
        let separators = if sorted.is_empty() { 1 } else { 2 };
        bytes += javascript::encoded_bytes(&name) + javascript::encoded_bytes(&value) + separators;
        if bytes > max_bytes {
            return Err(TooLong);
        }
        sorted.push((name, value));
    }
    let sorted = javascript::sort_by_name(sorted);
    let mut text = String::with_capacity(bytes);
    javascript::push_pairs(&mut text, sorted.iter().map(|(name, value)| (name.as_ref(), value.as_ref())));
    Ok((!text.is_empty()).then_some(text))
}

/// The parameters of a query as TypeScript services parse it.
fn pairs(query: &str) -> form_urlencoded::Parse<'_> {
    // `URLSearchParams` skips a question mark, and so does the service before it.
    let query = query.strip_prefix('?').unwrap_or(query);
    let query = query.strip_prefix('?').unwrap_or(query);
    form_urlencoded::parse(query.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::uri::Scheme;

    #[test]
    fn a_query_has_at_most_the_bytes_of_a_key_in_the_form_of_the_key() {
        let typescript = KeyForm::FacetheoryTs { scheme: Scheme::HTTPS };
        for (form, query, expected) in [
            (&KeyForm::Default, "b=%20&a=x", "b=%20&a=x"),
            (&typescript, "b=+&&&&a=%78", "a=x&b=%20"),
            (&typescript, "q", "q="),
        ] {
            let part = |max_bytes| Query::All.keyed_part(Some(query), form, max_bytes);
            assert_eq!(part(expected.len()), Ok(Some(Cow::Borrowed(expected))), "{query}");
            assert_eq!(part(expected.len() - 1), Err(TooLong), "{query}");
        }
    }
}
