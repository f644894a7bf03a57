use super::*;
use crate::protocol::generation::Generation;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
const LIMITS: Limits = Limits { max_bytes: 100, welcome: true };

fn visitor(language: &'static str) -> Parts {
    Request::get("/").header("x-language", language).body(()).expect("a request").into_parts().0
}

#[test]
fn rfc9111_4_3_5_what_is_said_of_one_variant_does_not_freshen_another() {
    let answer = Response::builder()
        .header("cache-control", "max-age=60")
        .header("vary", "x-language")
        .body(())
        .expect("a response");
    let (head, ()) = answer.into_parts();
    let of =
        |visitor, stored| Fetch { visitor, stored, offered: true, limits: LIMITS, tags: &[], requested: NOW };
    let (german, french) = (visitor("de"), visitor("fr"));
    let storing = of(&german, None).storing(&head, 4, NOW).expect("it is stored");
    let mut stored = Meta::of(Generation::new("a.html", NOW.seconds(), 60));
    stored.generation.content = page(&head, storing, &[], "page".into()).content;
    let freshened = |visitor| of(visitor, Some(&stored)).freshened(&stored, &head.headers, NOW);
    assert!(matches!(freshened(&german), Render::Page(_)));
    assert_eq!(freshened(&french), Render::Uncacheable);
}
