//! What a hit allocates, counted.

use std::sync::Arc;
use std::time::Duration;

use facetheory::{
    Answer, Bodies, Isr, KeyScheme, PageKey, PageStore, Pages, Policy, Rendered, State, Tenant,
};

/// The most allocations of a hit, with its key.
const MOST: u64 = 4;

fn key(tenant: &Tenant) -> PageKey {
    let key = KeyScheme::Hashed.page(Some(tenant), "acme::/posts/{slug}?slug=hello").expect("a key");
    key.at_path("/posts/hello")
}

async fn hit(isr: &Isr, tenant: &Tenant, policy: &Policy) -> State {
    let answer = isr.get(&key(tenant), policy, |_| async { Ok(Rendered::html("hello")) }).await;
    match answer.expect("no error") {
        Answer::Page(served) => served.state,
        Answer::Bypass(_) => State::Bypass,
    }
}

#[test]
fn a_hit_allocates_little_more_than_its_key() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    let isr = Isr::builder(pages).believing(Duration::from_secs(3600)).build();
    let policy = Policy::every(Duration::from_secs(3600));
    let tenant = Tenant::new("acme").expect("a tenant");
    runtime.block_on(async {
        assert_eq!(hit(&isr, &tenant, &policy).await, State::Miss);
        assert_eq!(hit(&isr, &tenant, &policy).await, State::Hit);
    });
    let (mut state, runtime, isr) = (State::Miss, &runtime, &isr);
    let counted = allocation_counter::measure(|| {
        state = runtime.block_on(hit(isr, &tenant, &policy));
    });
    assert_eq!(state, State::Hit);
    println!("{} allocations of {} bytes in all", counted.count_total, counted.bytes_total);
    assert!(counted.count_total <= MOST, "{counted:?}");
}
