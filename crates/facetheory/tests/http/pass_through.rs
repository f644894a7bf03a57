//! Requests that are passed through or rejected, and the input that renders get.

use bytes::Bytes;
use facetheory::{IsrLayer, Policy, RequestOrigin, Route, Routes, TenantFrom};
use http::Request;
use http_body_util::Full;
use tower::ServiceExt as _;

use crate::fixture::{INTERVAL, Site};

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_for_a_page_are_passed_through_unchanged() {
    let site = Site::new();
    for (method, headers, detail) in [
        ("POST", &[][..], "fwd=method; fwd-status=200; detail=method"),
        ("GET", &[("authorization", "Bearer x")][..], "fwd=bypass; fwd-status=200; detail=authorization"),
        ("GET", &[("content-length", "5")][..], "fwd=bypass; fwd-status=200; detail=body"),
        ("GET", &[("upgrade", "websocket")][..], "fwd=bypass; fwd-status=200; detail=upgrade"),
    ] {
        for _ in 0..2 {
            let response = site.send(method, "/a?q=1", headers).await;
            assert_eq!((response.status, response.state()), (200, "bypass"));
            assert_eq!(response.header("cache-status"), format!("FaceTheory; {detail}"));
        }
        let requests = site.requests();
        assert_eq!(requests.len(), 2, "{method} {headers:?}");
        assert_eq!(
            (requests[0].method().as_str(), requests[0].uri().to_string().as_str()),
            (method, "/a?q=1")
        );
        assert!(
            headers.iter().all(|(name, value)| requests[0].headers()[*name] == *value),
            "all headers are forwarded"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_on_a_route_without_tenants_is_rejected_before_any_lookup() {
    let site = Site::new();
    let rejected = site.get_with("/a", &[("x-tenant-id", "acme")]).await;
    assert_eq!((rejected.status, rejected.state()), (400, "bypass"));
    assert!(rejected.text().contains("x-tenant-id"), "{}", rejected.text());
    let dots = site.get("/a/../b").await;
    assert_eq!(dots.status, 400);
    assert!(site.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_render_has_no_request_origin() {
    let site = Site::new();
    let request = Request::get("/a").header("host", "example.com").extension(RequestOrigin::Client);
    let request = request.body(Full::<Bytes>::default()).expect("a request");
    site.service.clone().oneshot(request).await.expect("no error");
    assert_eq!(site.requests()[0].extensions().get::<RequestOrigin>(), None);
}

#[tokio::test(start_paused = true)]
async fn only_keyed_input_reaches_the_renderer() {
    let site = Site::new();
    let sent = [
        ("accept-language", "de"),
        ("cookie", "theme=dark; session=secret"),
        ("x-evil", "1"),
        ("x-forwarded-host", "evil.example"),
        ("accept-encoding", "br"),
        ("if-none-match", "\"v1\""),
    ];
    site.get_with("/plain/a?utm=1", &sent).await;
    site.get_with("/some/a?utm=1&page=2", &sent).await;
    site.get_with("/a?utm=1", &sent).await;
    let requests = site.requests();
    let seen: Vec<(String, Vec<(String, String)>)> = requests
        .iter()
        .map(|request| {
            let headers = request.headers().iter();
            let headers =
                headers.map(|(name, value)| (name.to_string(), value.to_str().expect("a text").to_owned()));
            (request.uri().to_string(), headers.collect())
        })
        .collect();
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let host = header("host", "example.com");
    let some = vec![host.clone(), header("accept-language", "de"), header("cookie", "theme=dark")];
    assert_eq!(
        seen,
        [
            ("/plain/a".to_owned(), vec![host.clone()]),
            ("/some/a?page=2".to_owned(), some),
            ("/a?utm=1".to_owned(), vec![host]),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn pages_are_distinguished_only_by_the_input_that_their_route_lists() {
    let site = Site::new();
    let state =
        async |path: &str, headers: &[(&str, &str)]| site.get_with(path, headers).await.state().to_owned();
    assert_eq!(state("/some/a", &[("accept-language", "de")]).await, "miss");
    assert_eq!(state("/some/a", &[("accept-language", "de"), ("x-other", "1")]).await, "hit");
    assert_eq!(state("/some/a", &[("accept-language", "fr")]).await, "miss");
    assert_eq!(state("/some/a", &[("accept-language", "de"), ("cookie", "theme=dark")]).await, "miss");
    assert_eq!(state("/some/a?utm=1", &[("accept-language", "de")]).await, "hit");
    assert_eq!(state("/a?x=1", &[]).await, "miss");
    assert_eq!(state("/a?x=2", &[]).await, "miss");
    assert_eq!(state("/a?x=1", &[("host", "other.example")]).await, "miss");
    let vary = site.get_with("/some/a", &[("accept-language", "de")]).await;
    assert_eq!(vary.header("vary"), "accept-language, cookie");
}

#[tokio::test(start_paused = true)]
async fn tenants_never_share_a_page() {
    let by = |from: TenantFrom| Route::new("/{tenant}/a", Policy::every(INTERVAL)).tenant(from);
    for (route, requests_of_tenants) in [
        (
            by(TenantFrom::Subdomain("example.com".into())),
            [("/x/a", "acme.example.com", ""), ("/x/a", "other.example.com", "")],
        ),
        (
            by(TenantFrom::Param("tenant".into())),
            [("/acme/a", "example.com", ""), ("/other/a", "example.com", "")],
        ),
        (
            by(TenantFrom::TrustedHeader("x-tenant-id".into())),
            [("/x/a", "example.com", "acme"), ("/x/a", "example.com", "other")],
        ),
    ] {
        let site = Site::with([route]);
        for state in ["miss", "hit"] {
            for (path, host, tenant) in requests_of_tenants {
                let headers = [("host", host), ("x-tenant-id", tenant)];
                let headers = if tenant.is_empty() { &headers[..1] } else { &headers[..] };
                let response = site.get_with(path, headers).await;
                assert_eq!((response.status, response.state()), (200, state), "{path} of {host} {tenant}");
            }
        }
        let acme = facetheory::Tenant::new("acme").expect("a tenant");
        site.isr.invalidate_tag(&facetheory::Tag::everything(), Some(&acme)).await.expect("no error");
        for ((path, host, tenant), expected) in requests_of_tenants.into_iter().zip(["stale", "hit"]) {
            let headers = [("host", host), ("x-tenant-id", tenant)];
            let headers = if tenant.is_empty() { &headers[..1] } else { &headers[..] };
            assert_eq!(site.get_with(path, headers).await.state(), expected, "{path} of {host} {tenant}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_strict_layer_checks_requests_that_are_passed_through() {
    let routes = || Routes::new([]).and_then(|routes| routes.of_sites(["example.com"])).expect("routes");
    let (strict, lenient) = (Site::under(routes(), IsrLayer::strict), Site::of(routes()));
    let hosts = |host| vec![("host", host)];
    for (path, headers, expected) in [
        ("/fine", hosts("example.com"), 200),
        ("/a/../b", hosts("example.com"), 400),
        ("/a/%2e%2e/b", hosts("example.com"), 400),
        ("/a%00", hosts("example.com"), 400),
        ("/fine", hosts("elsewhere.com"), 421),
        ("/fine", hosts("a@b"), 400),
        ("/fine", vec![("host", "example.com"), ("host", "example.com")], 400),
    ] {
        for method in ["GET", "POST"] {
            let response = strict.send(method, path, &headers).await;
            assert_eq!(response.status, expected, "{method} {path} {headers:?}");
            assert_eq!(strict.requests().len(), usize::from(expected == 200), "{method} {path} {headers:?}");
            assert_eq!(lenient.send(method, path, &headers).await.status, 200, "{method} {path} {headers:?}");
        }
    }
}
