//! A request is resolved once, whichever path it takes: routing and key building are most of the cost of a hit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use facetheory::{Policy, ResolvedRequest, Route, Routes};
use http::Request;
use http_body_util::Full;
use tower::ServiceExt as _;
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Metadata, Subscriber, field, span};

use crate::fixture::{INTERVAL, SECOND, Site};

/// Counts the events with the message `resolved`.
struct ResolveCounter(Arc<AtomicUsize>);

impl Subscriber for ResolveCounter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("facetheory::http")
    }

    fn event(&self, event: &Event<'_>) {
        struct IsResolved(bool);
        impl field::Visit for IsResolved {
            fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
                self.0 |= field.name() == "message" && format!("{value:?}") == "resolved";
            }
        }
        let mut is_resolved = IsResolved(false);
        event.record(&mut is_resolved);
        self.0.fetch_add(usize::from(is_resolved.0), Ordering::Relaxed);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// While there is only one subscriber, `tracing` consults the current thread alone about a new call site, and a test on a
/// thread without a subscriber would switch the event off for all threads.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// Sends a request as the gateway does: resolves it, tries `get_fresh`, then calls the service. Returns the state and how
/// often it was resolved, including background work.
async fn send_like_the_gateway(site: &Site, request: Request<()>, counter: &AtomicUsize) -> (String, usize) {
    counter.store(0, Ordering::Relaxed);
    let (mut parts, ()) = request.into_parts();
    let resolved = site.service.resolve(&parts);
    let response = match site.service.get_fresh(&parts, &resolved) {
        Some(hit) => hit.into_response(),
        None => {
            parts.extensions.insert(resolved);
            let request = Request::from_parts(parts, Full::default());
            site.service.clone().oneshot(request).await.expect("infallible")
        }
    };
    site.settle().await;
    let state = response.headers()["x-facetheory-isr"].to_str().expect("ASCII").to_owned();
    (state, counter.load(Ordering::Relaxed))
}

/// Sends a request to the service alone.
async fn send(site: &Site, request: Request<()>, counter: &AtomicUsize) -> (String, usize) {
    counter.store(0, Ordering::Relaxed);
    let request = request.map(|()| Full::default());
    let response = site.service.clone().oneshot(request).await.expect("infallible");
    site.settle().await;
    let state = response.headers()["x-facetheory-isr"].to_str().expect("ASCII").to_owned();
    (state, counter.load(Ordering::Relaxed))
}

fn get(path: &str) -> Request<()> {
    Request::get(path).header("host", "example.com").body(()).expect("a valid request")
}

fn conditional(path: &str) -> Request<()> {
    let mut request = get(path);
    request.headers_mut().insert("if-none-match", http::HeaderValue::from_static("\"other\""));
    request
}

/// Runs a test with a subscriber that counts.
fn counted<F: Future<Output = ()>>(test: impl FnOnce(Arc<AtomicUsize>) -> F) {
    LazyLock::force(&SECOND_SUBSCRIBER);
    let counter = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(ResolveCounter(counter.clone()), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(test(counter));
    });
}

fn routes() -> Routes {
    let rule = Route::new("/rule/{*path}", Policy::every(INTERVAL));
    Routes::new([rule, Route::bypass("/account")]).expect("valid routes").otherwise_follow_origin()
}

#[test]
fn a_request_is_resolved_once_on_every_path() {
    counted(|counter| async move {
        for is_gateway in [false, true] {
            let site = Site::of(routes());
            let check = async |request: Request<()>, expected: &str| {
                let path = request.uri().path().to_owned();
                let (state, resolved) = match is_gateway {
                    true => send_like_the_gateway(&site, request, &counter).await,
                    false => send(&site, request, &counter).await,
                };
                assert_eq!(
                    (state.as_str(), resolved),
                    (expected, 1),
                    "{path}, like the gateway: {is_gateway}"
                );
            };
            for path in ["/rule/a", "/origin/a"] {
                site.responds(200, &[("cache-control", "max-age=60, stale-while-revalidate=600")], "page");
                check(get(path), "miss").await;
                check(get(path), "hit").await;
                check(conditional(path), "hit").await;
                tokio::time::advance(INTERVAL + SECOND).await;
                check(get(path), "stale").await;
                site.responds(200, &[("cache-control", "private")], "personal");
                check(get(&format!("{path}/personal")), "bypass").await;
            }
            site.responds(200, &[("vary", "x-a"), ("cache-control", "max-age=60")], "variant");
            check(get("/origin/vary"), "miss").await;
            let mut variant = get("/origin/vary");
            variant.headers_mut().insert("x-a", http::HeaderValue::from_static("1"));
            check(variant.clone(), "miss").await;
            check(variant, "hit").await;
            check(get("/account"), "bypass").await;
            let mut post = get("/rule/a");
            *post.method_mut() = http::Method::POST;
            check(post, "bypass").await;
            check(get("/rule/../b"), "bypass").await;
        }
    });
}

#[test]
fn a_request_that_was_resolved_by_other_routes_is_resolved_again() {
    counted(|counter| async move {
        let site = Site::of(routes());
        let reloaded = site.with_routes(Routes::new([Route::bypass("/{*all}")]).expect("valid routes"));
        let (mut parts, ()) = get("/rule/a").into_parts();
        let resolved: ResolvedRequest = site.service.resolve(&parts);
        assert!(reloaded.service.get_fresh(&parts, &resolved).is_none());
        parts.extensions.insert(resolved);
        let (state, count) = send(&reloaded, Request::from_parts(parts, ()), &counter).await;
        assert_eq!((state.as_str(), count), ("bypass", 1), "the new routes pass it through");
    });
}
