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
    /// nothing is left.
    pub(super) fn keyed_part<'q>(&self, query: Option<&'q str>, form: &KeyForm) -> Option<Cow<'q, str>> {
        let part = self.listed_part(query)?;
        match form {
            KeyForm::Default => Some(part),
            KeyForm::FacetheoryTs { .. } => canonical(&part).map(Cow::Owned),
        }
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

/// Returns a query as TypeScript services have it in their keys: parsed as by `URLSearchParams`, sorted, and encoded again.
fn canonical(query: &str) -> Option<String> {
    // `URLSearchParams` skips a question mark, and so does the service before it.
    let query = query.strip_prefix('?').unwrap_or(query);
    let query = query.strip_prefix('?').unwrap_or(query);
    let pairs = javascript::sort_by_name(form_urlencoded::parse(query.as_bytes()).collect());
    let mut text = String::with_capacity(query.len());
    javascript::push_pairs(&mut text, pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref())));
    (!text.is_empty()).then_some(text)
}
