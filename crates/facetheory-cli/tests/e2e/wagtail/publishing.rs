//! Publishing through the gateway.

use http::StatusCode;

use super::{ROUTES, SHORT, WAGTAIL, logged_in};
use crate::client::Client;
use crate::form::Form;
use crate::wait_for;

/// The form for a page below the front page of the template, whose id is 3.
const ADD: &str = "/admin/pages/add/home/homepage/3/";

/// Publishes a page through the form at this path.
async fn publish(editor: &mut Client, target: &str, title: &str, slug: &str) {
    let form = Form::in_page(&editor.get(target).await.text(), "id=\"page-edit-form\"")
        .with("title", title)
        .with("slug", slug)
        .with("action-publish", "action-publish");
    let (kind, body) = form.multipart();
    let published = editor.post(target, &kind, body).await;
    assert_eq!(published.status, StatusCode::FOUND, "{}", published.text());
}

/// The path of the edit form of the page with this title, from the list of pages.
async fn edit(editor: &mut Client, title: &str) -> String {
    let list = editor.get("/admin/pages/3/").await.text();
    let menu = format!("aria-label=\"More options for &#x27;{title}&#x27;");
    let rest = list.split_once(&menu).map(|(_, rest)| rest).unwrap_or_default();
    let link =
        rest.split("href=\"").find(|link| link.contains("/edit/")).and_then(|link| link.split('"').next());
    link.unwrap_or_else(|| panic!("no edit link for {title:?} in {list}")).to_owned()
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_published_page_is_visible_after_its_interval() {
    let (gateway, mut other_client) = WAGTAIL.gateway_and_client(SHORT).await;
    assert_eq!(other_client.get("/news/").await.status, StatusCode::NOT_FOUND);
    let mut editor = logged_in(&gateway).await;
    publish(&mut editor, ADD, "The first words", "news").await;
    let shows = async |other_client: &mut Client, title: &str| {
        let response = other_client.get("/news/").await;
        (response.status == StatusCode::OK && response.text().contains(title)).then_some(())
    };
    wait_for("the new page", async || shows(&mut other_client, "The first words").await).await;
    let form = edit(&mut editor, "The first words").await;
    publish(&mut editor, &form, "The second thoughts", "news").await;
    wait_for("the page as edited", async || shows(&mut other_client, "The second thoughts").await).await;
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_changed_page_is_visible_at_once_after_an_invalidation() {
    let gateway = WAGTAIL.gateway(ROUTES).await;
    let mut editor = logged_in(&gateway).await;
    publish(&mut editor, ADD, "Open on Monday", "notice").await;
    assert!(gateway.client().get("/notice/").await.text().contains("Open on Monday"));
    let form = edit(&mut editor, "Open on Monday").await;
    publish(&mut editor, &form, "Closed on Monday", "notice").await;
    let before = gateway.client().get("/notice/").await;
    assert!(before.state() == "hit" && before.text().contains("Open on Monday"), "{}", before.text());
    gateway.invalidate("/notice/").await;
    let after = gateway.client().get("/notice/").await;
    assert!(after.state() == "miss" && after.text().contains("Closed on Monday"), "{}", after.text());
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn an_uploaded_file_arrives_complete_in_both_directions() {
    let gateway = WAGTAIL.gateway(ROUTES).await;
    let mut editor = logged_in(&gateway).await;
    let lines = (0..UPLOADED_LINES).map(|number| format!("line {number} of the notes\n"));
    let notes: String = lines.collect();
    let add = "/admin/documents/add/";
    let (kind, body) = Form::in_page(&editor.get(add).await.text(), "action=\"/admin/documents/add/\"")
        .with("title", "Notes")
        .with_file("file", "notes.txt", &notes)
        .multipart();
    let uploaded = editor.post(add, &kind, body).await;
    assert_eq!(uploaded.status, StatusCode::FOUND, "{}", uploaded.text());

    // Wagtail sends it with `Content-Encoding: None`, an unknown coding, so it is forwarded and not cached.
    for _ in 0..2 {
        let file = gateway.client().get("/documents/1/notes.txt").await;
        assert_eq!((file.status, file.state()), (StatusCode::OK, "bypass"), "{:?}", file.headers);
        assert!(file.body == notes, "{} bytes of {}", file.body.len(), notes.len());
    }
}

/// About three megabytes: more than any buffer.
const UPLOADED_LINES: u32 = 120_000;
