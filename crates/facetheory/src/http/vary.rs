//! `Vary`: which headers of a request a response depends on (RFC 9110 §12.5.5).

use http::HeaderMap;
use http::header::{HeaderName, VARY};

/// Which headers of a request a response depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vary {
    /// These, each once and in order; none where it depends on no header.
    On(Vec<HeaderName>),
    /// Something that is in no header, or that cannot be read.
    Anything,
}

/// The most names that are told apart. A response that depends on more is no page for many.
const MAX_NAMES: usize = 64;

impl Vary {
    /// What all lines say together. A member that is no header name makes it `Anything`.
    pub(crate) fn of(headers: &HeaderMap) -> Vary {
        let mut names: Vec<HeaderName> = Vec::new();
        for line in headers.get_all(VARY) {
            let Ok(line) = line.to_str() else { return Vary::Anything };
            for member in line.split(',').map(str::trim).filter(|member| !member.is_empty()) {
                // `*` is a header name by its letters, but is never one here.
                let name = match HeaderName::from_bytes(member.as_bytes()) {
                    Ok(name) if member != "*" => name,
                    _ => return Vary::Anything,
                };
                if names.contains(&name) {
                    continue;
                }
                if names.len() == MAX_NAMES {
                    return Vary::Anything;
                }
                names.push(name);
            }
        }
        Vary::On(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn read(lines: &[&str]) -> Vary {
        let value = |line: &&str| HeaderValue::from_bytes(line.as_bytes()).expect("a header value");
        Vary::of(&lines.iter().map(|line| (VARY, value(line))).collect())
    }

    fn on(names: &[&'static str]) -> Vary {
        Vary::On(names.iter().map(|name| HeaderName::from_static(name)).collect())
    }

    #[test]
    fn lines_add_up_and_case_does_not_matter() {
        assert_eq!(read(&[]), on(&[]));
        assert_eq!(read(&["", " , "]), on(&[]));
        assert_eq!(read(&["Accept-Encoding"]), on(&["accept-encoding"]));
        assert_eq!(read(&["Accept , COOKIE,accept", "x-a"]), on(&["accept", "cookie", "x-a"]));
    }

    #[test]
    fn a_star_or_nonsense_anywhere_means_anything() {
        for lines in
            [&["*"][..], &["accept, *"], &["accept", " * "], &["a b"], &["acc\u{e9}pt"], &["\"accept\""]]
        {
            assert_eq!(read(lines), Vary::Anything, "{lines:?}");
        }
        let many: Vec<String> = (0..=MAX_NAMES).map(|n| format!("x-{n}")).collect();
        assert_eq!(read(&[&many.join(",")]), Vary::Anything);
        assert!(matches!(read(&[&many[1..].join(",")]), Vary::On(names) if names.len() == MAX_NAMES));
    }

    proptest! {
        #[test]
        fn how_names_are_spread_over_lines_does_not_matter(
            names in proptest::collection::vec("[a-zA-Z-]{1,6}", 0..8), split in 0usize..8,
        ) {
            let (left, right) = names.split_at(split.min(names.len()));
            prop_assert_eq!(read(&[&names.join(",")]), read(&[&left.join(" , "), &right.join(",")]));
        }

        #[test]
        fn a_star_is_never_missed(before in "\\PC{0,20}", after in "\\PC{0,20}") {
            prop_assert_eq!(read(&[&format!("{before}, * ,{after}")]), Vary::Anything);
        }
    }
}
