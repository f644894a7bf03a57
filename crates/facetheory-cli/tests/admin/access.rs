//! Who may ask the admin listener.

use std::fs;

use serde_json::json;

use crate::process::{Ask, Gateway, Origin, facetheory, refusal};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn without_a_token_other_machines_cannot_be_let_in() {
    let serve = |token: Option<&str>| {
        let mut command = facetheory();
        command.args([
            "serve",
            "--origin",
            "http://127.0.0.1:1",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "0.0.0.0:0",
        ]);
        if let Some(token) = token {
            command.env("FACETHEORY_ADMIN_TOKEN", token);
        }
        command
    };
    let said = refusal(&mut serve(None));
    assert!(said.contains("--admin-token-file") && said.contains("FACETHEORY_ADMIN_TOKEN"), "{said}");
    let said = refusal(&mut serve(Some("short")));
    assert!(said.contains("it has 5 characters; it needs at least 16"), "{said}");
    assert!(!said.contains("short"), "a token is never shown");
    let said = refusal(serve(None).args(["--admin-token-file", "/nowhere/token"]));
    assert!(said.contains("the admin token cannot be read from /nowhere/token"), "{said}");
}

#[test]
fn a_token_is_required_for_all_but_the_signs_of_life() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).expect("a file");
    let origin = Origin::start();
    let file = file.display().to_string();
    let gateway = Gateway::with(&origin, &mut facetheory(), &["--log", "off", "--admin-token-file", &file]);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(gateway.get(path).status, 200, "{path}");
    }
    for path in ["/", "/metrics", "/api/v1/entries", "/api/v1/config", "/nothing"] {
        let refused = gateway.get(path);
        refused.problem(401);
        assert_eq!(refused.header("www-authenticate"), "bearer", "{path}");
    }
    for shown in [
        format!("Bearer {}", &TOKEN[1..]),
        format!("Bearer {TOKEN}0"),
        "Bearer ".to_owned(),
        "Bearer".to_owned(),
        format!("Basic {TOKEN}"),
        TOKEN.to_owned(),
    ] {
        Ask::get("/metrics").with("authorization", &shown).send(&gateway.admin).problem(401);
    }
    let shown = format!("Bearer {TOKEN}");
    for name in ["127.0.0.1", "gateway.example.com"] {
        let let_in =
            Ask::get("/metrics").with("host", name).with("authorization", &shown).send(&gateway.admin);
        assert_eq!(let_in.status, 200, "under any name: {name}");
    }
    let twice = Ask::get("/metrics").with("authorization", &shown).with("authorization", &shown);
    twice.send(&gateway.admin).problem(401);
}

#[test]
fn attack_60_a_token_of_any_length_and_shape_is_refused_in_the_same_words() {
    let origin = Origin::start();
    let gateway =
        Gateway::with(&origin, facetheory().env("FACETHEORY_ADMIN_TOKEN", TOKEN), &["--log", "off"]);
    let refused = |shown: &str| {
        let shown = format!("Bearer {shown}");
        Ask::get("/api/v1/entries").with("authorization", &shown).send(&gateway.admin).problem(401)
    };
    let words = refused("x");
    for shown in [&TOKEN[..31], &TOKEN.to_uppercase(), &TOKEN.repeat(100)] {
        assert_eq!(refused(shown), words);
    }
}

#[test]
fn a_name_of_somebody_else_that_leads_here_is_refused() {
    let gateway = Gateway::start(&Origin::start());
    let port = gateway.admin.rsplit(':').next().expect("a port").to_owned();
    for host in [
        "evil.example.com",
        &format!("evil.example.com:{port}"),
        "127.0.0.1.example.com",
        "localhost.evil",
        "10.0.0.1",
    ] {
        Ask::get("/api/v1/entries").with("host", host).send(&gateway.admin).problem(403);
    }
    for host in ["localhost", &format!("LOCALHOST:{port}"), "127.0.0.1", &format!("[::1]:{port}")] {
        let let_in = Ask::get("/api/v1/entries").with("host", host).send(&gateway.admin);
        assert_eq!(let_in.status, 200, "{host}");
    }
}

#[test]
fn a_page_of_another_site_cannot_make_a_browser_act() {
    let gateway = Gateway::start(&Origin::start());
    let wish = json!({ "everything": true });
    let ask = || Ask::post("/api/v1/invalidate", &wish);
    for (name, value) in [
        ("origin", "https://evil.example.com"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        ask().with(name, value).send(&gateway.admin).problem(403);
    }
    let own = format!("http://{}", gateway.admin);
    let let_in = ask().with("origin", &own).with("sec-fetch-site", "same-origin").send(&gateway.admin);
    assert_eq!(let_in.status, 200);
    // What a form can send without asking first is no JSON.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let form = Ask::get("/api/v1/invalidate").with("content-type", kind);
        form.sent_as("POST", &wish.to_string()).send(&gateway.admin).problem(415);
    }
}

#[test]
fn attack_59_the_public_listener_knows_nothing_of_the_admin() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    for path in ["/metrics", "/healthz", "/api/v1/entries", "/%6detrics", "/api%2fv1%2fentries"] {
        let public = gateway.visit(path);
        let is_the_origins = public.body.contains(" render ") || public.status == 400;
        assert!(is_the_origins && !public.body.contains("facetheory_"), "{path}: {public:?}");
    }
}

#[test]
fn an_admin_listener_that_is_off_is_not_there() {
    let origin = Origin::start();
    let gateway = Gateway::without_admin(&origin);
    assert_eq!(gateway.visit("/a").status, 200);
}
