//! Wagtail, a CMS on Django: the site of `wagtail start`, served by gunicorn and whitenoise.

mod login;
mod page;
mod publishing;

use http::StatusCode;

use crate::application;
use crate::client::{Client, Response};
use crate::form::Form;
use crate::gateway::Gateway;

/// Good routes: pages of Django vary by cookie, of which only the session matters.
const ROUTES: &str = r#"
"/**" = { isr = "60s", wait_timeout = "60s", render_timeout = "60s", cookies = ["sessionid"] }
"/static/**" = { isr = "1h", cookies = [] }
"/admin/**" = false
"/django-admin/**" = false
"/stream/**" = false
"#;
/// Good routes, with pages that are stale after a second.
const SHORT: &str = r#"
"/**" = { isr = "1s", negative_ttl = "1s", cookies = ["sessionid"] }
"/admin/**" = false
"#;
/// Naive routes: everything is cached, including the administration.
const NAIVE: &str = r#""/**" = { isr = "60s" }"#;
/// Naive routes, partitioned by session.
const NAIVE_BY_SESSION: &str = r#""/**" = { isr = "60s", cookies = ["sessionid", "csrftoken"] }"#;

/// The editor account that scripts/test-e2e creates.
const NAME: &str = "editor";
const PASSWORD: &str = "only for tests";
const FORM: &str = "application/x-www-form-urlencoded";

async fn in_front_of_wagtail(routes: &str) -> Gateway {
    Gateway::in_front_of(&application("WAGTAIL"), routes).await
}

/// The page without the gateway.
async fn from_the_application(target: &str) -> Response {
    Client::of(&application("WAGTAIL")).get(target).await
}

/// Logs in through the gateway.
async fn log_in(client: &mut Client) {
    let page = client.get("/admin/login/").await;
    assert_eq!(page.status, StatusCode::OK);
    let form = Form::in_page(&page.text(), "action=\"/admin/login/\"");
    let form = form.with("username", NAME).with("password", PASSWORD);
    let response = client.post("/admin/login/", FORM, form.encoded()).await;
    assert_eq!(
        (response.status, response.header("location")),
        (StatusCode::FOUND, "/admin/"),
        "{}",
        response.text()
    );
    assert!(client.cookies.contains_key("sessionid"), "{:?}", client.cookies);
}
