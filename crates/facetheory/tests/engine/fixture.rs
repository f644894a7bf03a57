//! One page of a site. The clock follows the paused runtime; renders are counted.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use facetheory::{
    Bodies, Feed, GetResult, Isr, IsrBuilder, PageKey, Policy, RenderError, Rendered, Result, State, testing,
};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// How long pages are fresh.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

/// One process of a site, with its renders counted.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) process: testing::Site,
    pub(crate) page: PageKey,
    pub(crate) policy: Policy,
    pub(crate) renders: Arc<AtomicU32>,
}

impl Deref for Site {
    type Target = testing::Site;

    fn deref(&self) -> &testing::Site {
        &self.process
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        Site::built(|builder| builder)
    }

    pub(crate) fn built(build: impl FnOnce(IsrBuilder) -> IsrBuilder) -> Self {
        Site::on(build, Bodies::memory())
    }

    pub(crate) fn on(build: impl FnOnce(IsrBuilder) -> IsrBuilder, bodies: Bodies) -> Self {
        Site {
            process: testing::Site::new(bodies, build),
            page: PageKey::new("/").expect("a page"),
            policy: Policy::every(INTERVAL),
            renders: Arc::default(),
        }
    }

    /// A process with the page "one" in memory.
    pub(crate) async fn with_page() -> Self {
        let site = Site::new();
        site.get("one").await;
        site
    }

    /// A process that relies on the change feed, with a page in memory that is fresh for so long.
    pub(crate) async fn on_feed(fresh_for: Duration) -> Self {
        let site = Site::built(exclusive).with(|policy| policy.revalidate = fresh_for);
        tokio::time::sleep(SECOND).await;
        site.get("one").await;
        site
    }

    /// Two processes of the same site.
    pub(crate) fn in_two_processes() -> (Self, Self) {
        let site = Site::new();
        let other = site.another();
        (site, other)
    }

    /// Another process of the same site.
    pub(crate) fn another(&self) -> Self {
        self.another_built(|builder| builder)
    }

    pub(crate) fn another_built(&self, build: impl FnOnce(IsrBuilder) -> IsrBuilder) -> Self {
        Site { process: self.process.another(build), ..self.clone() }
    }

    /// This process with another engine.
    pub(crate) fn with_isr(&self, isr: Isr) -> Self {
        Site { process: testing::Site { isr, ..self.process.clone() }, ..self.clone() }
    }

    /// This process with a changed policy.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Policy)) -> Self {
        let mut site = self.clone();
        change(&mut site.policy);
        site
    }

    /// Requests the page. A render takes `render_time` and returns `rendered`.
    pub(crate) async fn get_slow(
        &self,
        render_time: Duration,
        rendered: std::result::Result<Rendered, &'static str>,
    ) -> Result<GetResult> {
        let renders = self.renders.clone();
        let render = move |_| async move {
            renders.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(render_time).await;
            rendered.map_err(RenderError::from)
        };
        self.isr.get(&self.page, &self.policy, render).await
    }

    /// Requests the page; a render returns this body at once. Returns the state and the body of the response.
    pub(crate) async fn get(&self, body: &'static str) -> (State, String) {
        state_and_body(self.get_slow(Duration::ZERO, Ok(Rendered::html(body))).await)
    }

    /// Requests the page after this time.
    pub(crate) async fn get_after(&self, delay: Duration, body: &'static str) -> (State, String) {
        tokio::time::sleep(delay).await;
        self.get(body).await
    }

    /// Requests the page; a render fails.
    pub(crate) async fn get_failing(&self) -> Result<GetResult> {
        self.get_slow(Duration::ZERO, Err("the origin is down")).await
    }

    /// The number of renders since the last call.
    pub(crate) fn renders(&self) -> u32 {
        self.renders.swap(0, Ordering::SeqCst)
    }
}

/// With this setting a process relies on the change feed.
pub(crate) fn exclusive(builder: IsrBuilder) -> IsrBuilder {
    builder.feed(Feed::Exclusive)
}

/// A body store whose reads take `read_time`.
pub(crate) fn slow_bodies(read_time: Duration) -> Bodies {
    let slow = ThrottleConfig { wait_get_per_call: read_time, ..ThrottleConfig::default() };
    Bodies::over(Arc::new(ThrottledStore::new(InMemory::new(), slow)))
}

/// The state of a result, with its body or the reason of the bypass.
pub(crate) fn state_and_body(result: Result<GetResult>) -> (State, String) {
    match result.expect("no error") {
        GetResult::Page(served) => {
            (served.state, String::from_utf8(served.page.bytes().to_vec()).expect("a text"))
        }
        GetResult::Bypass(reason) => (State::Bypass, reason.as_str().to_owned()),
    }
}

/// The expected state and body, to compare with [`state_and_body`].
pub(crate) fn served(state: State, body: &str) -> (State, String) {
    (state, body.to_owned())
}
