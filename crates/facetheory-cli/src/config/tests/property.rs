//! Properties of the parser, over generated texts and files.

use super::*;
use proptest::prelude::*;

/// Valid lines of the top level.
const TOP: [&str; 8] = [
    "origin = \"https://app:8443\"",
    "listen = \"[::1]:80\"",
    "hosts = [\"a.b\", \"c.d:1\"]",
    "tenant_headers = [\"x-customer\"]",
    "trusted_proxies = [\"10.0.0.0/8\", \"fd00::/8\"]",
    "log = \"off\"",
    "default = \"pass\"",
    "strip_tags = true",
];
const TABLES: [&str; 10] = [
    "[admin]\nlisten = \"127.0.0.1:1\"\ntoken_file = \"a b\"",
    "[store]\ndata = \"d/é\"\nmemory = \"3MB\"",
    "[store]\ntable = \"sqlite:x\"\nbelieve = \"7ms\"\ndeployment = \"v\\\"1\"",
    "[tls]\ncertificate = \"c\"\nkey = \"k\"",
    "[timeouts]\nconnect = \"90s\"\ntotal = false",
    "[timeouts]\nidle = \"1d\"\nshutdown = \"0s\"",
    "[timeouts]\ntable = \"5s\"\nbodies = \"1ms\"",
    "[gc]\ninterval = false\ngrace = \"1h\"\nreplaced = \"1h\"",
    "[limits]\nheaders = 7\nbody_bytes = 0",
    "[limits]\npage_bytes = 123456789\nconnections = 0x10",
];
const KEYS: [&str; 19] = [
    "isr = \"60s\"",
    "isr = true",
    "stale_while_revalidate = true",
    "stale_while_revalidate = \"1h\"",
    "blocking = true",
    "stale_if_error = \"0s\"",
    "negative_ttl = \"3s\"",
    "tags = [\"a\", \"b c\"]",
    "query = [\"page\"]",
    "query = false",
    "headers = [\"accept-language\"]",
    "cookies = []",
    "versions = 3",
    "lease = \"2m\"",
    "early_refresh = 0.25",
    "tenant = { header = \"x-t\" }",
    "tenant = false",
    "cache = \"origin\"",
    "ignore_origin_cache_control = true",
];

/// Generates a file of lines that are valid on their own.
fn file() -> impl Strategy<Value = String> {
    let some = |lines: &'static [&'static str], most| proptest::sample::subsequence(lines, 0..=most);
    let rule = ("(/(a|b|\\*|)){1,3}(/\\*\\*)?", some(&KEYS, 5), any::<bool>());
    let rules = proptest::collection::vec(rule, 0..6);
    (some(&TOP, TOP.len()), some(&TABLES, 4), rules).prop_map(|(top, tables, rules)| {
        let rules = rules.into_iter().map(|(pattern, keys, cached)| match cached {
            true => format!("\"{pattern}\" = {{ {} }}\n", keys.join(", ")),
            false => format!("\"{pattern}\" = false\n"),
        });
        format!("{}\n{}\n[routes]\n{}", top.join("\n"), tables.join("\n"), rules.collect::<String>())
    })
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}|([a-z\\[\\]\"'=.{},*/0-9 \n#]{0,60})") {
        let _ = Config::parse(&text);
    }

    /// A small change of a valid file reaches more code than a random text.
    #[test]
    fn every_error_of_an_edited_file_has_a_line_of_the_file(from in any::<prop::sample::Index>(), length in 0usize..20, put in "\\PC{0,8}|[\\[\\]{}\"=\n/*]{0,4}") {
        let letters: Vec<char> = example().chars().collect();
        let from = from.index(letters.len());
        let text: String = letters[..from].iter().copied().chain(put.chars())
            .chain(letters.iter().copied().skip(from + length)).collect();
        if let Err(errors) = Config::parse(&text) {
            let lines = text.matches('\n').count() + 1;
            prop_assert!(!errors.0.is_empty());
            prop_assert!(errors.0.iter().all(|error| (1..=lines).contains(&error.line)));
        }
    }

    #[test]
    fn a_printed_configuration_parses_to_the_same_configuration(text in file()) {
        let Ok(config) = Config::parse(&text) else { return Ok(()) };
        let printed = toml::to_string(&config).expect("it can be printed");
        let read = Config::parse(&printed).map_err(|errors| TestCaseError::fail(format!("{errors}\n{printed}")))?;
        // Rules without a table are printed before those with one, so the order of rules is compared as printed.
        prop_assert_eq!(toml::to_string(&read).expect("it can be printed"), printed);
        let without_rules = |config: Config| Config { rules: Rules::default(), ..config };
        prop_assert_eq!(without_rules(read), without_rules(config));
    }

    #[test]
    fn a_rule_printed_with_all_settings_is_the_same_rule(keys in proptest::sample::subsequence(&KEYS, 0..6)) {
        let rule = |table: &str| {
            let config = Config::parse(&format!("[routes]\n\"/a\" = {table}")).ok()?;
            config.rules.of_route("/a").and_then(|found| found.rule.cloned())
        };
        if let Some(short) = rule(&format!("{{ {} }}", keys.join(", "))) {
            let mut full = String::new();
            short.serialize(toml::ser::ValueSerializer::new(&mut full)).expect("it can be printed");
            prop_assert_eq!(rule(&full), Some(short), "{}", full);
        }
    }

    #[test]
    fn a_path_is_routed_by_the_most_specific_rule_that_matches_it(text in file(), path in "(/(a|b|c|)){1,4}") {
        let Ok(config) = Config::parse(&text) else { return Ok(()) };
        let routes = config.routes().expect("they were checked");
        let matching = config.rules.matching(&path);
        let most = matching.iter().max_by(|one, other| one.pattern.specificity(&other.pattern));
        let found = routes.find(&path).and_then(|(route, _)| config.rules.of_route(route.pattern()));
        prop_assert_eq!(found.is_some(), most.is_some());
        if let (Some(found), Some(most)) = (found, most) {
            prop_assert_eq!(found.chain.last().map(|rule| &rule.pattern), Some(&most.pattern));
            prop_assert_eq!(found.rule.is_none(), most.value.is_bool());
        }
    }
}
