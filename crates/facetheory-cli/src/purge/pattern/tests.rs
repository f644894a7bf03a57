//! The patterns of products, and generated ones compared with a regex engine.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use regex::Regex;

use super::*;

fn list(tags: &[&str]) -> TagPattern {
    TagPattern::Tags(tags.iter().map(|tag| (*tag).to_owned()).collect())
}

#[test]
fn the_patterns_of_products_are_parsed_back_into_tags() {
    for (pattern, dot, expected) in [
        ("((^|,)cat_p_49877(,|$))|((^|,)cat_p(,|$))", Dot::Literal, list(&["cat_p", "cat_p_49877"])),
        ("(^|,)(a\\-b|c\\.d)(,|$)", Dot::Escaped, list(&["a-b", "c.d"])),
        ("(^|,)a(,|$)|(^|,)b(,|$)", Dot::Escaped, list(&["a", "b"])),
        ("(/books/1|/books)($|\\,)", Dot::Escaped, list(&["/books", "/books/1"])),
        ("node:1|node:2", Dot::Literal, list(&["node:1", "node:2"])),
        ("node:1 node_list", Dot::Literal, list(&["node:1", "node_list"])),
        ("node:1,node_list", Dot::Literal, list(&["node:1", "node_list"])),
        ("config:system.site", Dot::Literal, list(&["config:system.site"])),
        ("a\\,b", Dot::Escaped, list(&["a", "b"])),
        ("(^|\\s)x(\\s|$)", Dot::Escaped, list(&["x"])),
        (".*", Dot::Escaped, TagPattern::All),
        ("", Dot::Escaped, TagPattern::All),
        ("(^|,)(,|$)", Dot::Escaped, TagPattern::All),
        ("(^|,)(a|)(,|$)", Dot::Escaped, TagPattern::All),
        ("a|.*", Dot::Escaped, TagPattern::All),
        ("cat_p_[0-9]+", Dot::Literal, TagPattern::Unknown),
        ("config:system.site", Dot::Escaped, TagPattern::Unknown),
        ("(a|b)*", Dot::Escaped, TagPattern::Unknown),
        ("(a|b", Dot::Escaped, TagPattern::Unknown),
        ("a)b", Dot::Escaped, TagPattern::Unknown),
        ("\\d+", Dot::Escaped, TagPattern::Unknown),
        ("a\\", Dot::Escaped, TagPattern::Unknown),
        ("(?i)a", Dot::Escaped, TagPattern::Unknown),
        ("a(b|c)", Dot::Escaped, TagPattern::Unknown),
        ("cost\\$", Dot::Escaped, list(&["cost$"])),
    ] {
        assert_eq!(tags(pattern, dot), expected, "{pattern}");
    }
}

#[test]
fn patterns_of_urls_become_paths() {
    let below = |path: &str| UrlPattern::Below(path.to_owned());
    for (pattern, expected) in [
        ("^/blog/.*", below("/blog")),
        ("^/blog/.*$", below("/blog")),
        ("^/blog(/|$)", below("/blog")),
        ("^/blog$", below("/blog")),
        ("^/blog(\\?|$)", below("/blog")),
        ("^/a/b/?$", below("/a/b")),
        ("^/a/b/?", below("/a")),
        ("^/a/b", below("/a")),
        ("^/a/b/", below("/a/b")),
        ("^/a/b\\?page", below("/a/b")),
        ("^/blog", UrlPattern::All),
        ("^/a/b*", below("/a")),
        ("^/a/b\\.html$", below("/a/b.html")),
        ("^/a/b\\?page=2$", below("/a/b")),
        ("^/a/(b|c)/.*", below("/a")),
        ("^/a/[0-9]+", below("/a")),
        ("^/blog.*", UrlPattern::All),
        ("^/a|/b", UrlPattern::All),
        ("/blog/.*", UrlPattern::All),
        ("^(/a|/b)", UrlPattern::All),
        ("^/(", UrlPattern::All),
        (".*", UrlPattern::All),
        ("", UrlPattern::All),
    ] {
        assert_eq!(url(pattern), expected, "{pattern}");
    }
}

/// Quotes a text as PHP's `preg_quote` does.
fn preg_quote(text: &str) -> String {
    let quote = |char: char| {
        let special = ".\\+*?[^]$(){}=!<>|:-#/".contains(char);
        if special { format!("\\{char}") } else { char.to_string() }
    };
    text.chars().map(quote).collect()
}

/// A pattern that names where each tag begins and ends, with its tags, and how dots are written in it.
fn delimited() -> impl Strategy<Value = (Vec<String>, String, Dot)> {
    let tags = |chars: &'static str| proptest::collection::vec(chars, 1..6);
    prop_oneof![
        tags("[a-c.:/_$*|(-]{1,4}").prop_map(|tags| {
            let names: Vec<String> = tags.iter().map(|tag| preg_quote(tag)).collect();
            (tags, format!("(^|,)({})(,|$)", names.join("|")), Dot::Escaped)
        }),
        tags("[a-c_0-9]{1,4}").prop_map(|tags| {
            let names: Vec<String> = tags.iter().map(|tag| format!("((^|,){tag}(,|$))")).collect();
            (tags, names.join("|"), Dot::Literal)
        }),
    ]
}

/// Tags of which none occurs in another one.
const APART: [&str; 8] =
    ["node:1.", "node:2.", "list_a", "list_b", "/books/1;", "/books/2;", "cfg!", "tax-9-"];

/// A pattern that does not name where tags begin or end. A regex engine finds such a tag in others too, by accident.
fn undelimited() -> impl Strategy<Value = (Vec<String>, String, Dot)> {
    (subsequence(&APART, 1..=4), 0..4_usize).prop_map(|(tags, form)| {
        let plain: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let quoted: Vec<String> = tags.iter().map(|tag| preg_quote(tag)).collect();
        let (pattern, dot) = match form {
            0 => (format!("({})($|\\,)", quoted.join("|")), Dot::Escaped),
            1 => (plain.join("|"), Dot::Literal),
            2 => (quoted.join("|"), Dot::Escaped),
            _ => (format!("^{}$", quoted.join("|")), Dot::Escaped),
        };
        (plain, pattern, dot)
    })
}

/// A pattern with arbitrary parts of the syntax.
fn arbitrary() -> impl Strategy<Value = (Vec<String>, String, Dot)> {
    let part = select(
        &[
            "a", "b", "c", "|", "(", ")", "(^|,)", "(,|$)", "^", "$", "\\.", ".", "*", "?", ",", "[ab]",
            "\\b", "(a|b)",
        ][..],
    );
    proptest::collection::vec(part, 0..10).prop_map(|parts| (Vec::new(), parts.concat(), Dot::Escaped))
}

/// A pattern of URLs that is bound to the beginning, of parts that plugins write.
fn url_pattern() -> impl Strategy<Value = String> {
    let part = select(
        &[
            "/",
            "a",
            "b",
            "-",
            "\\-",
            "\\.",
            ".",
            ".*",
            "?",
            "*",
            "+",
            "$",
            "(/|$)",
            "($|/)",
            "(\\?|$)",
            "($|\\?)",
            "(\\?.*)?$",
            "\\?",
            "(a|b)",
            "[ab]",
            "|",
            "{1,2}",
        ][..],
    );
    ("(/[ab]{1,2}){0,2}/?", proptest::collection::vec(part, 0..4))
        .prop_map(|(path, parts)| format!("^{path}{}", parts.concat()))
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("FACETHEORY_PURGE_PATTERNS").ok().and_then(|count| count.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(2000), ..ProptestConfig::default() }
}

/// Whether a page with these tags is invalidated.
fn covers(parsed: &TagPattern, tags: &[String]) -> bool {
    match parsed {
        TagPattern::All | TagPattern::Unknown => true,
        TagPattern::Tags(found) => tags.iter().any(|tag| found.contains(tag)),
    }
}

/// Fails if a regex engine finds the pattern in the tags of a page that would not be invalidated.
fn is_covered(pattern: &str, dot: Dot, pages: &[Vec<String>]) -> Result<(), TestCaseError> {
    let Ok(engine) = Regex::new(pattern) else { return Ok(()) };
    let parsed = tags(pattern, dot);
    for page in pages {
        for line in [page.join(","), page.join(" "), page.join(", ")] {
            let is_found = engine.is_match(&line);
            prop_assert!(!is_found || covers(&parsed, page), "{pattern:?} matches {line:?}, not {parsed:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn each_page_that_a_regex_engine_finds_is_invalidated(
        (made_of, pattern, dot) in delimited(),
        others in proptest::collection::vec(proptest::collection::vec("[a-c.:/_$*|(0-9-]{1,5}", 0..5), 8),
    ) {
        // Pages with one of its tags, and with tags that contain one.
        let near = made_of.iter().flat_map(|tag| [tag.clone(), format!("{tag}a"), format!("a{tag}")]);
        let near = near.map(|tag| vec!["x".to_owned(), tag, "y".to_owned()]);
        let pages: Vec<Vec<String>> = others.into_iter().chain(near).collect();
        is_covered(&pattern, dot, &pages)?;
        let TagPattern::Tags(found) = tags(&pattern, dot) else { panic!("{pattern} is a known form") };
        prop_assert!(made_of.iter().all(|tag| found.contains(tag)), "{pattern}");
        prop_assert!(found.iter().all(|tag| made_of.contains(tag)), "{pattern}: nothing else");
    }

    #[test]
    fn each_page_that_a_regex_engine_finds_by_whole_tags_is_invalidated(
        (made_of, pattern, dot) in undelimited(),
        pages in proptest::collection::vec(subsequence(&APART, 0..=5), 8),
    ) {
        let pages: Vec<Vec<String>> =
            pages.into_iter().map(|page| page.into_iter().map(str::to_owned).collect()).collect();
        is_covered(&pattern, dot, &pages)?;
        let TagPattern::Tags(found) = tags(&pattern, dot) else { panic!("{pattern} is a known form") };
        prop_assert!(made_of.iter().all(|tag| found.contains(tag)), "{pattern}");
    }

    #[test]
    fn each_url_that_a_regex_engine_finds_is_invalidated(
        pattern in url_pattern(),
        urls in proptest::collection::vec("(/[ab]{1,2}[-.]?[ab]?){0,3}/?(\\?[ab/]{0,2})?", 16),
    ) {
        let Ok(engine) = Regex::new(&pattern) else { return Ok(()) };
        let parsed = url(&pattern);
        for found in urls.iter().filter(|url| engine.is_match(url)) {
            let path = found.split('?').next().unwrap_or_default();
            let is_covered = match &parsed {
                UrlPattern::All => true,
                UrlPattern::Below(above) => {
                    path.strip_prefix(above.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                }
            };
            prop_assert!(is_covered, "{pattern:?} matches {found:?}, not {parsed:?}");
        }
    }

    #[test]
    fn arbitrary_patterns_neither_panic_nor_take_more_than_linear_time(
        (_, pattern, dot) in arbitrary(),
        text in ".{0,40}",
        deep in 0..400_usize,
    ) {
        let nested = format!("{}{pattern}{}", "(".repeat(deep), ")".repeat(deep));
        for pattern in [&pattern, &text, &nested] {
            let mut parser = Parser::new(pattern, dot);
            let _ = (parser.tags(), url(pattern));
            prop_assert!(parser.steps <= 8 * (pattern.len() + 1), "{} steps for {pattern}", parser.steps);
        }
    }
}

#[test]
fn the_longest_patterns_take_a_few_steps_for_each_byte() {
    const BYTES: usize = 7680;
    let magento: String = (0..).map(|id| format!("((^|,)cat_p_{id}(,|$))|")).take(400).collect();
    let patterns = [
        magento[..BYTES - 1].rsplit_once('|').expect("a bar").0.to_owned(),
        format!("(^|,)({})(,|$)", vec!["a\\-b"; BYTES / 5 - 3].join("|")),
        format!("{}a{}", "(".repeat(BYTES / 2 - 1), ")".repeat(BYTES / 2 - 1)),
        format!("{}a{}", "((^|,)".repeat(BYTES / 12), "(,|$))".repeat(BYTES / 12)),
        format!("{}a{}", "(b|".repeat(BYTES / 4 - 1), ")".repeat(BYTES / 4 - 1)),
        "^".repeat(BYTES),
        "|".repeat(BYTES),
        "\\".repeat(BYTES),
        "(".repeat(BYTES),
        "$".repeat(BYTES),
    ];
    for pattern in patterns {
        let mut parser = Parser::new(&pattern, Dot::Literal);
        let parsed = parser.tags();
        assert!(parser.steps <= 8 * BYTES, "{} steps: {:.40}", parser.steps, pattern);
        assert_ne!(parsed, TagPattern::Tags(Vec::new()));
    }
}
