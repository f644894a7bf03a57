//! Next.js: the site of create-next-app with a few more pages, served by `next start`.

use std::collections::BTreeSet;

use http::StatusCode;
use http::header::{HeaderName, IF_NONE_MATCH, RANGE, SET_COOKIE};

use crate::Application;
use crate::client::{Client, Response};
use crate::form::Form;
use crate::gateway::Gateway;

const NEXT: Application = Application { variable: "FACETHEORY_E2E_NEXT" };
/// Pages of Next.js vary by the headers of its router, so the rule lists them.
const ROUTES: &str = r#"
"/**" = { isr = "60s", wait_timeout = "60s", render_timeout = "60s", headers = ["rsc", "next-router-state-tree", "next-router-prefetch", "next-router-segment-prefetch"] }
"/_next/static/**" = { isr = "30d", headers = [] }
"/dated/**" = { isr = "60s", headers = [] }
"#;
/// Routes without knowledge of Next.js.
const NAIVE: &str = r#""/**" = { isr = "60s" }"#;

/// The header by which the router requests a component payload instead of HTML.
const RSC: HeaderName = HeaderName::from_static("rsc");
/// The header by which the older router requests page data instead of HTML.
const NEXTJS_DATA: HeaderName = HeaderName::from_static("x-nextjs-data");

fn is_html(response: &Response) -> bool {
    response.header("content-type").starts_with("text/html") && response.text().starts_with("<!DOCTYPE html>")
}

/// Fails unless a request without the headers of the router gets HTML.
async fn assert_gets_html(gateway: &Gateway, target: &str) {
    let page = gateway.client().get(target).await;
    assert!(is_html(&page), "{target} without the headers of the router: {:?}", page.headers);
}

/// Sends a request of the Next.js router, following the redirect to the URL that belongs to its headers.
async fn navigate(client: &mut Client, target: &str) -> Response {
    let response = client.get_with(target, &[(RSC, "1")]).await;
    match response.status {
        StatusCode::TEMPORARY_REDIRECT => {
            let target = response.header("location").to_owned();
            client.get_with(&target, &[(RSC, "1")]).await
        }
        _ => response,
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn fifty_concurrent_clients_get_the_page_of_one_render() {
    let original = NEXT.get_directly("/").await;
    assert!(is_html(&original));
    NEXT.gateway(ROUTES).await.assert_one_render_for_all("/", &original, &["etag"]).await;
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn fifty_concurrent_clients_share_one_render_of_a_dynamic_page() {
    let gateway = NEXT.gateway(ROUTES).await;
    let responses = gateway.concurrently("/dated/crowd").await;
    let pages: BTreeSet<String> = responses.iter().map(Response::text).collect();
    assert_eq!(pages.len(), 1, "{pages:?}");
    assert!(pages.iter().all(|page| page.contains("crowd was rendered at")), "{pages:?}");
    let [one, two] = [NEXT.get_directly("/dated/crowd").await, NEXT.get_directly("/dated/crowd").await];
    assert_ne!(one.body, two.body, "without the gateway it is rendered for every request");
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn build_files_are_cached_and_served_in_ranges_and_revalidated() {
    let (gateway, mut client) = NEXT.gateway_and_client(ROUTES).await;
    let script = format!("/_next/static/{}", client.get("/").await.quoted_after("src=\"/_next/static/"));
    for target in [&*script, "/next.svg"] {
        let file = client.get(target).await;
        assert_eq!((file.status, file.state()), (StatusCode::OK, "miss"), "{target}");
        assert_eq!(file.body, NEXT.get_directly(target).await.body);
        let part = client.get_with(target, &[(RANGE, "bytes=-7")]).await;
        assert_eq!((part.status, part.state()), (StatusCode::PARTIAL_CONTENT, "hit"), "{target}");
        assert_eq!(part.body, file.body.slice(file.body.len() - 7..));
        let again = client.get_with(target, &[(IF_NONE_MATCH, file.header("etag"))]).await;
        assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0), "{target}");
        assert_eq!(client.head(target).await.header("content-length"), file.body.len().to_string());
        assert_eq!(gateway.recorder().requests_for(target).len(), 1, "{target}");
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn router_payloads_are_never_mixed_up_with_html() {
    for router_first in [true, false] {
        let gateway = NEXT.gateway(ROUTES).await;
        if router_first {
            navigate(&mut gateway.client(), "/").await;
        }
        for _ in 0..2 {
            assert_gets_html(&gateway, "/").await;
            let flight = navigate(&mut gateway.client(), "/").await;
            assert_eq!(flight.header("content-type"), "text/x-component", "{}", flight.text());
        }
        for target in ["/", "/?_rsc", "/?_rsc="] {
            assert_gets_html(&gateway, target).await;
        }
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_rule_without_router_headers_serves_no_wrong_response() {
    let gateway = NEXT.gateway(NAIVE).await;
    for _ in 0..2 {
        navigate(&mut gateway.client(), "/").await;
        for target in ["/", "/?_rsc"] {
            assert_gets_html(&gateway, target).await;
        }
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn page_data_and_html_are_cached_separately() {
    let gateway = NEXT.gateway(ROUTES).await;
    let page = gateway.client().get("/dated/today").await;
    assert!(is_html(&page) && page.text().contains("today was rendered at"), "{}", page.text());
    let data = format!("/_next/data/{}/dated/today.json", page.quoted_after("\"buildId\":\""));
    for _ in 0..2 {
        let response = gateway.client().get_with(&data, &[(NEXTJS_DATA, "1")]).await;
        assert_eq!(response.header("content-type"), "application/json; charset=utf-8");
        assert!(response.text().starts_with("{\"pageProps\":{\"name\":\"today\""), "{}", response.text());
        for target in ["/dated/today", "/dated/today?__nextDataReq=1"] {
            let poisoned = gateway.client().get_with(target, &[(NEXTJS_DATA, "1")]).await;
            assert!(is_html(&poisoned), "{target}: {}", poisoned.text());
            assert_gets_html(&gateway, target).await;
        }
    }
    assert_eq!(gateway.recorder().requests_for("/dated/today").len(), 1);
    let again = gateway.client().get("/dated/today").await;
    assert_eq!((again.state(), &again.body), ("hit", &page.body));
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn an_api_is_cached_per_url_and_a_missing_page_gets_404() {
    let gateway = NEXT.gateway(ROUTES).await;
    for state in ["miss", "hit"] {
        for name in ["Ann", "Bob"] {
            let response = gateway.client().get(&format!("/api/{name}")).await;
            assert_eq!(
                (response.state(), &*response.text()),
                (state, &*format!("{{\"message\":\"Hello {name}!\"}}"))
            );
        }
        let missing = gateway.client().get("/nobody-wrote-this").await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND);
        assert!(is_html(&missing));
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_streamed_page_arrives_piece_by_piece() {
    for (routes, name) in [(ROUTES, "by-a-rule"), (r#""/**" = false"#, "passed-by")] {
        let gateway = NEXT.gateway(routes).await;
        let mut client = gateway.client();
        let mut stream = client.stream(&format!("/stream/{name}")).await;
        assert_eq!(stream.status, StatusCode::OK);
        let received = stream.read_until("the first part").await;
        assert!(!received.contains("the second part"), "{received}");
        let released = client.post(&format!("/stream/{name}/release"), "text/plain", "").await;
        assert_eq!(released.status, StatusCode::NO_CONTENT);
        stream.read_until("the second part").await;
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_server_action_sets_a_cookie_for_one_client_only() {
    for routes in [ROUTES, NAIVE] {
        let (gateway, mut ann) = NEXT.gateway_and_client(routes).await;
        let page = ann.get("/greeting").await;
        assert!(page.text().contains("Hello, stranger!"), "{}", page.text());
        let (kind, body) = Form::in_page(&page.text(), "multipart/form-data").with("name", "Ann").multipart();
        let response = ann.post("/greeting", &kind, body).await;
        assert!(response.text().contains("Hello, Ann!"), "{} {}", response.status, response.text());
        assert_eq!(ann.cookies.get("name").map(String::as_str), Some("Ann"));
        for _ in 0..2 {
            assert!(ann.get("/greeting").await.text().contains("Hello, Ann!"), "{routes}");
            let other_client = gateway.client().get("/greeting").await;
            assert!(other_client.text().contains("Hello, stranger!"), "{routes}: {}", other_client.text());
            assert!(!other_client.headers.contains_key(SET_COOKIE), "{:?}", other_client.headers);
        }
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_cross_site_form_is_rejected_by_the_application_as_without_a_gateway() {
    let gateway = NEXT.gateway(ROUTES).await;
    let mut client = gateway.client();
    let page = client.get("/greeting").await.text();
    let (kind, body) = Form::in_page(&page, "multipart/form-data").with("name", "Eve").multipart();
    let response = client.post_from("http://evil.example", "/greeting", &kind, body).await;
    assert!(!response.text().contains("Hello, Eve!"), "{}", response.text());
    assert!(!client.cookies.contains_key("name"));
}
