//! Wagtail, a CMS on Django: the site that `wagtail start` makes, served by gunicorn and whitenoise.

use std::collections::BTreeSet;

use http::header::{IF_NONE_MATCH, RANGE, SET_COOKIE};
use http::{Method, StatusCode};

use crate::form::Form;
use crate::gateway::Gateway;
use crate::visitor::{Answer, Visitor};
use crate::{application, until};

/// As somebody would write them who has thought about it: Django says that its pages vary on cookies, of which only the
/// session matters.
const ROUTES: &str = r#"
"/**" = { isr = "60s", cookies = ["sessionid"] }
"/static/**" = { isr = "1h", cookies = [] }
"/admin/**" = false
"/django-admin/**" = false
"/stream/**" = false
"#;
/// The same with pages that are stale after a second.
const SHORT: &str = r#"
"/**" = { isr = "1s", negative = "1s", cookies = ["sessionid"] }
"/admin/**" = false
"#;
/// As somebody would write them who has not: everything is to be kept, the administration too.
const CARELESS: &str = r#""/**" = { isr = "60s" }"#;
/// Careless, but with sessions told apart.
const CARELESS_BY_SESSION: &str = r#""/**" = { isr = "60s", cookies = ["sessionid", "csrftoken"] }"#;

/// The editor that scripts/test-e2e has made.
const NAME: &str = "editor";
const PASSWORD: &str = "only for tests";
const FORM: &str = "application/x-www-form-urlencoded";

async fn before_wagtail(routes: &str) -> Option<Gateway> {
    Some(Gateway::before(&application("WAGTAIL")?, routes).await)
}

/// The page as the application itself sends it.
async fn from_the_application(target: &str) -> Answer {
    Visitor::of(&application("WAGTAIL").expect("it is there")).get(target).await
}

/// Logs in through the forms of the gateway.
async fn log_in(visitor: &mut Visitor) {
    let page = visitor.get("/admin/login/").await;
    assert_eq!(page.status, StatusCode::OK);
    let form = Form::in_page(&page.text(), "action=\"/admin/login/\"");
    let form = form.with("username", NAME).with("password", PASSWORD);
    let answer = visitor.post("/admin/login/", FORM, form.encoded()).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (StatusCode::FOUND, "/admin/"),
        "{}",
        answer.text()
    );
    assert!(visitor.cookies.contains_key("sessionid"), "{:?}", visitor.cookies);
}

#[tokio::test]
async fn fifty_visitors_at_once_get_the_very_page_of_one_render() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let visits = (0..50).map(|_| {
        let mut visitor = gateway.visitor();
        async move { visitor.get("/").await }
    });
    let answers = futures_util::future::join_all(visits).await;
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

/// What one visitor must never get of another.
struct Secrets {
    words: Vec<String>,
}

impl Secrets {
    /// Of somebody who is logged in.
    fn of(editor: &Visitor) -> Self {
        let mut words: Vec<String> = editor.cookies.values().cloned().collect();
        words.push("editor@example.com".to_owned());
        words.push("/admin/logout/".to_owned());
        words.push("wagtail-userbar".to_owned());
        Secrets { words }
    }

    fn are_not_in(&self, target: &str, answer: &Answer) {
        let all = format!("{:?}\n{}", answer.headers, answer.text());
        for word in &self.words {
            assert!(!all.contains(word.as_str()), "{target} gives a stranger {word:?}: {all}");
        }
        let kept = matches!(answer.state(), "hit" | "stale" | "wait-hit" | "miss");
        assert!(!(kept && answer.headers.contains_key(SET_COOKIE)), "{target} is kept with a cookie: {all}");
    }
}

#[tokio::test]
async fn an_editor_logs_in_and_no_stranger_sees_anything_of_it_whatever_the_rules() {
    let targets = [
        "/",
        "/search/",
        "/admin/",
        "/admin/account/",
        "/admin/pages/3/edit/",
        "/admin/login/",
        "/django-admin/",
    ];
    for routes in [ROUTES, CARELESS_BY_SESSION, CARELESS] {
        let Some(gateway) = before_wagtail(routes).await else { return };
        let mut editor = gateway.visitor();
        log_in(&mut editor).await;
        let secrets = Secrets::of(&editor);
        for _ in 0..2 {
            for target in targets {
                let own = editor.get(target).await;
                assert!(!own.status.is_server_error(), "{target}: {}", own.status);
                secrets.are_not_in(target, &gateway.visitor().get(target).await);
            }
        }
        let dashboard = editor.get("/admin/").await;
        assert_eq!(dashboard.status, StatusCode::OK, "{routes}");
        assert!(dashboard.text().contains("/admin/logout/"), "{routes}: {}", dashboard.text());
        let front = editor.get("/").await.text();
        assert!(
            front.contains("wagtail-userbar"),
            "{routes}: an editor's page has tools to edit it: {front}"
        );
        let turned_away = gateway.visitor().get("/admin/").await;
        assert_eq!(turned_away.header("location"), "/admin/login/?next=/admin/", "{routes}");
        assert_eq!(gateway.visitor().get("/").await.body, from_the_application("/").await.body);
    }
}

#[tokio::test]
async fn a_form_without_its_token_or_with_a_wrong_password_fails_as_it_does_without_a_gateway() {
    let Some(gateway) = before_wagtail(CARELESS).await else { return };
    let mut visitor = gateway.visitor();
    let forged = visitor.post("/admin/login/", FORM, format!("username={NAME}&password={PASSWORD}")).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let page = visitor.get("/admin/login/").await.text();
    let form =
        Form::in_page(&page, "action=\"/admin/login/\"").with("username", NAME).with("password", "a guess");
    let refused = visitor.post("/admin/login/", FORM, form.encoded()).await;
    assert!(
        refused.text().contains("didn't match") || refused.text().contains("didn&#x27;t match"),
        "{}",
        refused.text()
    );
    assert!(!visitor.cookies.contains_key("sessionid"));
}

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
async fn an_answer_that_is_streamed_arrives_piece_by_piece() {
    let Some(gateway) = before_wagtail(ROUTES).await else { return };
    let mut visitor = gateway.visitor();
    let mut stream = visitor.stream("/stream/story/").await;
    assert_eq!(stream.status, StatusCode::OK);
    assert_eq!(stream.reads("the first part").await, "the first part\n");
    assert_eq!(visitor.post("/stream/story/", FORM, "").await.status, StatusCode::NO_CONTENT);
    stream.reads("the second part").await;
}
