//! Regenerations that are sent to a queue.

use std::sync::{Arc, Mutex};

use facetheory::{Outcome, Policy, QueuedRegeneration, RegenerationQueue, Route, Routes};
use http::uri::Scheme;

use crate::fixture::{INTERVAL, NOW, SECOND, Site};

const CREDENTIALS: [&str; 3] = ["authorization", "x-api-key", "x-amz-security-token"];

/// A queue whose messages a test reads.
#[derive(Debug, Default)]
struct Queue {
    sent: Mutex<Vec<QueuedRegeneration>>,
    is_down: Mutex<bool>,
}

#[async_trait::async_trait]
impl RegenerationQueue for Queue {
    async fn send(
        &self,
        regeneration: QueuedRegeneration,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if *self.is_down.lock().expect("not poisoned") {
            return Err("the queue is down".into());
        }
        self.sent.lock().expect("not poisoned").push(regeneration);
        Ok(())
    }
}

impl Queue {
    fn take(&self) -> Vec<QueuedRegeneration> {
        std::mem::take(&mut *self.sent.lock().expect("not poisoned"))
    }
}

fn site() -> (Site, Arc<Queue>) {
    let page =
        Route::new("/{*path}", Policy::every(INTERVAL)).headers(["accept-language"]).cookies(["theme"]);
    let mine = Route::new("/mine/{*path}", Policy::every(INTERVAL)).headers(CREDENTIALS);
    let routes = Routes::new([page, mine, Route::follow_origin("/origin/{*path}")]).expect("routes");
    let queue = Arc::new(Queue::default());
    (Site::under(routes, |layer| layer.regeneration_queue(queue.clone())), queue)
}

#[tokio::test(start_paused = true)]
async fn a_stale_page_is_sent_to_the_queue_with_keyed_input_only_and_a_miss_is_rendered_here() {
    let (site, queue) = site();
    let headers = [("accept-language", "de"), ("cookie", "id=7"), ("x-secret", "1")];
    assert_eq!(site.get_with("/a?q=1", &headers).await.state(), "miss");
    site.settle().await;
    assert!(queue.take().is_empty(), "a client waits for a miss");
    site.requests();
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get_with("/a?q=1", &headers).await.state(), "stale");
    site.settle().await;
    assert!(site.requests().is_empty(), "nothing is rendered in this process");
    let sent = queue.take();
    let [QueuedRegeneration { request, generated_at, .. }] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((request.uri().to_string().as_str(), *generated_at), ("/a?q=1", NOW));
    let mut lines: Vec<&str> =
        request.headers().values().map(|value| value.to_str().expect("text")).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["de", "example.com"]);
    assert_eq!(request.extensions().get::<Scheme>(), None);

    // Another process executes the message.
    let outcome = site.service.regenerate(request.clone(), None).await.expect("an outcome");
    assert!(matches!(outcome, Outcome::Published(_) | Outcome::Unchanged(_)), "{outcome:?}");
    assert_eq!(site.get_with("/a?q=1", &headers).await.state(), "hit");
    assert!(queue.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_page_is_regenerated_here_if_the_queue_is_down() {
    let (site, queue) = site();
    site.get("/a").await;
    tokio::time::advance(INTERVAL).await;
    *queue.is_down.lock().expect("not poisoned") = true;
    assert_eq!(site.get("/a").await.state(), "stale");
    assert!(site.isr.settle(10 * SECOND).await);
    assert_eq!(site.get("/a").await.state(), "hit");
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_key_contains_credentials_or_cookies_never_leaves_the_process() {
    let cookie = [("/a", "cookie", "id=7; theme=dark")];
    for (path, name, value) in CREDENTIALS.map(|name| ("/mine/a", name, "secret")).into_iter().chain(cookie) {
        let (site, queue) = site();
        // Authorised responses are cached only if the origin permits it.
        site.responds(200, &[("cache-control", "public, max-age=60")], "page");
        assert_eq!(site.get_with(path, &[(name, value)]).await.state(), "miss", "{name}");
        site.settle().await;
        tokio::time::advance(INTERVAL).await;
        assert_eq!(site.get_with(path, &[(name, value)]).await.state(), "stale", "{name}");
        assert!(site.isr.settle(10 * SECOND).await);
        assert_eq!(site.get_with(path, &[(name, value)]).await.state(), "hit", "{name}");
        assert!(queue.take().is_empty(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_follows_its_origin_never_leaves_the_process() {
    let (site, queue) = site();
    site.responds(200, &[("cache-control", "max-age=60, stale-while-revalidate=600")], "page");
    site.get("/origin/a").await;
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get_with("/origin/a", &[("x-secret", "1")]).await.state(), "stale");
    assert!(site.isr.settle(10 * SECOND).await);
    assert_eq!(site.get("/origin/a").await.state(), "hit");
    assert!(queue.take().is_empty());
}
