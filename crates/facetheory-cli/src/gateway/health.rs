//! The circuit breaker of the origin: while it is unreachable, requests fail at once instead of waiting for it.
//!
//! The breaker opens after [`MAX_FAILURES`] failed connections in a row. From then on only probes decide: the gateway
//! connects in the background, at most half a second after the last time, and the first connection that succeeds closes
//! the breaker. So neither the number of clients nor their failures prolong an outage.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use metrics::counter;
use parking_lot::Mutex;
use tabletheory::Backoff;
use tokio::time::Instant;

/// After so many failed connections in a row, the origin counts as down.
const MAX_FAILURES: u32 = 3;
/// The pauses before probes. The longest is short, so that an origin that is back is noticed soon.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(500));
/// Probes that run at the same time. One that gets no response must not delay the next one.
const MAX_PROBES: usize = 8;
/// If there was no probe for so long, as in a process that was frozen, the next request takes its place.
const PROBES_STOPPED: Duration = Duration::from_secs(2);

/// Whether the origin is reachable. Any response counts as reachable, whatever its status.
#[derive(Debug, Default)]
pub(crate) struct Health {
    breaker: Mutex<Breaker>,
}

#[derive(Debug, Default)]
struct Breaker {
    /// Counts the outages. The outcome of a connection that began before an outage says nothing about the time after it.
    outages: u64,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Requests are sent. The last connections have failed, this many in a row.
    Closed { failures: u32 },
    /// No requests are sent. The last probe began then.
    Open { probed_at: Instant },
}

impl Default for State {
    fn default() -> Self {
        State::Closed { failures: 0 }
    }
}

/// The permission to send a request, needed to report its outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    outages: u64,
}

impl Health {
    /// Begins a request to the origin; `None` while the origin is down.
    pub(crate) fn begin(&self, now: Instant) -> Option<Attempt> {
        let mut breaker = self.breaker.lock();
        if let State::Open { probed_at } = &mut breaker.state {
            if now.saturating_duration_since(*probed_at) < PROBES_STOPPED {
                return None;
            }
            *probed_at = now;
        }
        Some(Attempt { outages: breaker.outages })
    }

    /// Whether there was an outage since a request began.
    pub(crate) fn is_outdated(&self, attempt: Attempt) -> bool {
        self.breaker.lock().outages != attempt.outages
    }

    /// Whether the origin counts as down.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.breaker.lock().state, State::Open { .. })
    }

    /// The origin accepted the connection of a request.
    pub(crate) fn reachable(&self, attempt: Attempt) {
        let mut breaker = self.breaker.lock();
        if breaker.outages == attempt.outages {
            breaker.close();
        }
    }

    /// The connection of a request failed. Returns whether the origin counts as down from now on, and has to be probed.
    #[must_use]
    pub(crate) fn unreachable(&self, attempt: Attempt, now: Instant) -> bool {
        let mut breaker = self.breaker.lock();
        let State::Closed { failures } = breaker.state else { return false };
        if attempt.outages != breaker.outages {
            return false;
        }
        let failures = failures + 1;
        if failures < MAX_FAILURES {
            breaker.state = State::Closed { failures };
            return false;
        }
        breaker.outages += 1;
        breaker.state = State::Open { probed_at: now };
        counter!("facetheory_gateway_origin_outages_total").increment(1);
        tracing::warn!(failures, "the origin is unreachable; requests to it fail until it is back");
        true
    }

    /// Connects to the origin from time to time until that succeeds, and then lets requests pass again.
    pub(crate) async fn probe<T, E, F>(health: Weak<Health>, connect: impl Fn() -> F)
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut probes = FuturesUnordered::new();
        let mut begun = 0;
        let mut pause = Box::pin(tokio::time::sleep(PAUSES.delay_without_jitter(begun)));
        loop {
            tokio::select! {
                () = &mut pause, if probes.len() < MAX_PROBES => {
                    let Some(health) = waiting(&health) else { return };
                    if let State::Open { probed_at } = &mut health.breaker.lock().state {
                        *probed_at = Instant::now();
                    }
                    probes.push(connect());
                    begun += 1;
                    pause.set(tokio::time::sleep(PAUSES.delay_without_jitter(begun)));
                }
                Some(connected) = probes.next() => {
                    let outcome = if connected.is_ok() { "ok" } else { "failed" };
                    counter!("facetheory_gateway_origin_probes_total", "outcome" => outcome).increment(1);
                    if let (Ok(_), Some(health)) = (connected, waiting(&health)) {
                        return health.breaker.lock().close();
                    }
                }
            }
        }
    }
}

/// Returns the state of an origin that is down; `None` if it is back, or not used any more.
fn waiting(health: &Weak<Health>) -> Option<Arc<Health>> {
    health.upgrade().filter(|health| health.is_down())
}

impl Breaker {
    fn close(&mut self) {
        if let State::Open { .. } = self.state {
            tracing::info!("the origin is reachable again");
        }
        self.state = State::default();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, pending, ready};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

    use super::*;

    const LONGEST: Duration = Duration::from_millis(500);

    /// An origin that went down a moment ago.
    fn down() -> Arc<Health> {
        let (health, now) = (Arc::new(Health::default()), Instant::now());
        let attempts = [(); MAX_FAILURES as usize].map(|()| health.begin(now).expect("the origin is up"));
        let opened = attempts.map(|attempt| health.unreachable(attempt, now));
        assert_eq!(opened, [false, false, true], "the last failure opens the breaker, and is told to probe");
        health
    }

    #[tokio::test(start_paused = true)]
    async fn requests_pass_again_with_the_first_probe_that_succeeds() {
        let (health, probes, is_back) = (down(), AtomicU32::new(0), AtomicBool::new(false));
        let connect = || {
            probes.fetch_add(1, Relaxed);
            ready(if is_back.load(Relaxed) { Ok(()) } else { Err(()) })
        };
        let mut probing = Box::pin(Health::probe(Arc::downgrade(&health), connect));
        for _ in 0..20 {
            assert!(health.begin(Instant::now()).is_none(), "no request while the origin is down");
            tokio::select! {
                () = &mut probing => panic!("no probe has succeeded"),
                () = tokio::time::sleep(LONGEST) => {}
            }
        }
        assert!(probes.load(Relaxed) >= 20, "there is a probe at least every {LONGEST:?}");
        is_back.store(true, Relaxed);
        tokio::time::timeout(LONGEST, probing).await.expect("the next probe succeeds");
        assert!(!health.is_down() && health.begin(Instant::now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_without_a_response_does_not_delay_the_next_one() {
        let (health, began, probes) = (down(), Instant::now(), AtomicU32::new(0));
        let connect = || {
            let is_first = probes.fetch_add(1, Relaxed) == 0;
            async move { if is_first { pending().await } else { Ok::<(), ()>(()) } }
        };
        let probing = Health::probe(Arc::downgrade(&health), connect);
        tokio::time::timeout(LONGEST, probing).await.expect("the second probe succeeds");
        assert!(!health.is_down(), "after {:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_probes_without_a_response_is_limited() {
        let (health, probes) = (down(), AtomicU32::new(0));
        let connect = || {
            probes.fetch_add(1, Relaxed);
            pending::<Result<(), ()>>()
        };
        let probing = Health::probe(Arc::downgrade(&health), connect);
        tokio::time::timeout(LONGEST * 1000, probing).await.expect_err("no probe ends");
        assert_eq!(probes.load(Relaxed) as usize, MAX_PROBES);
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_requests_fail_at_once_the_next_probe_lets_requests_pass_again() {
        let (health, began) = (Arc::new(Health::default()), Instant::now());
        let attempts: Vec<Attempt> =
            (0..50).map(|_| health.begin(began).expect("the origin is up")).collect();
        let opened = attempts.iter().filter(|attempt| health.unreachable(**attempt, began)).count();
        assert_eq!(opened, 1, "one failure opens the breaker");
        Health::probe(Arc::downgrade(&health), || ready(Ok::<(), ()>(()))).await;
        assert_eq!(began.elapsed(), PAUSES.delay_without_jitter(0), "the first pause, whatever has failed");
    }

    #[tokio::test(start_paused = true)]
    async fn the_failures_of_requests_that_began_before_an_outage_do_not_count_after_it() {
        let health = Arc::new(Health::default());
        let now = Instant::now();
        let late = [(); 9].map(|()| health.begin(now).expect("the origin is up"));
        let first = [(); MAX_FAILURES as usize].map(|()| health.begin(now).expect("the origin is up"));
        assert!(first.map(|attempt| health.unreachable(attempt, now)).contains(&true));
        Health::probe(Arc::downgrade(&health), || ready(Ok::<(), ()>(()))).await;
        assert_eq!(late.map(|attempt| health.unreachable(attempt, Instant::now())), [false; 9]);
        assert!(!health.is_down());
    }

    #[tokio::test(start_paused = true)]
    async fn fewer_failures_in_a_row_do_not_make_the_origin_count_as_down() {
        let (health, now) = (Health::default(), Instant::now());
        for _ in 0..9 {
            for _ in 1..MAX_FAILURES {
                assert!(!health.unreachable(health.begin(now).expect("the origin is up"), now));
            }
            health.reachable(health.begin(now).expect("the origin is up"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn probing_ends_when_a_request_has_found_the_origin_reachable_or_nobody_uses_it() {
        let connect = || -> Ready<Result<(), ()>> { panic!("no probe is needed") };
        let health = down();
        health.breaker.lock().close();
        Health::probe(Arc::downgrade(&health), connect).await;
        Health::probe(Weak::new(), connect).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_takes_the_place_of_probes_that_have_stopped() {
        let health = down();
        tokio::time::advance(PROBES_STOPPED).await;
        let attempt = health.begin(Instant::now()).expect("one request tests the origin");
        assert!(health.begin(Instant::now()).is_none(), "one, and no other");
        health.reachable(attempt);
        assert!(!health.is_down());
    }
}
