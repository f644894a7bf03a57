//! Two gateways that share a table.

use std::time::Duration;

use tabletheory::{Clock as _, SystemClock};
use tempfile::TempDir;

use crate::stores::gateway_on;
use crate::support::client::Response;
use crate::support::gateway::Gateway;
use crate::support::origin::{Gate, Origin, ScriptedResponse};
use crate::support::site::{get, request};
use crate::support::store::Store;
use crate::support::wait_for;

/// The default of `metadata_max_age`.
const METADATA_MAX_AGE: Duration = Duration::from_secs(1);

/// Two gateways with the same stores in front of one origin.
struct Pair {
    one: Gateway,
    other: Gateway,
    origin: Origin,
    _directories: [TempDir; 2],
    _store: Store,
}

impl Pair {
    fn embedded() -> Pair {
        Pair::start_on(Store::embedded())
    }

    fn on_servers() -> Pair {
        Pair::start_on(Store::on_servers())
    }

    fn start_on(store: Store) -> Pair {
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let origin = Origin::start();
        let start = |directory: &TempDir| gateway_on(&store, directory.path(), &origin, "");
        let [one, other] = directories.each_ref().map(start);
        Pair { one, other, origin, _directories: directories, _store: store }
    }

    fn origin_requests(&self, path: &str) -> usize {
        self.origin.requests_for(path).iter().filter(|request| request.method == "GET").count()
    }
}

fn get_in(gateway: &Gateway, path: &str, language: &str) -> Response {
    gateway.exchange(get(path, &format!("X-Language: {language}\r\n")))
}

/// A page in several languages; any method other than GET changes it.
fn greeting(origin: &Origin, path: &str) {
    let changes = std::sync::atomic::AtomicUsize::new(0);
    origin.script(path, move |request| {
        use std::sync::atomic::Ordering::Relaxed;
        if request.method != "GET" {
            changes.fetch_add(1, Relaxed);
            return ScriptedResponse::with("204 No Content", &[], "");
        }
        let language = request.header("x-language").unwrap_or("none").to_owned();
        let tag = format!("ETag: \"{language}-{}\"", changes.load(Relaxed));
        let lines = ["Cache-Control: max-age=3600", "Vary: X-Language", "Age: 600", "X-Own: 1", &tag];
        ScriptedResponse::page(&lines, &format!("{language}, change {}", changes.load(Relaxed)))
    });
}

fn a_page_cached_by_one_gateway_is_served_by_the_other(pair: &Pair) {
    greeting(&pair.origin, "/page");
    for language in ["de", "fr", "it"] {
        let (cached, served) = (get_in(&pair.one, "/page", language), get_in(&pair.other, "/page", language));
        assert_eq!(served.text(), format!("{language}, change 0"));
        assert_eq!(cached.body, served.body);
        for name in ["etag", "cache-control", "x-own", "content-type"] {
            assert_eq!(cached.header(name), served.header(name), "{name}");
        }
        let age: u64 = served.header("age").expect("an age").parse().expect("a number");
        assert!((600..700).contains(&age), "the age of the origin counts in every process: {age}");
    }
    assert_eq!(pair.origin_requests("/page"), 3, "each variant was fetched once");
    let other = pair.other.exchange(get("/page", "X-Language: de\r\nIf-None-Match: \"de-0\"\r\n"));
    assert_eq!(other.status, 304);
}

fn rfc9111_4_4_an_unsafe_method_through_one_gateway_invalidates_for_both(pair: &Pair) {
    greeting(&pair.origin, "/page");
    let languages = ["de", "fr"];
    for gateway in [&pair.one, &pair.other, &pair.one, &pair.other] {
        for language in languages {
            assert_eq!(get_in(gateway, "/page", language).text(), format!("{language}, change 0"));
        }
    }
    assert_eq!(pair.origin_requests("/page"), 2);
    assert_eq!(pair.one.exchange(request("DELETE", "/page", "")).status, 204);
    assert_eq!(get_in(&pair.one, "/page", "de").text(), "de, change 1", "immediately");
    // The bound that the documents promise. A slower machine makes metadata older, which causes no stale response.
    std::thread::sleep(METADATA_MAX_AGE);
    for language in languages {
        let seen = get_in(&pair.other, "/page", language).text();
        assert_eq!(seen, format!("{language}, change 1"), "at once, after the bound");
        assert_eq!(get_in(&pair.one, "/page", language).text(), format!("{language}, change 1"));
    }
}

fn a_validation_by_one_gateway_is_visible_to_the_other(pair: &Pair) {
    pair.origin.script("/stale", |request| match request.has("if-none-match") {
        true => ScriptedResponse::with(
            "304 Not Modified",
            &["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Own: 2"],
            "",
        ),
        false => ScriptedResponse::page(
            &["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\"", "X-Own: 1"],
            "cached",
        ),
    });
    assert_eq!(get_in(&pair.one, "/stale", "de").text(), "cached");
    let validated = get_in(&pair.other, "/stale", "de");
    assert_eq!((validated.text().as_str(), validated.header("x-own")), ("cached", Some("2")));
    assert_eq!(pair.origin_requests("/stale"), 2);
    wait_for("the first gateway sees the validation", || {
        let response = get_in(&pair.one, "/stale", "de");
        assert_eq!(response.text(), "cached");
        (response.header("x-own") == Some("2")).then_some(())
    });
    assert_eq!(pair.origin_requests("/stale"), 2);
}

/// A page that any method other than GET changes. Earlier HEAD requests and requests for German get a response once the
/// gate is open; a response in German varies by more headers than the others.
fn changing_slowly(origin: &Origin, path: &str, gate: &Gate) {
    let (changes, gate) = (std::sync::atomic::AtomicUsize::new(0), gate.clone());
    origin.script(path, move |request| {
        use std::sync::atomic::Ordering::Relaxed;
        let change = changes.load(Relaxed);
        let language = request.header("x-language").unwrap_or("none").to_owned();
        let vary = if language == "de" { "Vary: X-Language, X-Kind" } else { "Vary: X-Language" };
        let tag = format!("ETag: \"{language}-{change}\"");
        let is_slow = change == 0 && (request.method == "HEAD" || language == "de");
        let response = match request.method.as_str() {
            "GET" => {
                let lines = ["Cache-Control: max-age=60", "Age: 30", vary, &tag];
                ScriptedResponse::page(&lines, &format!("{language}, change {change}"))
            }
            "HEAD" => ScriptedResponse::raw(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n{vary}\r\n{tag}\r\n\r\n"
            )),
            _ => {
                changes.fetch_add(1, Relaxed);
                ScriptedResponse::with("204 No Content", &[], "")
            }
        };
        if is_slow { response.after(&gate) } else { response }
    });
}

/// Changes a page through the other gateway while one response of the origin is pending, and waits longer than clocks
/// may differ.
fn change_meanwhile(pair: &Pair, path: &str, gate: &Gate) {
    const MAX_CLOCK_DIFFERENCE: i64 = 2_000;
    wait_for("a request reaches the origin", || pair.origin.requests_for(path).get(1).map(drop));
    assert_eq!(pair.other.exchange(request("DELETE", path, "")).status, 204);
    let changed = SystemClock.now().millis();
    wait_for("longer than clocks may differ", || {
        (SystemClock.now().millis() > changed + MAX_CLOCK_DIFFERENCE + 1_000).then_some(())
    });
    gate.open();
}

fn a_head_update_by_one_gateway_does_not_undo_an_invalidation_by_the_other(pair: &Pair) {
    let gate = Gate::default();
    changing_slowly(&pair.origin, "/head", &gate);
    assert_eq!(get_in(&pair.one, "/head", "en").text(), "en, change 0");
    let mut head = pair.one.connect();
    head.send(request("HEAD", "/head", "X-Language: en\r\nCache-Control: no-cache\r\n"));
    change_meanwhile(pair, "/head", &gate);
    assert_eq!(head.next_response("HEAD").expect("a response").header("etag"), Some("\"en-0\""));
    for gateway in [&pair.one, &pair.other] {
        assert_eq!(get_in(gateway, "/head", "en").text(), "en, change 1");
    }
}

fn a_promoted_variant_in_one_gateway_does_not_undo_an_invalidation_by_the_other(pair: &Pair) {
    let gate = Gate::default();
    changing_slowly(&pair.origin, "/variant", &gate);
    assert_eq!(get_in(&pair.one, "/variant", "en").text(), "en, change 0");
    let mut german = pair.one.connect();
    german.send(get("/variant", "X-Language: de\r\n"));
    change_meanwhile(pair, "/variant", &gate);
    assert_eq!(german.response().text(), "de, change 0", "it was requested before the change");
    for gateway in [&pair.one, &pair.other] {
        assert_eq!(get_in(gateway, "/variant", "de").text(), "de, change 1");
    }
}

/// Runs each function as two tests: of a pair on SQLite and files, and of one on DynamoDB and S3.
macro_rules! of_pairs {
    ($($story:ident),* $(,)?) => {
        mod embedded {
            $(
                #[test]
                fn $story() {
                    super::$story(&super::Pair::embedded());
                }
            )*
        }

        mod servers {
            $(
                #[test]
                fn $story() {
                    super::$story(&super::Pair::on_servers());
                }
            )*
        }
    };
}

of_pairs![
    a_page_cached_by_one_gateway_is_served_by_the_other,
    rfc9111_4_4_an_unsafe_method_through_one_gateway_invalidates_for_both,
    a_validation_by_one_gateway_is_visible_to_the_other,
    a_head_update_by_one_gateway_does_not_undo_an_invalidation_by_the_other,
    a_promoted_variant_in_one_gateway_does_not_undo_an_invalidation_by_the_other,
];
