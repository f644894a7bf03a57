//! Names of attributes, and suggestions for misspelled options.

use heck::{ToKebabCase, ToLowerCamelCase, ToPascalCase, ToShoutySnakeCase, ToSnakeCase};

/// A convention for names of several words, as a function that converts words in lower case, separated by `_`.
pub(crate) type Case = fn(&str) -> String;

/// Every case with its name in `rename_all`.
pub(crate) const CASES: [(&str, Case); 5] = [
    ("camelCase", |words| words.to_lower_camel_case()),
    ("PascalCase", |words| words.to_pascal_case()),
    ("snake_case", |words| words.to_snake_case()),
    ("SCREAMING_SNAKE_CASE", |words| words.to_shouty_snake_case()),
    ("kebab-case", |words| words.to_kebab_case()),
];

/// Converts the name of a field.
pub(crate) fn convert(field: &str, case: Case) -> String {
    case(&field.to_lowercase())
}

/// Returns the most similar known word, if any is similar enough.
pub(crate) fn nearest<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    /// Maximum edit distance of a suggestion.
    const MAX_DISTANCE: usize = 3;
    known
        .iter()
        .map(|candidate| (strsim::levenshtein(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= MAX_DISTANCE && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
