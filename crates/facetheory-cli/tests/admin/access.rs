//! Access control of the admin listener.

use std::fs;

use serde_json::json;

use crate::process::{Gateway, Origin, Request, error_of, facetheory};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn an_address_other_than_loopback_needs_a_token() {
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
    let printed = error_of(&mut serve(None));
    assert!(
        printed.contains("--admin-token-file") && printed.contains("FACETHEORY_ADMIN_TOKEN"),
        "{printed}"
    );
    let printed = error_of(&mut serve(Some("short")));
    assert!(printed.contains("it has 5 characters, but at least 16 are required"), "{printed}");
    assert!(!printed.contains("short"), "the token is never printed");
    let printed = error_of(serve(None).args(["--admin-token-file", "/nowhere/token"]));
    assert!(printed.contains("cannot read the admin token from /nowhere/token"), "{printed}");
}

#[test]
fn a_token_is_required_for_everything_but_health() {
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
        let rejected = gateway.get(path);
        rejected.problem(401);
        assert_eq!(rejected.header("www-authenticate"), "bearer", "{path}");
    }
    for shown in [
        format!("Bearer {}", &TOKEN[1..]),
        format!("Bearer {TOKEN}0"),
        "Bearer ".to_owned(),
        "Bearer".to_owned(),
        format!("Basic {TOKEN}"),
        TOKEN.to_owned(),
    ] {
        Request::get("/metrics").with("authorization", &shown).send(&gateway.admin).problem(401);
    }
    let shown = format!("Bearer {TOKEN}");
    for name in ["127.0.0.1", "gateway.example.com"] {
        let accepted =
            Request::get("/metrics").with("host", name).with("authorization", &shown).send(&gateway.admin);
        assert_eq!(accepted.status, 200, "with a token, any host is allowed: {name}");
    }
    let twice = Request::get("/metrics").with("authorization", &shown).with("authorization", &shown);
    twice.send(&gateway.admin).problem(401);
}

#[test]
fn attack_60_all_wrong_tokens_get_the_same_response() {
    let origin = Origin::start();
    let gateway =
        Gateway::with(&origin, facetheory().env("FACETHEORY_ADMIN_TOKEN", TOKEN), &["--log", "off"]);
    let rejected = |shown: &str| {
        let shown = format!("Bearer {shown}");
        Request::get("/api/v1/entries").with("authorization", &shown).send(&gateway.admin).problem(401)
    };
    let words = rejected("x");
    for shown in [&TOKEN[..31], &TOKEN.to_uppercase(), &TOKEN.repeat(100)] {
        assert_eq!(rejected(shown), words);
    }
}

#[test]
fn a_foreign_host_is_rejected_against_dns_rebinding() {
    let gateway = Gateway::start(&Origin::start());
    let port = gateway.admin.rsplit(':').next().expect("a port").to_owned();
    for host in [
        "evil.example.com",
        &format!("evil.example.com:{port}"),
        "127.0.0.1.example.com",
        "localhost.evil",
        "10.0.0.1",
    ] {
        Request::get("/api/v1/entries").with("host", host).send(&gateway.admin).problem(403);
    }
    for host in ["localhost", &format!("LOCALHOST:{port}"), "127.0.0.1", &format!("[::1]:{port}")] {
        let accepted = Request::get("/api/v1/entries").with("host", host).send(&gateway.admin);
        assert_eq!(accepted.status, 200, "{host}");
    }
}

#[test]
fn cross_site_requests_are_rejected() {
    let gateway = Gateway::start(&Origin::start());
    let body = json!({ "everything": true });
    let request = || Request::post("/api/v1/invalidate", &body);
    for (name, value) in [
        ("origin", "https://evil.example.com"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        request().with(name, value).send(&gateway.admin).problem(403);
    }
    let own = format!("http://{}", gateway.admin);
    let accepted = request().with("origin", &own).with("sec-fetch-site", "same-origin").send(&gateway.admin);
    assert_eq!(accepted.status, 200);
    // A form can send these content types without a preflight request.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let form = Request::get("/api/v1/invalidate").with("content-type", kind);
        form.method("POST", &body.to_string()).send(&gateway.admin).problem(415);
    }
}

#[test]
fn attack_59_the_public_listener_does_not_serve_the_admin_api() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    for path in ["/metrics", "/healthz", "/api/v1/entries", "/%6detrics", "/api%2fv1%2fentries"] {
        let public = gateway.client_get(path);
        let is_from_origin = public.body.contains(" render ") || public.status == 400;
        assert!(is_from_origin && !public.body.contains("facetheory_"), "{path}: {public:?}");
    }
}

#[test]
fn a_gateway_without_an_admin_listener_serves_clients() {
    let origin = Origin::start();
    let gateway = Gateway::without_admin(&origin);
    assert_eq!(gateway.client_get("/a").status, 200);
}
