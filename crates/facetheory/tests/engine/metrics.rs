//! Metrics and incidents of the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use facetheory::{InvalidationMode, Phase, Rendered, State};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::fixture::{INTERVAL, SECOND, Site, served, state_and_body};

/// Runs a test with paused time. Returns the values of counters and the number of values in histograms, by name and labels.
fn recorded(test: impl Future<Output = ()>) -> BTreeMap<String, u64> {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(test);
    });
    let mut counters = BTreeMap::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        let (_, key) = key.into_parts();
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
        let name = format!("{}{{{}}}", key.name(), labels.collect::<Vec<_>>().join(","));
        match value {
            DebugValue::Counter(count) if count > 0 => drop(counters.insert(name, count)),
            DebugValue::Histogram(values) => drop(counters.insert(name, values.len() as u64)),
            DebugValue::Counter(_) | DebugValue::Gauge(_) => {}
        }
    }
    counters
}

#[test]
fn states_regenerations_and_contention_are_counted() {
    let counters = recorded(async {
        let site = Site::new();
        let page = site.page.clone().of_route("/posts/{slug}").expect("a route");
        let site = Site { page, ..site };
        let other = site.another();
        let slow = site.get_slow(SECOND, Ok(Rendered::html("one")));
        let (_, waited) = tokio::join!(slow, other.get_after(Duration::from_millis(100), "two"));
        assert_eq!(waited, served(State::WaitHit, "one"));
        assert_eq!(site.get("two").await.0, State::Hit);
    });
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    for state in ["miss", "hit", "wait-hit"] {
        let name = format!("facetheory_requests_total{{state={state},route_pattern=/posts/{{slug}}}}");
        assert_eq!(count(&name), 1, "{counters:?}");
    }
    assert!(count("facetheory_lease_contention_total{route_pattern=/posts/{slug}}") >= 1, "{counters:?}");
    let published = "facetheory_regeneration_duration_seconds{outcome=published,route_pattern=/posts/{slug}}";
    assert_eq!(count(published), 1, "{counters:?}");
}

#[test]
fn a_damaged_row_is_counted_once_until_it_is_written_again() {
    let counters = recorded(async {
        let site = Site::new();
        for _ in 0..2 {
            site.get("one").await;
            site.table.damage(&site.page.meta());
            for _ in 0..3 {
                assert_eq!(site.isr.lookup(&site.page).await.expect("a result").meta, None);
            }
            tokio::time::advance(2 * SECOND).await;
            assert_eq!(site.get("two").await, served(State::Miss, "two"));
        }
    });
    assert_eq!(counters.get("facetheory_damaged_rows_total{row=META}"), Some(&2), "{counters:?}");
    assert!(!counters.keys().any(|name| name.starts_with("facetheory_incidents_total")), "{counters:?}");
}

#[test]
fn replaced_bodies_that_are_deleted_are_counted() {
    let counters = recorded(async {
        let site = Site::new();
        for body in ["one", "two", "three"] {
            site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
            assert_eq!(site.get(body).await, served(State::Miss, body));
        }
        tokio::time::sleep(20 * INTERVAL).await;
    });
    let deleted = counters.get("facetheory_replaced_bodies_total{outcome=deleted}");
    assert_eq!(deleted, Some(&2), "{counters:?}");
}

#[test]
fn a_missing_body_is_counted_as_an_incident() {
    let counters = recorded(async {
        let site = Site::new();
        site.get("one").await;
        let view = site.isr.lookup(&site.page).await.expect("a result");
        let s3_key = view.meta.expect("a page").generation.s3_key;
        site.bodies.delete(&s3_key).await.expect("the body is deleted");
        assert_eq!(site.another().get("two").await, served(State::Miss, "two"));
    });
    assert_eq!(counters.get("facetheory_incidents_total{phase=body}"), Some(&1), "{counters:?}");
}

#[tokio::test(start_paused = true)]
async fn incidents_are_reported_with_their_phase_even_if_clients_do_not_notice() {
    let incidents: Arc<Mutex<Vec<(Phase, String)>>> = Arc::default();
    let site = Site::built({
        let incidents = incidents.clone();
        move |builder| {
            builder.on_incident(move |incident| {
                let text = format!("{}: {}", incident.page.cache_key(), incident.error);
                incidents.lock().expect("not poisoned").push((incident.phase, text));
            })
        }
    });
    site.get("one").await;
    tokio::time::advance(INTERVAL).await;
    assert_eq!(state_and_body(site.get_failing().await), served(State::Stale, "one"));
    site.settle().await;
    site.table.break_down();
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(site.get("two").await.0, State::StaleMetadataError);
    let incidents = incidents.lock().expect("not poisoned").clone();
    let phases: Vec<Phase> = incidents.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(phases, [Phase::Render, Phase::Table], "{incidents:?}");
    assert_eq!(incidents[0].1, "/: the render of / failed");
}
