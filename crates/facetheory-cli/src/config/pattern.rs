//! Path patterns of rules: which paths they match, which patterns cover others, and the routes they become.

use std::cmp::Ordering;

use serde::{Serialize, Serializer};

/// A path pattern: `/blog/**`, `/blog/*/edit`, `/blog/{slug}`.
///
/// `*` and `{name}` match one segment that is not empty. `{*name}` and `{name+}` match the rest of the path unless it is empty.
/// `{name*}` also matches if there is no rest: `/blog/{name*}` matches `/blog`, but not `/blog/`. `**` matches the rest of
/// the path, even if there is none: `/blog/**` also matches `/blog` and `/blog/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Exactly these bytes.
    Literal(String),
    /// One segment that is not empty: `*`, or `{name}`.
    One(Option<String>),
    /// The rest of the path, unless it is empty: `{*name}` or `{name+}`.
    Rest { name: String, text: String },
    /// The rest of the path, unless it is empty, or nothing: `{name*}`.
    OptionalRest(String),
    /// The rest of the path, which may be empty or missing: `**`.
    All,
}

impl Pattern {
    /// Parses a pattern. Names and literal segments are validated later by [`facetheory::Routes::new`].
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        /// The limit of [`facetheory::Routes`].
        const MAX_SEGMENTS: usize = 64;
        let Some(path) = text.strip_prefix('/') else {
            return Err("a pattern must begin with `/`".to_owned());
        };
        let mut segments = Vec::new();
        for part in path.split('/') {
            if matches!(segments.last(), Some(Segment::All)) {
                return Err("nothing may follow `**`; for one segment, write `*`".to_owned());
            }
            if segments.len() == MAX_SEGMENTS {
                return Err(format!("a pattern has at most {MAX_SEGMENTS} segments"));
            }
            segments.push(segment(part)?);
        }
        Ok(Pattern { text: text.to_owned(), segments })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether this pattern matches every path that `other` matches.
    pub(crate) fn covers(&self, other: &Pattern) -> bool {
        covers_all(&self.segments, &other.segments)
    }

    /// Whether the pattern matches a path.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let literal = |part: &str| Segment::Literal(part.to_owned());
        path.strip_prefix('/')
            .is_some_and(|path| covers_all(&self.segments, &path.split('/').map(literal).collect::<Vec<_>>()))
    }

    /// Compares how specific two patterns are, segment by segment from the left, as the router does. A pattern that covers
    /// another is less specific.
    pub(crate) fn specificity(&self, other: &Pattern) -> Ordering {
        let ranks = |pattern: &Pattern| -> Vec<u8> {
            let ranks = pattern.segments.iter().map(|segment| match segment {
                Segment::All => 0,
                // At the root, both match every path.
                Segment::OptionalRest(_) => u8::from(pattern.segments.len() > 1),
                Segment::Rest { .. } => 2,
                Segment::One(_) => 3,
                Segment::Literal(_) => 4,
            });
            // The end of a pattern is as specific as a literal: `/blog/**` covers `/blog`.
            ranks.chain([4]).collect()
        };
        ranks(self).cmp(&ranks(other))
    }

    /// Returns the patterns of the routes that match the same paths, the most general one last.
    pub(crate) fn routes(&self) -> Vec<String> {
        let mut names: Vec<String> = self.segments.iter().filter_map(Segment::name).collect();
        let mut unused = |name: &str| {
            let numbered = (2..).map(|number| format!("{name}{number}"));
            let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
            let name = candidates.find(|name| !names.contains(name)).unwrap_or_default();
            names.push(name.clone());
            name
        };
        let (mut routes, mut route) = (Vec::new(), String::new());
        for segment in &self.segments {
            match segment {
                Segment::Literal(part) => route.push_str(&format!("/{part}")),
                Segment::One(Some(name)) => route.push_str(&format!("/{{{name}}}")),
                Segment::One(None) => route.push_str(&format!("/{{{}}}", unused("part"))),
                Segment::Rest { text, .. } => route.push_str(&format!("/{text}")),
                Segment::OptionalRest(name) => route.push_str(&format!("/{{{name}*}}")),
                Segment::All => {
                    // There is no path without a slash at the root.
                    if !route.is_empty() {
                        routes.push(route.clone());
                    }
                    routes.push(format!("{route}/"));
                    route.push_str(&format!("/{{*{}}}", unused("rest")));
                }
            }
        }
        routes.push(route);
        routes
    }
}

impl Segment {
    fn name(&self) -> Option<String> {
        match self {
            Segment::One(name) => name.clone(),
            Segment::Rest { name, .. } | Segment::OptionalRest(name) => Some(name.clone()),
            Segment::Literal(_) | Segment::All => None,
        }
    }
}

fn segment(part: &str) -> Result<Segment, String> {
    match part {
        "**" => Ok(Segment::All),
        "*" => Ok(Segment::One(None)),
        _ if part.contains('*') && !part.starts_with('{') => {
            Err(format!("`{part}`: `*` must be a whole segment, and `**` must be the last one"))
        }
        _ => Ok(match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            None => Segment::Literal(part.to_owned()),
            Some(inner) => {
                match (inner.strip_prefix('*').or(inner.strip_suffix('+')), inner.strip_suffix('*')) {
                    (Some(name), _) => Segment::Rest { name: name.to_owned(), text: part.to_owned() },
                    (None, Some(name)) => Segment::OptionalRest(name.to_owned()),
                    (None, None) => Segment::One(Some(inner.to_owned())),
                }
            }
        }),
    }
}

/// Whether `one` matches every path that `other` matches.
fn covers_all(one: &[Segment], other: &[Segment]) -> bool {
    match (one, other) {
        // The path `/` has no segments, so an optional rest at the root matches every path.
        ([Segment::OptionalRest(_)], _) => true,
        _ => covers(one, other),
    }
}

/// Whether `one` matches every path that `other` matches, from this segment on.
fn covers(one: &[Segment], other: &[Segment]) -> bool {
    match (one.split_first(), other.split_first()) {
        (Some((Segment::All, _)), _) | (None, None) | (Some((Segment::OptionalRest(_), _)), None) => true,
        (Some((Segment::Rest { .. } | Segment::OptionalRest(_), _)), Some((Segment::All, _)))
        | (Some((Segment::Rest { .. }, _)), Some((Segment::OptionalRest(_), _))) => false,
        // A last segment that is empty is an empty rest, which these do not match; `**` and `{name*}` may be empty, too.
        (
            Some((Segment::Rest { .. } | Segment::OptionalRest(_), _)),
            Some((Segment::Literal(part), rest)),
        ) => !part.is_empty() || !matches!(rest, [] | [Segment::All | Segment::OptionalRest(_)]),
        (Some((Segment::Rest { .. } | Segment::OptionalRest(_), _)), Some(_)) => true,
        (Some((Segment::One(_), one)), Some((Segment::One(_), other))) => covers(one, other),
        (Some((Segment::One(_), one)), Some((Segment::Literal(part), other))) => {
            !part.is_empty() && covers(one, other)
        }
        (Some((Segment::Literal(own), one)), Some((Segment::Literal(part), other))) => {
            own == part && covers(one, other)
        }
        _ => false,
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use facetheory::{Route, Routes};
    use proptest::prelude::*;
    use std::sync::LazyLock;

    /// All paths of up to six segments from four words, one of which occurs in no pattern below.
    static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut paths = vec![String::new()];
        let mut from = 0;
        for _ in 0..6 {
            let to = paths.len();
            for at in from..to {
                for word in ["a", "b", "c", ""] {
                    paths.push(format!("{}/{word}", paths[at]));
                }
            }
            from = to;
        }
        paths
    });

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).expect("a pattern")
    }

    #[test]
    fn a_pattern_matches_its_paths() {
        for (text, matching, others) in [
            ("/**", &["/", "/a/b"][..], &[][..]),
            ("/blog/**", &["/blog", "/blog/", "/blog/a/b/"], &["/blogs"]),
            ("/blog/{*rest}", &["/blog//"], &["/blog", "/blog/"]),
            ("/blog/{rest+}", &["/blog/a/b"], &["/blog"]),
            ("/blog/{rest*}", &["/blog", "/blog/a/"], &["/blog/"]),
            ("/{rest*}", &["/"], &[]),
            ("/blog/*", &["/blog/a"], &["/blog/", "/blog/a/"]),
            ("/blog/{slug}", &["/blog/a"], &[]),
            ("/*/b", &["/a/b"], &[]),
            ("/a", &[], &["/a/", "a"]),
        ] {
            for path in matching {
                assert!(pattern(text).matches(path), "{path} in {text}");
            }
            for path in others {
                assert!(!pattern(text).matches(path), "{path} in {text}");
            }
        }
    }

    #[test]
    fn a_pattern_covers_the_patterns_whose_paths_it_matches() {
        for (one, covered, others) in [
            ("/**", &["/blog/**"][..], &[][..]),
            ("/blog/**", &["/blog", "/blog/{*rest}"], &[]),
            ("/blog/{*rest}", &["/blog/*", "/blog//*"], &["/blog/**", "/blog//**"]),
            ("/blog/*", &["/blog/{slug}"], &[]),
            ("/{a}", &["/*"], &[]),
            ("/*/b", &[], &["/a/*"]),
            ("/a/*", &[], &["/*/b"]),
            ("/*", &[], &["/**"]),
        ] {
            let covers = |other: &&str| pattern(one).covers(&pattern(other));
            assert!(covered.iter().all(covers), "{one} covers {covered:?}");
            assert!(!others.iter().any(covers), "{one} covers none of {others:?}");
        }
    }

    #[test]
    fn a_pattern_becomes_routes() {
        for (text, expected) in [
            ("/**", &["/", "/{*rest}"][..]),
            ("/blog/**", &["/blog", "/blog/", "/blog/{*rest}"]),
            ("/*/x/*", &["/{part}/x/{part2}"]),
            ("/{part}/*/**", &["/{part}/{part2}", "/{part}/{part2}/", "/{part}/{part2}/{*rest}"]),
            ("/{rest}/**", &["/{rest}", "/{rest}/", "/{rest}/{*rest2}"]),
            ("/a/{*all}", &["/a/{*all}"]),
            ("/a/{all+}", &["/a/{all+}"]),
            ("/a/{all*}", &["/a/{all*}"]),
        ] {
            assert_eq!(pattern(text).routes(), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_an_error() {
        assert_eq!(Pattern::parse("blog"), Err("a pattern must begin with `/`".to_owned()));
        for text in ["/**/a", "/a*", "/*.html", "/***", "/**a"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_covers_another_if_and_only_if_it_matches_all_its_paths(
            one in "(/(a|b|\\*|\\{x\\}|)){0,3}(/\\*\\*|/\\{\\*r\\}|/\\{r\\*\\}|/a)",
            other in "(/(a|b|\\*|\\{x\\}|)){0,3}(/\\*\\*|/\\{\\*r\\}|/\\{r\\*\\}|/a|/)",
        ) {
            let (one, other) = (pattern(&one), pattern(&other));
            let all = PATHS.iter().all(|path| !other.matches(path) || one.matches(path));
            prop_assert_eq!(one.covers(&other), all, "{:?} {:?}", one, other);
            if all {
                prop_assert_ne!(one.specificity(&other), Ordering::Greater);
            }
        }

        #[test]
        fn the_routes_of_a_pattern_match_the_same_paths(text in "(/(a|b|\\*|)){0,4}(/\\*\\*|/\\{\\*r\\}|/\\{r\\*\\}|/)", path in "(/(a|b|c|)){1,6}") {
            let routes = Routes::new(pattern(&text).routes().into_iter().map(Route::bypass)).expect("routes");
            prop_assert_eq!(routes.find(&path).is_some(), pattern(&text).matches(&path));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,30}|[/*{}a]{0,20}", path in "\\PC{0,20}|[/a]{0,20}") {
            if let Ok(pattern) = Pattern::parse(&text) {
                let _ = (pattern.routes(), pattern.matches(&path), pattern.covers(&pattern));
            }
        }
    }
}
