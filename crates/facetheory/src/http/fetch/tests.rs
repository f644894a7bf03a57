use super::*;
use crate::protocol::generation::Generation;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
const LIMITS: Limits = Limits { max_bytes: 100, allows_new: true };

fn client(language: &'static str) -> Parts {
    Request::get("/").header("x-language", language).body(()).expect("a valid request").into_parts().0
}

#[test]
fn rfc9111_4_3_5_a_revalidation_of_one_variant_does_not_update_another() {
    let response = Response::builder()
        .header("cache-control", "max-age=60")
        .header("vary", "x-language")
        .body(())
        .expect("a valid response");
    let (head, ()) = response.into_parts();
    let (page, route) = (PageKey::new("/").expect("a valid key"), Route::follow_origin("/"));
    let memory = MemoryBudget::new(0);
    let fetch = |client, stored| Fetch {
        memory: &memory,
        page: &page,
        route: &route,
        client,
        stored,
        may_revalidate: true,
        is_whole_request: true,
        limits: LIMITS,
        tag_headers: &[],
        requested: NOW,
    };
    let (german, french) = (client("de"), client("fr"));
    let first = fetch(&german, None);
    let StoreDecision::Store(storable) = first.decide(&head, Some(4), NOW) else { panic!("not stored") };
    let mut stored = Meta::of(Generation::new("a.html", NOW.seconds(), 60));
    stored.generation.content = first.rendered(&head, storable, "page".into()).content;
    let revalidated = |client| fetch(client, Some(&stored)).revalidated(&stored, &head.headers, None, NOW);
    assert!(matches!(revalidated(&german), Render::Page(_)));
    assert_eq!(revalidated(&french), Render::Uncacheable);
}
