//! Each request of a product, sent to one of two gateways and obeyed by both, on both pairs of stores.

use tempfile::TempDir;

use crate::products::{Effect, PAGE, PRODUCTS, Product};
use crate::support::client::{Connection, Response};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{get, with_long_timeouts};
use crate::support::store::Store;
use crate::support::wait_for;

/// Both gateways notice each other's changes soon, so that the test is fast.
const CONFIG: &str = r#"
[store]
metadata_max_age = "100ms"
[purge]
from = ["127.0.0.1"]
dialects = ["url", "tags", "ban", "refresh", "nginx-helper"]
[routes]
"/section/**" = { isr = "1h" }
"/kept/**" = { isr = "1h" }
"/by-header" = { isr = "1h", headers = ["accept-language"] }
"#;
/// A page that only an invalidation of everything concerns.
const KEPT: &str = "/kept/page";

#[test]
fn each_request_of_a_product_is_obeyed_by_both_gateways_on_sqlite() {
    replay(&Store::embedded());
}

#[test]
fn each_request_of_a_product_is_obeyed_by_both_gateways_on_servers() {
    replay(&Store::on_servers());
}

fn replay(store: &Store) {
    let (origin, directories) =
        (Origin::start(), [(); 2].map(|()| tempfile::tempdir().expect("a directory")));
    let config = with_long_timeouts(CONFIG);
    let start = |directory: &TempDir| Gateway::start_on(store, directory.path(), origin.address, &config);
    let [one, other] = directories.each_ref().map(start);
    for (number, product) in PRODUCTS.iter().enumerate() {
        let [before, after] = ["before", "after"].map(|when| format!("{number} {when}"));
        cache(&origin, [&one, &other], product, &before);
        serve(&origin, product, &after);
        let response = purge(&one, product);
        let name = product.name;
        assert_eq!(response.status, 200, "{name}: {}", response.text());
        assert!(response.text().starts_with(product.response), "{name}: {}", response.text());

        if product.effect != Effect::SoftPage {
            assert_eq!(text(&one, PAGE), after, "{name}: at once, by the gateway that received it");
        }
        for gateway in [&one, &other] {
            wait_for(name, || (text(gateway, PAGE) == after).then_some(()));
        }
        let expected = if product.effect == Effect::Everything { &after } else { &before };
        wait_for(name, || (text(&one, KEPT) == *expected).then_some(()));
        wait_for(name, || (text(&other, KEPT) == *expected).then_some(()));
    }
    refresh(&origin, &one);
    by_header(&origin, &one);
}

/// `GET` with `no-cache` renders the page, publishes it and serves it.
fn refresh(origin: &Origin, gateway: &Gateway) {
    for line in
        ["Cache-Control: no-cache\r\n", "cache-control: max-age=0, No-Cache\r\n", "Pragma: no-cache\r\n"]
    {
        origin.respond(PAGE, ScriptedResponse::page(&[], line));
        let refreshed = gateway.exchange(get(PAGE, line));
        assert_eq!((refreshed.text().as_str(), refreshed.status), (line, 200));
        assert_eq!(text(gateway, PAGE), line, "it is published");
    }
    origin.respond(PAGE, ScriptedResponse::with("500 Error", &[], "broken"));
    let failed = gateway.exchange(get(PAGE, "Cache-Control: no-cache\r\n"));
    assert_eq!(failed.text(), "Pragma: no-cache\r\n", "the page stays if its render fails");
}

/// A purge of a URL concerns all pages that its headers distinguish.
fn by_header(origin: &Origin, gateway: &Gateway) {
    let request =
        |language: &str| gateway.exchange(get("/by-header", &format!("Accept-Language: {language}\r\n")));
    for version in ["old", "new"] {
        origin.respond("/by-header", ScriptedResponse::page(&[], version));
        for language in ["de", "fr"] {
            assert_eq!(request(language).text(), version, "{language}");
        }
        let purge = "PURGE /by-header HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
        assert_eq!(gateway.exchange(purge).status, 200);
    }
}

/// Lets the origin serve this text.
fn serve(origin: &Origin, product: &Product, text: &str) {
    let lines: &[&str] = if product.tags.is_empty() { &[] } else { &[product.tags] };
    origin.respond(PAGE, ScriptedResponse::page(lines, text));
    origin.respond(KEPT, ScriptedResponse::page(&[], text));
}

/// Caches this text in both gateways.
fn cache(origin: &Origin, gateways: [&Gateway; 2], product: &Product, body: &str) {
    serve(origin, product, body);
    assert_eq!(
        gateways[0].admin_post("/api/v1/invalidate", r#"{"everything":true,"mode":"hard"}"#).status,
        200
    );
    for (gateway, path) in gateways.into_iter().flat_map(|gateway| [(gateway, PAGE), (gateway, KEPT)]) {
        let response = wait_for("the page is cached", || {
            let response = gateway.exchange(get(path, ""));
            (response.state() == "hit" && response.text() == body).then_some(response)
        });
        let name = product.tags.split(':').next().unwrap_or_default().to_ascii_lowercase();
        assert_eq!(response.header(&name), None, "tags are not for clients");
    }
}

fn purge(gateway: &Gateway, product: &Product) -> Response {
    let request = product.request.replace("{cache}", &gateway.address.to_string());
    let mut connection = Connection::open(gateway.address);
    connection.send(request);
    connection.response()
}

fn text(gateway: &Gateway, path: &str) -> String {
    gateway.exchange(get(path, "")).text()
}
