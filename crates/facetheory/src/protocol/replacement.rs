//! Whether a publish has to be announced in the change feed: a pure function of the page before and after it.

use tabletheory::Timestamp;

use crate::protocol::{Freshness, Generation, Meta};

/// Whether processes that rely on the change feed must be told about a publish.
///
/// They do not read a page again before its interval ends, unless the feed names the page, or a tag of the copy that they
/// have. So a page that is replaced while they may count it as fresh must be announced if a later invalidation would not
/// reach their copy: if the page has got a tag, or ends earlier, after which another publish may add one. It is announced
/// anyway if the new page is the `only_right_one`, and not just another one that may be served as well.
pub(crate) fn must_be_announced(
    replaced: Option<&Meta>,
    page: &Generation,
    only_right_one: bool,
    now: Timestamp,
) -> bool {
    let Some(replaced) = replaced else { return false };
    let before = &replaced.generation;
    let has_new_tag = page.content.tags.iter().any(|tag| !before.content.tags.contains(tag));
    if replaced.freshness(now) == Freshness::Fresh {
        return only_right_one || has_new_tag || page.expires_at() < before.expires_at();
    }
    // The invalidation may not have been announced yet, or its writer may have been killed before that.
    let was_invalidated = replaced.stale_since.is_some() || replaced.must_not_serve;
    was_invalidated && has_new_tag
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

    fn generation(interval: i64, tags: &[&str]) -> Generation {
        let mut page = Generation::new("a.html", NOW.seconds() - 10, interval);
        page.content.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        page
    }

    fn is_announced(replaced: &Meta, page: &Generation, only_right_one: bool) -> bool {
        must_be_announced(Some(replaced), page, only_right_one, NOW)
    }

    #[test]
    fn a_page_that_replaces_a_fresh_one_is_announced_if_an_invalidation_would_not_reach_the_other() {
        let fresh = Meta::of(generation(60, &["a", "b"]));
        for only_right_one in [false, true] {
            assert_eq!(is_announced(&fresh, &generation(60, &["b"]), only_right_one), only_right_one);
        }
        assert!(is_announced(&fresh, &generation(60, &["b", "x"]), false), "it has got a tag");
        assert!(is_announced(&fresh, &generation(59, &["b"]), false), "it ends earlier");
    }

    #[test]
    fn a_page_that_is_the_first_or_replaces_one_whose_interval_is_over_is_not_announced() {
        let stale = Meta::of(generation(10, &[]));
        assert!(!is_announced(&stale, &generation(60, &["x"]), true), "everyone reads it again anyway");
        assert!(!must_be_announced(None, &generation(60, &["x"]), true, NOW));
    }

    #[test]
    fn a_page_that_replaces_an_invalidated_one_is_announced_if_it_has_got_a_tag() {
        let mut soft = Meta::of(generation(0, &["a"]));
        soft.stale_since = Some(NOW.seconds());
        let mut hard = Meta::of(generation(60, &["a"]));
        hard.must_not_serve = true;
        for invalidated in [soft, hard] {
            assert!(is_announced(&invalidated, &generation(60, &["x"]), false));
            assert!(
                !is_announced(&invalidated, &generation(60, &["a"]), true),
                "the invalidation is announced"
            );
        }
    }
}
