//! A request can be traced by its spans. This test has a process of its own, since tracing caches for all threads whether
//! a span is enabled, so tests without a subscriber would disable it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use facetheory::{GetResult, Isr, PageKey, Policy, Rendered, State};

/// Records the names of new spans, and of events with a reason their reason and outcome.
struct Names(Arc<Mutex<Vec<&'static str>>>, Arc<Mutex<Vec<String>>>);

/// Joins the reason and the outcome of an event.
struct Why(String);

impl tracing::field::Visit for Why {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if ["reason", "outcome"].contains(&field.name()) {
            self.0 += &format!("{field}={value:?} ");
        }
    }
}

impl tracing::Subscriber for Names {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("facetheory")
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut names = self.0.lock().expect("not poisoned");
        names.push(span.metadata().name());
        tracing::span::Id::from_u64(names.len() as u64)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut why = Why(String::new());
        event.record(&mut why);
        if !why.0.is_empty() {
            self.1.lock().expect("not poisoned").push(why.0);
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_request_is_traced_from_the_lookup_to_the_publish() {
    let names: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let reasons: Arc<Mutex<Vec<String>>> = Arc::default();
    tracing::subscriber::with_default(Names(names.clone(), reasons.clone()), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let hour = Duration::from_secs(3600);
            // Metadata is used for the whole test, however slow the machine is.
            let isr =
                Isr::open("memory:", "memory:").await.expect("an engine").metadata_max_age(hour).build();
            let (page, policy) = (PageKey::new("/").expect("a page"), Policy::every(hour));
            for state in [State::Miss, State::Hit] {
                let result = isr.get(&page, &policy, |_| async { Ok(Rendered::html("one")) }).await;
                let Ok(GetResult::Page(served)) = result else { panic!("{result:?}") };
                assert_eq!(served.state, state);
            }
        });
    });
    let names = names.lock().expect("not poisoned").clone();
    assert_eq!(names, ["get", "lookup", "regenerate", "render", "publish"], "a hit is an event, not a span");
    let reasons = reasons.lock().expect("not poisoned").clone();
    assert_eq!(reasons, ["reason=\"stale\" outcome=\"published\" "]);
}
