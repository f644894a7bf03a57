//! What editors publish through the gateway, for everyone.

use http::StatusCode;

use super::{ROUTES, SHORT, in_front_of_wagtail, log_in};
use crate::client::Client;
use crate::form::Form;
use crate::wait_for;

/// The form for a page under the front page of the template, whose number is 3.
const ADD: &str = "/admin/pages/add/home/homepage/3/";

/// Publishes a page through the form at this address.
async fn publish(editor: &mut Client, target: &str, title: &str, slug: &str) {
    let form = Form::in_page(&editor.get(target).await.text(), "id=\"page-edit-form\"")
        .with("title", title)
        .with("slug", slug)
        .with("action-publish", "action-publish");
    let (kind, body) = form.multipart();
    let published = editor.post(target, &kind, body).await;
    assert_eq!(published.status, StatusCode::FOUND, "{}", published.text());
}

/// Where the page with this title is edited, as the list of pages says.
async fn edit(editor: &mut Client, title: &str) -> String {
    let list = editor.get("/admin/pages/3/").await.text();
    let menu = format!("aria-label=\"More options for &#x27;{title}&#x27;");
    let rest = list.split_once(&menu).map(|(_, rest)| rest).unwrap_or_default();
    let link =
        rest.split("href=\"").find(|link| link.contains("/edit/")).and_then(|link| link.split('"').next());
    link.unwrap_or_else(|| panic!("no way to edit {title:?} in {list}")).to_owned()
}

#[tokio::test]
async fn a_published_page_is_visible_after_its_interval() {
    let Some(gateway) = in_front_of_wagtail(SHORT).await else { return };
    let mut stranger = gateway.client();
    assert_eq!(stranger.get("/news/").await.status, StatusCode::NOT_FOUND);
    let mut editor = gateway.client();
    log_in(&mut editor).await;
    publish(&mut editor, ADD, "The first words", "news").await;
    let shows = async |stranger: &mut Client, title: &str| {
        let response = stranger.get("/news/").await;
        (response.status == StatusCode::OK && response.text().contains(title)).then_some(())
    };
    wait_for("the new page", async || shows(&mut stranger, "The first words").await).await;
    let form = edit(&mut editor, "The first words").await;
    publish(&mut editor, &form, "The second thoughts", "news").await;
    wait_for("the page as edited", async || shows(&mut stranger, "The second thoughts").await).await;
}

#[tokio::test]
async fn a_changed_page_is_visible_at_once_after_an_invalidation() {
    let Some(gateway) = in_front_of_wagtail(ROUTES).await else { return };
    let mut editor = gateway.client();
    log_in(&mut editor).await;
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
async fn an_uploaded_file_arrives_complete_in_both_directions() {
    let Some(gateway) = in_front_of_wagtail(ROUTES).await else { return };
    let mut editor = gateway.client();
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
        let file = gateway.client().get("/documents/1/notes.txt").await;
        assert_eq!((file.status, file.state()), (StatusCode::OK, "bypass"), "{:?}", file.headers);
        assert!(file.body == notes, "{} bytes of {}", file.body.len(), notes.len());
    }
}

/// About three megabytes: more than any buffer on the way.
const UPLOADED_LINES: u32 = 120_000;
