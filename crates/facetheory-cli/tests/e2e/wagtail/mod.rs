//! Wagtail, a CMS on Django: the site of `wagtail start`, served by gunicorn and whitenoise.

mod login;
mod page;
mod publishing;

use http::StatusCode;

use crate::Application;
use crate::client::Client;
use crate::form::Form;
use crate::gateway::Gateway;

const WAGTAIL: Application = Application { variable: "FACETHEORY_E2E_WAGTAIL" };
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

/// A client of the gateway that has logged in.
async fn logged_in(gateway: &Gateway) -> Client {
    let mut client = gateway.client();
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
    client
}
