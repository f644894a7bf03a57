//! Pages and files that are for everyone.

use std::collections::BTreeSet;

use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH, RANGE};
use http::{Method, StatusCode};

use super::{FORM, ROUTES, SHORT, before_wagtail, from_the_application};
use crate::until;
use crate::visitor::Answer;

#[tokio::test]
async fn fifty_visitors_at_once_get_the_very_page_of_one_render() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let answers = gateway.crowd("/").await;
    let original = from_the_application("/").await;
    for answer in &answers {
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.body, original.body);
        assert_eq!(answer.header("etag"), original.header("etag"));
        assert_eq!(answer.header("content-type"), original.header("content-type"));
        assert_eq!(answer.header("referrer-policy"), original.header("referrer-policy"));
    }
    let states: BTreeSet<&str> = answers.iter().map(Answer::state).collect();
    assert!(states.contains("miss") && !states.contains("bypass"), "{states:?}");
    assert_eq!(gateway.witness().saw("/").len(), 1);
    assert_eq!(gateway.visitor().get("/").await.state(), "hit");
}

#[tokio::test]
async fn whoever_has_the_page_is_told_so_by_the_gateway_alone() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let mut visitor = gateway.visitor();
    let page = visitor.get("/").await;
    let again = visitor.get_with("/", &[(IF_NONE_MATCH, page.header("etag"))]).await;
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
    let head = visitor.head("/").await;
    assert_eq!((head.status, head.state(), head.body.len()), (StatusCode::OK, "hit", 0));
    assert_eq!(head.header("content-length"), page.body.len().to_string());
    assert_eq!(gateway.witness().saw("/").len(), 1);
}

#[tokio::test]
async fn head_first_keeps_the_whole_page() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let mut visitor = gateway.visitor();
    assert_eq!(visitor.head("/search/").await.status, StatusCode::OK);
    let page = visitor.get("/search/").await;
    assert_eq!((page.state(), &page.body), ("hit", &from_the_application("/search/").await.body));
    let seen: Vec<_> = gateway.witness().saw("/search/").into_iter().map(|note| note.method).collect();
    assert_eq!(seen, [Method::GET]);
}

#[tokio::test]
async fn a_stale_page_that_has_not_changed_is_renewed_without_being_sent_again() {
    let Some(gateway) = before_wagtail(SHORT).await else { return };
    let mut visitor = gateway.visitor();
    let page = visitor.get("/").await;
    let renewal = until("a renewal", async || {
        let answer = visitor.get("/").await;
        assert_eq!(answer.body, page.body);
        gateway.witness().saw("/").get(1).cloned()
    })
    .await;
    assert_eq!(renewal.status, StatusCode::NOT_MODIFIED);
    assert_eq!(renewal.headers.get(IF_NONE_MATCH).expect("a condition"), page.header("etag"));
    until("a fresh page", async || (visitor.get("/").await.state() == "hit").then_some(())).await;
    assert_eq!(visitor.get("/").await.body, page.body);
}

#[tokio::test]
async fn static_files_are_kept_by_their_rule_and_sent_in_parts() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let mut visitor = gateway.visitor();
    let page = visitor.get("/").await.text();
    let (_, rest) = page.split_once("/static/css/welcome_page.").expect("a style sheet with its hash");
    let target = format!("/static/css/welcome_page.{}", rest.split('"').next().expect("a name"));
    let file = visitor.get(&target).await;
    assert_eq!((file.status, file.state()), (StatusCode::OK, "miss"));
    assert_eq!(file.body, from_the_application(&target).await.body);
    assert!(file.header("cache-control").contains("s-maxage=3600"), "{:?}", file.headers);
    let part = visitor.get_with(&target, &[(RANGE, "bytes=10-29")]).await;
    assert_eq!((part.status, part.state()), (StatusCode::PARTIAL_CONTENT, "hit"));
    assert_eq!(part.header("content-range"), format!("bytes 10-29/{}", file.body.len()));
    assert_eq!(part.body, file.body.slice(10..30));
    assert_eq!(gateway.witness().saw(&target).len(), 1);
}

#[tokio::test]
async fn a_part_first_keeps_the_whole_file() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let target = "/static/css/welcome_page.css";
    let part = gateway.visitor().get_with(target, &[(RANGE, "bytes=0-4")]).await;
    assert_eq!((part.status, part.body.len()), (StatusCode::PARTIAL_CONTENT, 5));
    let file = gateway.visitor().get(target).await;
    assert_eq!((file.status, file.body), (StatusCode::OK, from_the_application(target).await.body));
}

#[tokio::test]
async fn redirects_and_missing_pages_are_kept_as_what_they_are() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    for state in ["miss", "hit"] {
        let moved = gateway.visitor().get("/search").await;
        assert_eq!((moved.status, moved.header("location")), (StatusCode::MOVED_PERMANENTLY, "/search/"));
        let missing = gateway.visitor().get("/nobody-wrote-this/").await;
        assert_eq!((missing.status, missing.state()), (StatusCode::NOT_FOUND, state));
        assert_eq!(missing.body, from_the_application("/nobody-wrote-this/").await.body);
    }
    assert_eq!(gateway.witness().saw("/nobody-wrote-this/").len(), 1);
}

#[tokio::test]
async fn every_search_has_a_page_of_its_own() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    for state in ["miss", "hit"] {
        let home = gateway.visitor().get("/search/?query=Home").await;
        let nothing = gateway.visitor().get("/search/?query=nowhere").await;
        assert_eq!((home.state(), nothing.state()), (state, state));
        assert!(home.text().contains("<a href=\"/\">Home</a>"), "{}", home.text());
        assert!(nothing.text().contains("No results found"), "{}", nothing.text());
    }
}

#[tokio::test]
async fn an_answer_that_is_streamed_arrives_piece_by_piece() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let mut visitor = gateway.visitor();
    let mut stream = visitor.stream("/stream/story/").await;
    assert_eq!(stream.status, StatusCode::OK);
    assert_eq!(stream.reads("the first part").await, "the first part\n");
    assert_eq!(visitor.post("/stream/story/", FORM, "").await.status, StatusCode::NO_CONTENT);
    stream.reads("the second part").await;
}

#[tokio::test]
async fn pages_stay_when_the_application_has_gone() {
    let Some(mut gateway) = before_wagtail(SHORT).await else { return };
    let mut visitor = gateway.visitor();
    let page = visitor.get("/").await;
    assert_eq!(page.state(), "miss");
    gateway.loses_its_application();
    until("a page that is stale", async || {
        let answer = visitor.get("/").await;
        assert_eq!((answer.status, &answer.body), (StatusCode::OK, &page.body));
        answer.state().starts_with("stale").then_some(())
    })
    .await;
    assert_eq!(visitor.get("/search/").await.status, StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn whoever_takes_a_coding_gets_it_and_others_get_the_page_as_it_is() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let original = from_the_application("/").await;
    let coded = until("a coded page", async || {
        let answer = gateway.visitor().get_with("/", &[(ACCEPT_ENCODING, "gzip")]).await;
        (answer.header("content-encoding") == "gzip").then_some(answer)
    })
    .await;
    assert!(
        coded.body.len() < original.body.len()
            && coded.header("vary").to_lowercase().contains("accept-encoding")
    );
    let plain = gateway.visitor().get("/").await;
    assert_eq!((plain.header("content-encoding"), &plain.body), ("", &original.body));
    assert_eq!(gateway.witness().saw("/").len(), 1);
}
