//! What can be seen of the engine: metrics under FaceTheory's names, and incidents with their phase.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use facetheory::{Phase, Rendered, State};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::fixture::{INTERVAL, SECOND, Site, sees};

/// The counters so far, and how many values histograms have, by name and labels.
fn counters(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
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
fn states_regenerations_and_contention_are_counted_under_the_names_of_facetheory() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let site = Site::new();
            let page = site.page.clone().of_route("/posts/{slug}").expect("a route");
            let site = Site { page, ..site };
            let other = site.another();
            let slow = site.visit_slow(SECOND, Ok(Rendered::html("one")));
            let (_, waited) = tokio::join!(slow, async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                other.visit("two").await
            });
            assert_eq!(waited, sees(State::WaitHit, "one"));
            assert_eq!(site.visit("two").await.0, State::Hit);
        });
    });
    let counters = counters(&snapshotter);
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
fn a_body_that_is_missing_although_named_is_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let site = Site::new();
            site.visit("one").await;
            let view = site.isr.lookup(&site.page).await.expect("an answer");
            let s3_key = view.meta.expect("a page").generation.s3_key;
            site.bodies.delete(&s3_key).await.expect("the body is lost");
            assert_eq!(site.another().visit("two").await, sees(State::Miss, "two"));
        });
    });
    let counters = counters(&snapshotter);
    assert_eq!(counters.get("facetheory_incidents_total{phase=body}"), Some(&1), "{counters:?}");
}

#[tokio::test(start_paused = true)]
async fn what_goes_wrong_is_told_with_its_phase_also_where_visitors_do_not_notice() {
    let told: Arc<Mutex<Vec<(Phase, String)>>> = Arc::default();
    let site = Site::built({
        let told = told.clone();
        move |builder| {
            builder.on_incident(move |incident| {
                let text = format!("{}: {}", incident.page.cache_key(), incident.error);
                told.lock().expect("not poisoned").push((incident.phase, text));
            })
        }
    });
    site.visit("one").await;
    tokio::time::advance(INTERVAL).await;
    assert_eq!(crate::fixture::seen(site.visit_failing().await), sees(State::Stale, "one"));
    site.settle().await;
    site.table.break_down();
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(site.visit("two").await.0, State::StaleMetadataError);
    let told = told.lock().expect("not poisoned").clone();
    let phases: Vec<Phase> = told.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(phases, [Phase::Render, Phase::Table], "{told:?}");
    assert_eq!(told[0].1, "/: the render of / failed");
}
