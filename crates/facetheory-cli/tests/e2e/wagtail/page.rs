//! Public pages and files.

use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH, RANGE};
use http::{Method, StatusCode};

use super::{FORM, ROUTES, SHORT, WAGTAIL};
use crate::wait_for;

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn fifty_concurrent_clients_get_the_page_of_one_render() {
    let original = WAGTAIL.get_directly("/").await;
    let headers = ["etag", "content-type", "referrer-policy"];
    WAGTAIL.gateway(ROUTES).await.assert_one_render_for_all("/", &original, &headers).await;
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_conditional_request_is_served_without_the_application() {
    let (gateway, mut client) = WAGTAIL.gateway_and_client(ROUTES).await;
    let page = client.get("/").await;
    let again = client.get_with("/", &[(IF_NONE_MATCH, page.header("etag"))]).await;
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
    let head = client.head("/").await;
    assert_eq!((head.status, head.state(), head.body.len()), (StatusCode::OK, "hit", 0));
    assert_eq!(head.header("content-length"), page.body.len().to_string());
    assert_eq!(gateway.recorder().requests_for("/").len(), 1);
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn head_first_caches_the_complete_page() {
    let (gateway, mut client) = WAGTAIL.gateway_and_client(ROUTES).await;
    assert_eq!(client.head("/search/").await.status, StatusCode::OK);
    let page = client.get("/search/").await;
    assert_eq!((page.state(), &page.body), ("hit", &WAGTAIL.get_directly("/search/").await.body));
    let seen: Vec<_> = gateway
        .recorder()
        .requests_for("/search/")
        .into_iter()
        .map(|request_record| request_record.method)
        .collect();
    assert_eq!(seen, [Method::GET]);
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn an_unchanged_stale_page_is_revalidated_without_its_body() {
    let (gateway, mut client) = WAGTAIL.gateway_and_client(SHORT).await;
    let page = client.get("/").await;
    let revalidation = wait_for("a revalidation", async || {
        let response = client.get("/").await;
        assert_eq!(response.body, page.body);
        gateway.recorder().requests_for("/").get(1).cloned()
    })
    .await;
    assert_eq!(revalidation.status, StatusCode::NOT_MODIFIED);
    assert_eq!(revalidation.headers.get(IF_NONE_MATCH).expect("a condition"), page.header("etag"));
    wait_for("a fresh page", async || (client.get("/").await.state() == "hit").then_some(())).await;
    assert_eq!(client.get("/").await.body, page.body);
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn static_files_are_cached_by_their_rule_and_served_in_ranges() {
    let (gateway, mut client) = WAGTAIL.gateway_and_client(ROUTES).await;
    let hash_and_ending = client.get("/").await.quoted_after("/static/css/welcome_page.");
    let target = format!("/static/css/welcome_page.{hash_and_ending}");
    let file = client.get(&target).await;
    assert_eq!((file.status, file.state()), (StatusCode::OK, "miss"));
    assert_eq!(file.body, WAGTAIL.get_directly(&target).await.body);
    assert!(file.header("cache-control").contains("s-maxage=3600"), "{:?}", file.headers);
    let part = client.get_with(&target, &[(RANGE, "bytes=10-29")]).await;
    assert_eq!((part.status, part.state()), (StatusCode::PARTIAL_CONTENT, "hit"));
    assert_eq!(part.header("content-range"), format!("bytes 10-29/{}", file.body.len()));
    assert_eq!(part.body, file.body.slice(10..30));
    assert_eq!(gateway.recorder().requests_for(&target).len(), 1);
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_range_request_first_caches_the_complete_file() {
    let gateway = WAGTAIL.gateway(ROUTES).await;
    let target = "/static/css/welcome_page.css";
    let part = gateway.client().get_with(target, &[(RANGE, "bytes=0-4")]).await;
    assert_eq!((part.status, part.body.len()), (StatusCode::PARTIAL_CONTENT, 5));
    let file = gateway.client().get(target).await;
    assert_eq!((file.status, file.body), (StatusCode::OK, WAGTAIL.get_directly(target).await.body));
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn redirects_and_missing_pages_are_cached() {
    let (gateway, mut client) = WAGTAIL.gateway_and_client(ROUTES).await;
    for state in ["miss", "hit"] {
        let moved = client.get("/search").await;
        assert_eq!((moved.status, moved.header("location")), (StatusCode::MOVED_PERMANENTLY, "/search/"));
        let missing = client.get("/nobody-wrote-this/").await;
        assert_eq!((missing.status, missing.state()), (StatusCode::NOT_FOUND, state));
        assert_eq!(missing.body, WAGTAIL.get_directly("/nobody-wrote-this/").await.body);
    }
    assert_eq!(gateway.recorder().requests_for("/nobody-wrote-this/").len(), 1);
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn every_search_has_a_page_of_its_own() {
    let gateway = WAGTAIL.gateway(ROUTES).await;
    for state in ["miss", "hit"] {
        let home = gateway.client().get("/search/?query=Home").await;
        let nothing = gateway.client().get("/search/?query=nowhere").await;
        assert_eq!((home.state(), nothing.state()), (state, state));
        assert!(home.text().contains("<a href=\"/\">Home</a>"), "{}", home.text());
        assert!(nothing.text().contains("No results found"), "{}", nothing.text());
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_streamed_response_arrives_piece_by_piece() {
    let gateway = WAGTAIL.gateway(ROUTES).await;
    let mut client = gateway.client();
    let mut stream = client.stream("/stream/story/").await;
    assert_eq!(stream.status, StatusCode::OK);
    assert_eq!(stream.read_until("the first part").await, "the first part\n");
    assert_eq!(client.post("/stream/story/", FORM, "").await.status, StatusCode::NO_CONTENT);
    stream.read_until("the second part").await;
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn cached_pages_are_served_while_the_application_is_down() {
    let (mut gateway, mut client) = WAGTAIL.gateway_and_client(SHORT).await;
    let page = client.get("/").await;
    assert_eq!(page.state(), "miss");
    gateway.stop_application();
    wait_for("a stale page", async || {
        let response = client.get("/").await;
        assert_eq!((response.status, &response.body), (StatusCode::OK, &page.body));
        response.state().starts_with("stale").then_some(())
    })
    .await;
    assert_eq!(client.get("/search/").await.status, StatusCode::BAD_GATEWAY);
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn pages_are_compressed_for_clients_that_accept_it() {
    let gateway = WAGTAIL.gateway(ROUTES).await;
    let original = WAGTAIL.get_directly("/").await;
    let compressed = wait_for("a compressed page", async || {
        let response = gateway.client().get_with("/", &[(ACCEPT_ENCODING, "gzip")]).await;
        (response.header("content-encoding") == "gzip").then_some(response)
    })
    .await;
    assert!(
        compressed.body.len() < original.body.len()
            && compressed.header("vary").to_lowercase().contains("accept-encoding")
    );
    let plain = gateway.client().get("/").await;
    assert_eq!((plain.header("content-encoding"), &plain.body), ("", &original.body));
    assert_eq!(gateway.recorder().requests_for("/").len(), 1);
}
