//! What editors publish through the gateway, for everyone.

use http::StatusCode;

use super::{ROUTES, SHORT, before_wagtail, log_in};
use crate::form::Form;
use crate::until;
use crate::visitor::Visitor;

#[tokio::test]
async fn what_an_editor_publishes_through_the_gateway_is_seen_by_everyone_once_its_interval_is_over() {
    let Some(gateway) = before_wagtail(SHORT).await else { return };
    let mut stranger = gateway.visitor();
    assert_eq!(stranger.get("/news/").await.status, StatusCode::NOT_FOUND);

    let mut editor = gateway.visitor();
    log_in(&mut editor).await;
    let add = "/admin/pages/add/home/homepage/3/";
    let form = Form::in_page(&editor.get(add).await.text(), "id=\"page-edit-form\"")
        .with("title", "The first words")
        .with("slug", "news")
        .with("action-publish", "action-publish");
    let (kind, body) = form.multipart();
    let published = editor.post(add, &kind, body).await;
    assert_eq!(published.status, StatusCode::FOUND, "{}", published.text());

    let title = async |stranger: &mut Visitor, title: &str| {
        let answer = stranger.get("/news/").await;
        (answer.status == StatusCode::OK && answer.text().contains(title)).then_some(())
    };
    until("the new page", async || title(&mut stranger, "The first words").await).await;

    let explorer = editor.get("/admin/pages/3/").await.text();
    let (_, rest) =
        explorer.split_once("aria-label=\"More options for &#x27;The first words&#x27;").unwrap_or(("", ""));
    let edit =
        rest.split("href=\"").find(|link| link.contains("/edit/")).and_then(|link| link.split('"').next());
    let edit = edit.unwrap_or_else(|| panic!("no way to edit it in {explorer}")).to_owned();
    let form = Form::in_page(&editor.get(&edit).await.text(), "id=\"page-edit-form\"")
        .with("title", "The second thoughts")
        .with("action-publish", "action-publish");
    let (kind, body) = form.multipart();
    let published = editor.post(&edit, &kind, body).await;
    assert_eq!(published.status, StatusCode::FOUND, "{}", published.text());
    until("the page as edited", async || title(&mut stranger, "The second thoughts").await).await;
    assert!(!stranger.cookies.contains_key("sessionid"));
}

#[tokio::test]
async fn a_file_that_an_editor_uploads_arrives_whole_both_ways() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let mut editor = gateway.visitor();
    log_in(&mut editor).await;
    let lines = (0..UPLOADED_LINES).map(|number| format!("line {number} of the notes\n"));
    let notes: String = lines.collect();
    let add = "/admin/documents/add/";
    let (kind, body) = Form::in_page(&editor.get(add).await.text(), "action=\"/admin/documents/add/\"")
        .with("title", "Notes")
        .with_file("file", "notes.txt", &notes)
        .multipart();
    let uploaded = editor.post(add, &kind, body).await;
    assert_eq!(uploaded.status, StatusCode::FOUND, "{}", uploaded.text());

    // Wagtail sends it with `Content-Encoding: None`, a coding that nobody knows, so it is passed on and not kept.
    for _ in 0..2 {
        let file = gateway.visitor().get("/documents/1/notes.txt").await;
        assert_eq!((file.status, file.state()), (StatusCode::OK, "bypass"), "{:?}", file.headers);
        assert!(file.body == notes, "{} bytes of {}", file.body.len(), notes.len());
    }
}

/// About three megabytes: more than any buffer on the way.
const UPLOADED_LINES: u32 = 120_000;
