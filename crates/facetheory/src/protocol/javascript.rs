//! Functions of JavaScript that the cache keys of TypeScript services depend on.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::LazyLock;

use icu_collator::{Collator, CollatorBorrowed};

/// The collation of Unicode's root locale, which `localeCompare` uses for English.
static COLLATOR: LazyLock<Option<CollatorBorrowed<'static>>> =
    LazyLock::new(|| Collator::try_new(Default::default(), Default::default()).ok());

/// Compares two texts as `localeCompare` does in an English locale: letters first without regard to accents and case, then
/// by accents, then lower case before upper case. Different texts may be equal, such as two spellings of one accent.
pub(crate) fn locale_compare(one: &str, other: &str) -> Ordering {
    // Lower-case letters and digits have the order of their bytes.
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    match &*COLLATOR {
        Some(collator) if !(plain(one) && plain(other)) => collator.compare(one, other),
        _ => one.cmp(other),
    }
}

/// Sorts pairs as TypeScript services do that group them by name in an object and sort its keys with `localeCompare`. Values
/// of one name stay in order.
pub(crate) fn sort_by_name<N: AsRef<str>, V>(pairs: Vec<(N, V)>) -> Vec<(N, V)> {
    let mut first: HashMap<String, usize> = HashMap::new();
    for (place, (name, _)) in pairs.iter().enumerate() {
        first.entry(name.as_ref().to_owned()).or_insert(place);
    }
    // Names that compare as equal keep the order of an object's keys: array indexes, then the others as they were added.
    let order = |name: &str| (!is_array_index(name), first.get(name).copied());
    let mut pairs = pairs;
    pairs.sort_by(|(one, _), (other, _)| {
        let (one, other) = (one.as_ref(), other.as_ref());
        locale_compare(one, other).then_with(|| order(one).cmp(&order(other)))
    });
    pairs
}

/// Whether a name is an array index, such as `7`. An object lists such keys first.
fn is_array_index(name: &str) -> bool {
    name.parse::<u32>().is_ok_and(|index| index < u32::MAX && index.to_string() == name)
}

/// Whether `encodeURIComponent` leaves a byte as it is.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte)
}

/// How many bytes a text has that `encodeURIComponent` encodes.
pub(crate) fn encoded_bytes(text: &str) -> usize {
    text.bytes().map(|byte| if is_plain(byte) { 1 } else { 3 }).sum()
}

/// Appends a text as `encodeURIComponent` encodes it.
pub(crate) fn push_encoded(target: &mut String, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if is_plain(byte) {
            target.push(char::from(byte));
        } else {
            let [high, low] = [byte >> 4, byte & 15].map(|half| char::from(DIGITS[usize::from(half)]));
            target.extend(['%', high, low]);
        }
    }
}

/// Appends pairs like `a=1&b=2`, encoded.
pub(crate) fn push_pairs<'a>(target: &mut String, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (place, (name, value)) in pairs.into_iter().enumerate() {
        target.push_str(if place == 0 { "" } else { "&" });
        push_encoded(target, name);
        target.push('=');
        push_encoded(target, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_compare_as_equal_stay_in_the_order_of_object_keys() {
        let sorted = |names: &[&'static str]| -> Vec<&'static str> {
            sort_by_name(names.iter().map(|name| (*name, ())).collect())
                .into_iter()
                .map(|pair| pair.0)
                .collect()
        };
        assert_eq!(sorted(&["e\u{301}", "é"]), ["e\u{301}", "é"]);
        assert_eq!(sorted(&["é", "e\u{301}"]), ["é", "e\u{301}"]);
        assert_eq!(sorted(&["a\0", "a", "a\0"]), ["a\0", "a\0", "a"], "one name stays together");
        assert_eq!(sorted(&["1\0", "1"]), ["1", "1\0"], "an array index comes first");
        assert_eq!(sorted(&["01\0", "01"]), ["01\0", "01"], "01 is not an array index");
    }

    #[test]
    fn the_shortcut_for_plain_names_gives_the_order_of_the_collation() {
        let names = ["", "0", "10", "2", "a", "a1", "ab", "b", "z9"];
        let collator = COLLATOR.as_ref().expect("the data is compiled in");
        for one in names {
            for other in names {
                assert_eq!(locale_compare(one, other), collator.compare(one, other), "{one} {other}");
            }
        }
    }
}
