//! Patterns of rules: which paths they have, which of them cover others, and what they are called in routes.

use std::cmp::Ordering;
use std::fmt;

/// A pattern of paths: `/blog/**`, `/blog/*/edit`, `/blog/{slug}`.
///
/// `*` and `{name}` are one segment that is not empty. `{*name}` is everything that is left, unless it is empty. `**`
/// is everything that is left, also nothing: `/blog/**` has `/blog` and `/blog/`, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// These bytes.
    Exactly(String),
    /// One segment that is not empty, perhaps with a name.
    One(Option<String>),
    /// Everything from here on, unless it is empty, by its name.
    Rest(String),
    /// Everything from here on, also nothing.
    All,
}

impl Pattern {
    /// The pattern of this text, or what is wrong with it. What is wrong with its segments is told by
    /// [`facetheory::Routes::new`], which knows paths.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        /// As many as routes may have.
        const MAX_SEGMENTS: usize = 64;
        let Some(path) = text.strip_prefix('/') else {
            return Err("a pattern begins with `/`".to_owned());
        };
        let mut segments = Vec::new();
        for part in path.split('/') {
            if matches!(segments.last(), Some(Segment::All)) {
                return Err("nothing may follow `**`; for one segment, write `*`".to_owned());
            }
            if segments.len() == MAX_SEGMENTS {
                return Err(format!("it has more than {MAX_SEGMENTS} segments"));
            }
            segments.push(segment(part)?);
        }
        Ok(Pattern { text: text.to_owned(), segments })
    }

    /// As it is written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has all paths of another.
    pub(crate) fn covers(&self, other: &Pattern) -> bool {
        covers(&self.segments, &other.segments)
    }

    /// Whether it has this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let exactly = |part: &str| Segment::Exactly(part.to_owned());
        path.strip_prefix('/')
            .is_some_and(|path| covers(&self.segments, &path.split('/').map(exactly).collect::<Vec<_>>()))
    }

    /// Which of two is more specific: segment by segment from the left, as routes are found. A pattern that covers
    /// another comes before it.
    pub(crate) fn specificity(&self, other: &Pattern) -> Ordering {
        let ranks = |pattern: &Pattern| -> Vec<u8> {
            let ranks = pattern.segments.iter().map(|segment| match segment {
                Segment::All => 0,
                Segment::Rest(_) => 1,
                Segment::One(_) => 2,
                Segment::Exactly(_) => 3,
            });
            // An end is as specific as bytes: `/blog` is a part of `/blog/**`.
            ranks.chain([3]).collect()
        };
        ranks(self).cmp(&ranks(other))
    }

    /// The patterns of the routes that have its paths, the one that it is best known by last.
    pub(crate) fn routes(&self) -> Vec<String> {
        let mut names: Vec<String> = self.segments.iter().filter_map(Segment::name).collect();
        let mut free = |wish: &str| {
            let candidates =
                (1..).map(|number| if number == 1 { wish.to_owned() } else { format!("{wish}{number}") });
            let name = candidates.into_iter().find(|name| !names.contains(name)).unwrap_or_default();
            names.push(name.clone());
            name
        };
        let (mut routes, mut route) = (Vec::new(), String::new());
        for segment in &self.segments {
            match segment {
                Segment::Exactly(part) => route.push_str(&format!("/{part}")),
                Segment::One(Some(name)) => route.push_str(&format!("/{{{name}}}")),
                Segment::One(None) => route.push_str(&format!("/{{{}}}", free("part"))),
                Segment::Rest(name) => route.push_str(&format!("/{{*{name}}}")),
                Segment::All => {
                    // At the root there is no path without the slash.
                    if !route.is_empty() {
                        routes.push(route.clone());
                    }
                    routes.push(format!("{route}/"));
                    route.push_str(&format!("/{{*{}}}", free("rest")));
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
            Segment::Rest(name) => Some(name.clone()),
            Segment::Exactly(_) | Segment::All => None,
        }
    }
}

fn segment(part: &str) -> Result<Segment, String> {
    match part {
        "**" => Ok(Segment::All),
        "*" => Ok(Segment::One(None)),
        _ if part.contains('*') && !part.starts_with('{') => {
            Err(format!("`{part}`: a `*` is a whole segment, and `**` stands at the end"))
        }
        _ => Ok(match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            None => Segment::Exactly(part.to_owned()),
            Some(name) => match name.strip_prefix('*') {
                Some(name) => Segment::Rest(name.to_owned()),
                None => Segment::One(Some(name.to_owned())),
            },
        }),
    }
}

/// Whether one has all paths of the other, from a segment on.
fn covers(one: &[Segment], other: &[Segment]) -> bool {
    match (one.split_first(), other.split_first()) {
        (Some((Segment::All, _)), _) | (None, None) => true,
        (Some((Segment::Rest(_), _)), Some((Segment::All, _))) => false,
        // An empty segment at the end is an empty rest, and `**` may be nothing.
        (Some((Segment::Rest(_), _)), Some((Segment::Exactly(part), rest))) => {
            !part.is_empty() || !matches!(rest, [] | [Segment::All])
        }
        (Some((Segment::Rest(_), _)), Some(_)) => true,
        (Some((Segment::One(_), one)), Some((Segment::One(_), other))) => covers(one, other),
        (Some((Segment::One(_), one)), Some((Segment::Exactly(part), other))) => {
            !part.is_empty() && covers(one, other)
        }
        (Some((Segment::Exactly(own), one)), Some((Segment::Exactly(part), other))) => {
            own == part && covers(one, other)
        }
        _ => false,
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use facetheory::{Route, Routes};
    use proptest::prelude::*;
    use std::sync::LazyLock;

    /// All short paths of a few words, one of which is in no pattern below.
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
    fn a_pattern_has_its_paths() {
        for (text, path, expected) in [
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/blog/**", "/blog", true),
            ("/blog/**", "/blog/", true),
            ("/blog/**", "/blog/a/b/", true),
            ("/blog/**", "/blogs", false),
            ("/blog/{*rest}", "/blog", false),
            ("/blog/{*rest}", "/blog/", false),
            ("/blog/{*rest}", "/blog//", true),
            ("/blog/*", "/blog/a", true),
            ("/blog/*", "/blog/", false),
            ("/blog/*", "/blog/a/", false),
            ("/blog/{slug}", "/blog/a", true),
            ("/*/b", "/a/b", true),
            ("/a", "/a/", false),
            ("/a", "a", false),
        ] {
            assert_eq!(pattern(text).has(path), expected, "{path} in {text}");
        }
    }

    #[test]
    fn a_pattern_covers_those_of_which_it_has_all_paths() {
        for (one, other, expected) in [
            ("/**", "/blog/**", true),
            ("/blog/**", "/blog", true),
            ("/blog/**", "/blog/{*rest}", true),
            ("/blog/{*rest}", "/blog/**", false),
            ("/blog/{*rest}", "/blog/*", true),
            ("/blog/{*rest}", "/blog//*", true),
            ("/blog/{*rest}", "/blog//**", false),
            ("/blog/*", "/blog/{slug}", true),
            ("/{a}", "/*", true),
            ("/*/b", "/a/*", false),
            ("/a/*", "/*/b", false),
            ("/*", "/**", false),
        ] {
            assert_eq!(pattern(one).covers(&pattern(other)), expected, "{one} covers {other}");
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
        ] {
            assert_eq!(pattern(text).routes(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        assert_eq!(Pattern::parse("blog"), Err("a pattern begins with `/`".to_owned()));
        for text in ["/**/a", "/a*", "/*.html", "/***", "/**a"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn covering_is_having_all_paths(
            one in "(/(a|b|\\*|\\{x\\}|)){1,3}(/\\*\\*|/\\{\\*r\\})?",
            other in "(/(a|b|\\*|\\{x\\}|)){1,3}(/\\*\\*|/\\{\\*r\\})?",
        ) {
            let (one, other) = (pattern(&one), pattern(&other));
            let all = PATHS.iter().all(|path| !other.has(path) || one.has(path));
            prop_assert_eq!(one.covers(&other), all, "{} {}", one, other);
            if all {
                prop_assert_ne!(one.specificity(&other), Ordering::Greater);
            }
        }

        #[test]
        fn its_routes_have_its_paths(text in "(/(a|b|\\*|)){1,4}(/\\*\\*|/\\{\\*r\\})?", path in "(/(a|b|c|)){1,6}") {
            let routes = Routes::new(pattern(&text).routes().into_iter().map(Route::bypass)).expect("routes");
            prop_assert_eq!(routes.find(&path).is_some(), pattern(&text).has(&path));
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,30}|[/*{}a]{0,20}", path in "\\PC{0,20}|[/a]{0,20}") {
            if let Ok(pattern) = Pattern::parse(&text) {
                let _ = (pattern.routes(), pattern.has(&path), pattern.covers(&pattern));
            }
        }
    }
}
