//! Content for logged-in users only.

use http::StatusCode;
use http::header::SET_COOKIE;

use super::{FORM, NAIVE, NAIVE_BY_SESSION, NAME, PASSWORD, ROUTES, WAGTAIL, logged_in};
use crate::client::{Client, Response};
use crate::form::Form;

/// The secrets of one client that no other client may get.
struct Secrets {
    words: Vec<String>,
}

impl Secrets {
    /// The secrets of a logged-in client.
    fn of(editor: &Client) -> Self {
        let mut words: Vec<String> = editor.cookies.values().cloned().collect();
        words.push("editor@example.com".to_owned());
        words.push("/admin/logout/".to_owned());
        words.push("wagtail-userbar".to_owned());
        Secrets { words }
    }

    fn are_not_in(&self, target: &str, response: &Response) {
        let all = format!("{:?}\n{}", response.headers, response.text());
        for word in &self.words {
            assert!(!all.contains(word.as_str()), "{target} shows {word:?} to another client: {all}");
        }
        let kept = matches!(response.state(), "hit" | "stale" | "wait-hit" | "miss");
        assert!(
            !(kept && response.headers.contains_key(SET_COOKIE)),
            "{target} is cached with a cookie: {all}"
        );
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn the_login_of_an_editor_is_never_visible_to_other_clients() {
    let targets = [
        "/",
        "/search/",
        "/admin/",
        "/admin/account/",
        "/admin/pages/3/edit/",
        "/admin/login/",
        "/django-admin/",
    ];
    for routes in [ROUTES, NAIVE_BY_SESSION, NAIVE] {
        let gateway = WAGTAIL.gateway(routes).await;
        let mut editor = logged_in(&gateway).await;
        let secrets = Secrets::of(&editor);
        for _ in 0..2 {
            for target in targets {
                let own = editor.get(target).await;
                assert!(!own.status.is_server_error(), "{target}: {}", own.status);
                secrets.are_not_in(target, &gateway.client().get(target).await);
            }
        }
        let dashboard = editor.get("/admin/").await;
        assert_eq!(dashboard.status, StatusCode::OK, "{routes}");
        assert!(dashboard.text().contains("/admin/logout/"), "{routes}: {}", dashboard.text());
        let front = editor.get("/").await.text();
        assert!(
            front.contains("wagtail-userbar"),
            "{routes}: an editor's page contains editing tools: {front}"
        );
        let turned_away = gateway.client().get("/admin/").await;
        assert_eq!(turned_away.header("location"), "/admin/login/?next=/admin/", "{routes}");
        assert_eq!(gateway.client().get("/").await.body, WAGTAIL.get_directly("/").await.body);
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_form_with_a_missing_token_or_wrong_password_fails_as_without_a_gateway() {
    let gateway = WAGTAIL.gateway(NAIVE).await;
    let mut client = gateway.client();
    let forged = client.post("/admin/login/", FORM, format!("username={NAME}&password={PASSWORD}")).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let page = client.get("/admin/login/").await.text();
    let form =
        Form::in_page(&page, "action=\"/admin/login/\"").with("username", NAME).with("password", "a guess");
    let refused = client.post("/admin/login/", FORM, form.encoded()).await;
    assert!(
        refused.text().contains("didn't match") || refused.text().contains("didn&#x27;t match"),
        "{}",
        refused.text()
    );
    assert!(!client.cookies.contains_key("sessionid"));
}
