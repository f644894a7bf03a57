//! Path patterns, and the tree that finds the most specific one.

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Exactly these bytes.
    Exactly(String),
    /// One segment, not empty.
    One,
    /// The rest of the path, not empty: `{*name}` or `{name+}`.
    Rest,
    /// The rest of the path, or nothing: `{name*}`. The slash before it is missing with it.
    OptionalRest,
}

/// A path pattern: `/news/{slug}`, `/docs/{*rest}`, `/docs/{rest+}`, `/docs/{rest*}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    segments: Vec<Segment>,
    /// The names of its parameters, in the order of the path.
    pub(crate) names: Vec<String>,
}

/// The longest pattern, in bytes: it is part of a tag and of every cache key.
pub(crate) const MAX_PATTERN_BYTES: usize = 1000;
/// The most parameters of a pattern.
pub(crate) const MAX_PARAMS: usize = 8;
/// The most segments of a pattern.
pub(crate) const MAX_SEGMENTS: usize = 64;

impl Pattern {
    /// Parses a pattern.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let Some(path) = text.strip_prefix('/') else { return Err("it must begin with `/`".into()) };
        if text.len() > MAX_PATTERN_BYTES {
            return Err(format!("it has {} bytes; at most {MAX_PATTERN_BYTES} are allowed", text.len()));
        }
        if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic() || "?#\\\"<>".contains(*c)) {
            return Err(format!("it has the character {bad:?}; write it percent-encoded, as paths have it"));
        }
        let mut pattern = Pattern { segments: Vec::new(), names: Vec::new() };
        for part in path.split('/') {
            if pattern.segments.len() == MAX_SEGMENTS {
                return Err(format!("it has more than {MAX_SEGMENTS} segments"));
            }
            match pattern.segments.last() {
                Some(Segment::Rest) => return Err("nothing may follow `{*…}` or `{…+}`".into()),
                Some(Segment::OptionalRest) => return Err("nothing may follow `{…*}`".into()),
                _ => {}
            }
            let segment = pattern.segment(part)?;
            pattern.segments.push(segment);
        }
        Ok(pattern)
    }

    fn segment(&mut self, part: &str) -> Result<Segment, String> {
        let Some(name) = part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
            if part.contains(['{', '}']) {
                return Err(format!("`{part}`: a parameter must be a whole segment, such as `{{slug}}`"));
            }
            return match super::path::path_error(&format!("/{part}")) {
                Some(error) => Err(format!("`{part}` has {error}, and such paths are rejected")),
                None => Ok(Segment::Exactly(part.to_owned())),
            };
        };
        let (segment, name) = match (name.strip_prefix('*'), name.strip_suffix('+'), name.strip_suffix('*')) {
            (Some(name), _, _) | (None, Some(name), _) => (Segment::Rest, name),
            (None, None, Some(name)) => (Segment::OptionalRest, name),
            (None, None, None) => (Segment::One, name),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(format!("`{part}`: the name of a parameter has letters, digits, `_` and `-` only"));
        }
        if self.names.iter().any(|known| known == name) {
            return Err(format!("it has two parameters `{name}`"));
        }
        if self.names.len() == MAX_PARAMS {
            return Err(format!("it has more than {MAX_PARAMS} parameters"));
        }
        self.names.push(name.to_owned());
        Ok(segment)
    }
}

/// A tree of patterns by their segments. Patterns are identified by numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Children for exact segments, sorted.
    exactly: Vec<(String, Tree)>,
    /// The child for any segment.
    one: Option<Box<Tree>>,
    /// The pattern that matches the rest of the path.
    rest: Option<usize>,
    /// The pattern that ends here.
    end: Option<usize>,
    /// The pattern that matches the rest of the path, for a path that ends here.
    end_without_rest: Option<usize>,
}

/// The values of path parameters, in the order of the path.
pub(crate) type Values<'p> = [&'p str; MAX_PARAMS];

impl Tree {
    /// Adds a pattern. Returns the number of another pattern that matches the same paths as an error.
    pub(crate) fn insert(&mut self, pattern: &Pattern, number: usize) -> Result<(), usize> {
        let mut tree = self;
        for segment in &pattern.segments {
            tree = match segment {
                Segment::Exactly(text) => {
                    let at = match tree.exactly.binary_search_by(|(known, _)| known.cmp(text)) {
                        Ok(at) => at,
                        Err(at) => {
                            tree.exactly.insert(at, (text.clone(), Tree::default()));
                            at
                        }
                    };
                    &mut tree.exactly[at].1
                }
                Segment::One => tree.one.get_or_insert_default(),
                Segment::Rest => return claim(&mut tree.rest, number),
                Segment::OptionalRest => {
                    claim(&mut tree.rest, number)?;
                    return claim(&mut tree.end_without_rest, number);
                }
            };
        }
        claim(&mut tree.end, number)
    }

    /// Returns the most specific pattern that a path matches, and the values of its parameters.
    ///
    /// Segment by segment from the left, exact bytes are more specific than a parameter, and a parameter is more
    /// specific than the rest. No part of the tree is visited twice, and nothing is allocated.
    pub(crate) fn find<'p>(&self, path: &'p str) -> Option<(usize, Values<'p>)> {
        let mut values = [""; MAX_PARAMS];
        let path = path.strip_prefix('/')?;
        let found = self.find_below(Some(path), &mut values, 0);
        // The path `/` has no segments.
        let number = found.or_else(|| self.end_without_rest.filter(|_| path.is_empty()))?;
        Some((number, values))
    }

    /// `path` is the rest of the path without the slash before it, or `None` at its end.
    fn find_below<'p>(&self, path: Option<&'p str>, values: &mut Values<'p>, found: usize) -> Option<usize> {
        let Some(path) = path else { return self.end.or(self.end_without_rest) };
        let (segment, rest) = match path.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (path, None),
        };
        if let Ok(at) = self.exactly.binary_search_by(|(known, _)| known.as_str().cmp(segment))
            && let Some(number) = self.exactly[at].1.find_below(rest, values, found)
        {
            return Some(number);
        }
        if let Some(one) = self.one.as_deref().filter(|_| !segment.is_empty())
            && let Some(number) = one.find_below(rest, values, found + 1)
        {
            values[found] = segment;
            return Some(number);
        }
        let number = self.rest.filter(|_| !path.is_empty())?;
        values[found] = path;
        Some(number)
    }
}

fn claim(place: &mut Option<usize>, number: usize) -> Result<(), usize> {
    let holder = *place.get_or_insert(number);
    if holder == number { Ok(()) } else { Err(holder) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(patterns: &[&str]) -> Tree {
        let mut tree = Tree::default();
        for (number, text) in patterns.iter().enumerate() {
            tree.insert(&Pattern::parse(text).expect("a pattern"), number).expect("no other");
        }
        tree
    }

    #[test]
    fn the_most_specific_pattern_wins() {
        let patterns = [
            "/",
            "/news",
            "/news/",
            "/news/{slug}",
            "/news/today",
            "/news/{slug}/edit",
            "/{page}",
            "/{*all}",
            "/docs/{*rest}",
            "/docs/{lang}/start",
            "/{a}/{b}/end",
        ];
        let tree = tree(&patterns);
        for (path, expected, values) in [
            ("/", Some("/"), &[][..]),
            ("/news", Some("/news"), &[]),
            ("/news/", Some("/news/"), &[]),
            ("/news/today", Some("/news/today"), &[]),
            ("/news/a", Some("/news/{slug}"), &["a"]),
            ("/news/today/edit", Some("/news/{slug}/edit"), &["today"]),
            ("/news/today/", Some("/{*all}"), &["news/today/"]),
            ("/news/a/b", Some("/{*all}"), &["news/a/b"]),
            ("/other", Some("/{page}"), &["other"]),
            ("/other/", Some("/{*all}"), &["other/"]),
            ("//", Some("/{*all}"), &["/"]),
            ("/docs/", Some("/{*all}"), &["docs/"]),
            ("/docs/a", Some("/docs/{*rest}"), &["a"]),
            ("/docs/en/start", Some("/docs/{lang}/start"), &["en"]),
            ("/docs/en/end", Some("/docs/{*rest}"), &["en/end"]),
            ("/x/y/end", Some("/{a}/{b}/end"), &["x", "y"]),
            ("/%6Eews", Some("/{page}"), &["%6Eews"]),
            ("/NEWS", Some("/{page}"), &["NEWS"]),
            ("", None, &[]),
            ("news", None, &[]),
        ] {
            let found = tree.find(path);
            assert_eq!(found.map(|(number, _)| patterns[number]), expected, "{path}");
            if let Some((_, found)) = found {
                assert_eq!(&found[..values.len()], values, "{path}");
            }
        }
    }

    #[test]
    fn an_invalid_pattern_is_an_error() {
        for (text, expected) in [
            ("", "it must begin with `/`"),
            ("news", "it must begin with `/`"),
            ("/a?b", "it has the character '?'; write it percent-encoded, as paths have it"),
            ("/a b", "it has the character ' '; write it percent-encoded, as paths have it"),
            ("/caf\u{e9}", "it has the character 'é'; write it percent-encoded, as paths have it"),
            ("/{}", "`{}`: the name of a parameter has letters, digits, `_` and `-` only"),
            ("/{a.b}", "`{a.b}`: the name of a parameter has letters, digits, `_` and `-` only"),
            ("/a{b}", "`a{b}`: a parameter must be a whole segment, such as `{slug}`"),
            ("/{a", "`{a`: a parameter must be a whole segment, such as `{slug}`"),
            ("/{a}/{a}", "it has two parameters `a`"),
            ("/{*a}/b", "nothing may follow `{*…}` or `{…+}`"),
            ("/{a+}/b", "nothing may follow `{*…}` or `{…+}`"),
            ("/{a*}/b", "nothing may follow `{…*}`"),
            ("/{*a+}", "`{*a+}`: the name of a parameter has letters, digits, `_` and `-` only"),
            ("/{+}", "`{+}`: the name of a parameter has letters, digits, `_` and `-` only"),
            ("/a/../b", "`..` has a dot segment, and such paths are rejected"),
            ("/a%", "`a%` has a percent sign without two hexadecimal digits, and such paths are rejected"),
            ("/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}", "it has more than 8 parameters"),
        ] {
            assert_eq!(Pattern::parse(text), Err(expected.to_owned()), "{text}");
        }
        assert_eq!(Pattern::parse(&"/x".repeat(65)), Err("it has more than 64 segments".to_owned()));
        assert!(Pattern::parse(&format!("/{}", "x".repeat(1000))).is_err());
    }

    #[test]
    fn two_patterns_for_the_same_paths_are_an_error() {
        let mut tree = tree(&["/a/{x}", "/a/{*x}"]);
        let mut insert = |text| tree.insert(&Pattern::parse(text).expect("a pattern"), 9);
        assert_eq!(insert("/a/{y}"), Err(0));
        assert_eq!(insert("/a/{*y}"), Err(1));
        assert_eq!(insert("/a/{y+}"), Err(1));
        assert_eq!(insert("/a/{y*}"), Err(1));
        assert_eq!(insert("/{y}/a"), Ok(()));
    }

    #[test]
    fn the_rest_of_a_path_may_be_optional() {
        let patterns = ["/docs/{rest*}", "/news/{rest+}", "/news", "/{all*}", "/docs/a/{rest*}"];
        let tree = tree(&patterns);
        for (expected, paths) in [
            ("/docs/{rest*}", &[("/docs", ""), ("/docs/b/c", "b/c")][..]),
            ("/docs/a/{rest*}", &[("/docs/a", ""), ("/docs/a/b", "b")]),
            ("/{all*}", &[("/docs/", "docs/"), ("/", ""), ("//", "/")]),
            ("/news", &[("/news", "")]),
            ("/news/{rest+}", &[("/news/b", "b")]),
        ] {
            for (path, value) in paths {
                let (number, values) = tree.find(path).expect(path);
                assert_eq!((patterns[number], values[0]), (expected, *value), "{path}");
            }
        }
    }

    /// A slow reference implementation: matches one pattern, and returns how specific each segment is.
    fn naive(patterns: &[String], path: &str) -> Option<usize> {
        let rank = |pattern: &str| -> Option<Vec<u8>> {
            let is_root = path == "/";
            let (mut ranks, mut path) = (Vec::new(), path.strip_prefix('/'));
            for segment in pattern[1..].split('/') {
                if segment.ends_with("*}") && path.is_none_or(|path| is_root && path.is_empty()) {
                    ranks.push(3);
                    return Some(ranks);
                }
                let left = path?;
                if segment.starts_with("{*") || segment.ends_with("*}") {
                    ranks.push(2);
                    return (!left.is_empty()).then_some(ranks);
                }
                let (own, rest) = left.split_once('/').map_or((left, None), |(own, rest)| (own, Some(rest)));
                match segment.starts_with('{') {
                    true if !own.is_empty() => ranks.push(1),
                    false if own == segment => ranks.push(0),
                    _ => return None,
                }
                path = rest;
            }
            path.is_none().then_some(ranks)
        };
        (0..patterns.len()).filter_map(|n| Some((rank(&patterns[n])?, n))).min().map(|(_, n)| n)
    }

    proptest! {
        #[test]
        fn the_tree_finds_the_same_pattern_as_a_linear_search(
            patterns in proptest::collection::vec("(/(|a|b|\\{x\\})){0,4}(/\\{\\*r\\}|/\\{r\\*\\}|/a)", 1..12),
            paths in proptest::collection::vec("(/(|a|b|c)){1,5}", 1..8),
        ) {
            // Names must differ within a pattern.
            let named = |text: String| {
                let mut count = 0;
                text.split('/').map(|part| {
                    count += 1;
                    if part == "{x}" { format!("{{x{count}}}") } else { part.to_owned() }
                }).collect::<Vec<_>>().join("/")
            };
            let mut tree = Tree::default();
            let mut inserted: Vec<String> = Vec::new();
            for text in patterns.into_iter().map(named) {
                if tree.insert(&Pattern::parse(&text).expect("a pattern"), inserted.len()).is_ok() {
                    inserted.push(text);
                }
            }
            for path in paths {
                let found = tree.find(&path);
                prop_assert_eq!(found.map(|(number, _)| number), naive(&inserted, &path), "{} in {:?}", path, inserted);
                // The values put into the pattern give the path back.
                if let Some((number, values)) = found {
                    let params = inserted[number].matches('{').count();
                    let is_without_rest = inserted[number].ends_with("*}") && values[params - 1].is_empty();
                    let mut values = values.into_iter();
                    let back: Vec<&str> = inserted[number].split('/')
                        .map(|part| if part.starts_with('{') { values.next().expect("a value") } else { part })
                        .collect();
                    let back = back.join("/");
                    // The slash before an optional rest is missing with it.
                    let without = back.strip_suffix('/').filter(|text| is_without_rest && !text.is_empty());
                    prop_assert_eq!(without.unwrap_or(&back), &path);
                }
            }
        }

        #[test]
        fn no_text_is_too_strange(pattern in "\\PC{0,30}", path in "\\PC{0,30}") {
            let mut tree = Tree::default();
            if let Ok(pattern) = Pattern::parse(&format!("/{pattern}")) {
                let _ = tree.insert(&pattern, 0);
            }
            let _ = tree.find(&format!("/{path}"));
        }
    }
}
