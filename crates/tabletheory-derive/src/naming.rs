//! Names of attributes, and suggestions for misspelled options.

/// A convention for names of several words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Camel,
    Pascal,
    Snake,
    ScreamingSnake,
    Kebab,
}

impl Case {
    /// Every case with its name in `rename_all`.
    pub(crate) const ALL: [(&str, Case); 5] = [
        ("camelCase", Case::Camel),
        ("PascalCase", Case::Pascal),
        ("snake_case", Case::Snake),
        ("SCREAMING_SNAKE_CASE", Case::ScreamingSnake),
        ("kebab-case", Case::Kebab),
    ];

    pub(crate) fn named(name: &str) -> Option<Case> {
        Case::ALL.iter().find(|(known, _)| *known == name).map(|(_, case)| *case)
    }

    /// Converts a field's name, whose words are separated by `_`.
    pub(crate) fn apply(self, field: &str) -> String {
        let words: Vec<String> =
            field.split('_').filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        match self {
            Case::Snake => words.join("_"),
            Case::ScreamingSnake => words.join("_").to_uppercase(),
            Case::Kebab => words.join("-"),
            Case::Pascal => words.iter().map(|word| capitalized(word)).collect(),
            Case::Camel => words
                .iter()
                .enumerate()
                .map(|(index, word)| if index == 0 { word.clone() } else { capitalized(word) })
                .collect(),
        }
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the most similar known word, if any is similar enough.
pub(crate) fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    /// Maximum edit distance of a suggestion.
    const MAX_DISTANCE: usize = 3;
    known
        .into_iter()
        .map(|candidate| (strsim::levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= MAX_DISTANCE && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
