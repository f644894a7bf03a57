//! How a field's name becomes its attribute's.

/// A way to write names of several words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Camel,
    Pascal,
    Snake,
    ScreamingSnake,
    Kebab,
}

impl Case {
    /// Every case by the name that it has in `rename_all`, which is also a sample of it.
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

    /// A field's name, whose words are parted by `_`, in this case.
    pub(crate) fn apply(self, field: &str) -> String {
        let words: Vec<String> =
            field.split('_').filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        match self {
            Case::Snake => words.join("_"),
            Case::ScreamingSnake => words.join("_").to_uppercase(),
            Case::Kebab => words.join("-"),
            Case::Pascal => words.iter().map(|word| capitalised(word)).collect(),
            Case::Camel => words
                .iter()
                .enumerate()
                .map(|(index, word)| if index == 0 { word.clone() } else { capitalised(word) })
                .collect(),
        }
    }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The known word that was most likely meant, if any is close.
pub(crate) fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    /// More slips than this, and it is another word.
    const MOST_SLIPS: usize = 3;
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= MOST_SLIPS && *slips < candidate.len())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, dropped or changed to come from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
