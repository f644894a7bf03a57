//! Operations on pages that a request names.

use std::time::Duration;

use bytes::Bytes;
use facetheory::{IdempotentRequest, IsrLayer, Kind, Outcome, PageKey, Policy, Query, Route, Routes};
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::fixture::{INTERVAL, SECOND, Site};

fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get(path).header("host", "example.com");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request")
}

#[tokio::test(start_paused = true)]
async fn a_page_is_named_by_a_request_for_it() {
    let site = Site::new();
    let page = |path: &str, headers: &[(&str, &str)]| {
        let page = site.service.page(&request(path, headers).into_parts().0);
        page.map(|page| page.map(|page| page.cache_key().to_owned()))
    };
    let plain = page("/some/a?page=2&utm=x", &[]).expect("a page").expect("a route");
    assert_eq!(plain, "default::example.com/some/{*path}?path=a&page=2");
    let german = page("/some/a", &[("accept-language", "de")]).expect("a page").expect("a route");
    assert!(german.contains("#auth="), "{german}");
    assert_eq!(page("/", &[]).expect("no error"), None);
    let error = page("/a/../b", &[]).expect_err("no address");
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(site.requests().is_empty(), "nothing was rendered");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_an_operator_regenerated_is_a_hit() {
    let site = Site::new();
    site.responds(200, &[("etag", "\"1\"")], "new");
    let outcome = site.service.regenerate(request("/a?b=c", &[("x-secret", "1")]), None).await;
    assert!(matches!(outcome.expect("an outcome"), Outcome::Published(_)));
    let requests = site.requests();
    assert_eq!(requests.len(), 1);
    assert!(!requests[0].headers().contains_key("x-secret"), "only keyed input reaches the renderer");
    let response = site.get("/a?b=c").await;
    assert_eq!((response.state(), response.text()), ("hit", "new"));
    let again = site.service.regenerate(request("/a?b=c", &[]), None).await.expect("an outcome");
    assert!(matches!(again, Outcome::AlreadyFresh(_)), "{again:?}");

    tokio::time::advance(INTERVAL).await;
    site.responds(304, &[], "");
    let unchanged = site.service.regenerate(request("/a?b=c", &[]), None).await.expect("an outcome");
    assert!(matches!(unchanged, Outcome::Unchanged(_)), "{unchanged:?}");
    assert_eq!(site.requests()[0].headers()["if-none-match"], "\"1\"");
    assert_eq!(site.get("/a?b=c").await.state(), "hit");
}

#[tokio::test(start_paused = true)]
async fn uncacheable_responses_are_not_cached_for_operators_either() {
    let site = Site::new();
    site.responds(200, &[("set-cookie", "session=1")], "yours");
    let outcome = site.service.regenerate(request("/a", &[]), None).await.expect("an outcome");
    assert_eq!(outcome, Outcome::Declined);
    site.responds(500, &[], "no");
    let error = site.service.regenerate(request("/b", &[]), None).await.expect_err("a failure");
    assert_eq!(error.kind(), Kind::Render);
    let error = site.service.regenerate(request("/", &[]), None).await.expect_err("no page");
    assert_eq!(error.to_string(), "responses to this request are not cached (no-route)");
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_request_is_executed_once() {
    let site = Site::with([Route::new("/{*path}", Policy::every(Duration::ZERO))]);
    let regenerate = async |path: &str, hash: &str| {
        site.service
            .regenerate(request(path, &[]), Some(IdempotentRequest::new("order-7", hash)))
            .await
            .expect("an outcome")
    };
    assert!(matches!(regenerate("/a", "one").await, Outcome::Published(_)));
    assert!(matches!(regenerate("/a", "one").await, Outcome::Replayed { s3_key: Some(_) }));
    assert_eq!(regenerate("/a", "two").await, Outcome::OtherRequest);
    assert_eq!(regenerate("/b", "two").await, Outcome::OtherRequest, "not for another page either");
    assert_eq!(site.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_render_continues_after_the_operator_disconnects() {
    let site = Site::new();
    site.renders(|_| async {
        tokio::time::sleep(5 * SECOND).await;
        Response::new(Full::from("slow"))
    });
    let regenerating = site.service.regenerate(request("/a", &[]), None);
    assert!(tokio::time::timeout(SECOND, regenerating).await.is_err(), "the caller gives up");
    tokio::time::sleep(5 * SECOND).await;
    let response = site.get("/a").await;
    assert_eq!((response.state(), response.text()), ("hit", "slow"));
}

#[tokio::test(start_paused = true)]
async fn a_response_exposes_its_page_key_if_the_layer_is_set_to() {
    let site = Site::new();
    let routes = Routes::new([Route::new("/pages/{name}", Policy::every(INTERVAL)).query(Query::None)])
        .expect("routes");
    let layer = IsrLayer::new(site.isr.clone(), routes);
    let inner = service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::from("page")))
    });
    for (layer, path, expected) in [
        (layer.clone(), "/pages/a", None),
        (layer.clone().expose_page_key(), "/pages/a", Some("default::example.com/pages/{name}?name=a")),
        (layer.expose_page_key(), "/elsewhere", None),
    ] {
        let request = request(path, &[]).map(|()| Full::default());
        let response = layer.layer(inner).oneshot(request).await.expect("a response");
        assert_eq!(response.extensions().get::<PageKey>().map(PageKey::cache_key), expected);
    }
}
