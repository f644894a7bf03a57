//! Damaged rows under an engine: other pages are served as before, and a page is healed by one render.

use facetheory::{PageKey, State, Tag};

use crate::fixture::{SECOND, Site, exclusive};

fn at(site: &Site, path: &str) -> Site {
    Site { page: PageKey::new(path).expect("a page").at_path(path), ..site.clone() }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_page_is_rendered_once_and_other_pages_are_hits() {
    let site = Site::new();
    let pages: Vec<Site> = ["/a", "/b", "/c", "/d"].iter().map(|path| at(&site, path)).collect();
    for page in &pages {
        page.get("one").await;
    }
    assert!(site.table.damage(&pages[0].page.meta()));
    tokio::time::sleep(2 * SECOND).await;
    let another = site.another();
    for round in 0..5 {
        for (index, page) in pages.iter().enumerate() {
            for process in [page.clone(), at(&another, page.page.cache_key())] {
                let (state, body) = process.get("two").await;
                let expected = if index == 0 { "two" } else { "one" };
                assert_eq!(body, expected, "page {index}, round {round}");
                assert!(matches!(state, State::Hit | State::Miss), "{state:?}");
                assert!(index == 0 || state == State::Hit, "page {index} is not affected: {state:?}");
            }
        }
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(site.renders(), 5, "four pages, and one of them twice");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_row_of_the_tag_of_all_pages_costs_one_render_of_each_page_and_no_bypass() {
    for relies_on_feed in [false, true] {
        let site = if relies_on_feed { Site::built(exclusive) } else { Site::new() };
        tokio::time::sleep(SECOND).await;
        site.isr.invalidate_tag(&Tag::everything(), None).await.expect("an invalidation");
        tokio::time::sleep(10 * SECOND).await;
        let pages: Vec<Site> = ["/a", "/b"].iter().map(|path| at(&site, path)).collect();
        for page in &pages {
            page.get("one").await;
        }
        site.renders();
        assert!(site.table.damage(&Tag::everything().key(None)));
        // The row is read again: by another process, whose cache is empty.
        let another = site.another();
        for page in &pages {
            assert_eq!(at(&another, page.page.cache_key()).get("two").await.0, State::Stale);
        }
        another.settle().await;
        tokio::time::sleep(10 * SECOND).await;
        for page in &pages {
            let process = at(&another, page.page.cache_key());
            process.get("three").await;
            process.settle().await;
            assert_eq!(process.get("four").await.0, State::Hit, "relies on the feed: {relies_on_feed}");
        }
        assert!(site.renders() <= 4, "it does not stay stale");
    }
}

/// The table that was replaced may have had an invalidation that this process has not read yet.
#[tokio::test(start_paused = true)]
async fn pages_in_memory_are_read_again_after_the_table_was_replaced() {
    let site = Site::on_feed(3600 * SECOND).await;
    assert_eq!(site.get("two").await.0, State::Hit);
    tokio::time::sleep(5 * SECOND).await;
    site.table.take();
    assert_eq!(site.get("two").await.0, State::Hit);
    let (reads, _) = site.table.take();
    assert_eq!(reads, 0, "the page is not read again");
    site.table.pretend_to_be_replaced();
    tokio::time::sleep(2 * SECOND).await;
    site.table.take();
    assert_eq!(site.get("two").await.0, State::Hit);
    assert!(site.table.take().0 > 0, "the page is read again");
}

/// The row that replaces it may count from a lesser base than the row that the other process has in its cache.
#[tokio::test(start_paused = true)]
async fn processes_that_rely_on_the_feed_learn_that_another_one_has_replaced_a_damaged_tag_row() {
    let site = Site::on_feed(3600 * SECOND).await;
    site.isr.invalidate_tag(&Tag::everything(), None).await.expect("an invalidation");
    for round in 0..8 {
        // This process caches the row, for as long as the feed does not name it.
        at(&site, "/cached").get("one").await;
        site.settle().await;
        tokio::time::sleep(10 * SECOND).await;
        assert!(site.table.damage(&Tag::everything().key(None)));
        let page = at(&site, &format!("/{round}"));
        let another = at(&site.another_built(exclusive), page.page.cache_key());
        for _ in 0..2 {
            another.get("one").await;
            another.settle().await;
        }
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(page.get("two").await, (State::Hit, "one".to_owned()), "round {round}");
    }
}

/// The row that replaces it counts from another base, which may be less than what pages have seen.
#[tokio::test(start_paused = true)]
async fn pages_are_fresh_again_after_a_tag_row_was_lost_or_replaced_whatever_its_new_count_is() {
    for number in 0..8_u32 {
        let site = Site::new();
        let site = at(&site, &format!("/{number}"));
        site.isr.invalidate_tag(&Tag::everything(), None).await.expect("an invalidation");
        tokio::time::sleep(10 * SECOND).await;
        site.get("one").await;
        site.settle().await;
        let row = Tag::everything().key(None);
        if number.is_multiple_of(2) {
            assert!(site.table.damage(&row));
        } else {
            let deleted = tabletheory::Txn::from(tabletheory::Write::delete(row));
            assert!(tabletheory::Table::commit(&*site.table, &deleted).await.expect("a delete").is_done());
        }
        // The first process replaces a damaged row; the other one regenerates the page.
        for _ in 0..2 {
            tokio::time::sleep(10 * SECOND).await;
            site.isr.lookup(&site.page).await.expect("a lookup");
        }
        let another = at(&site.another(), site.page.cache_key());
        for _ in 0..3 {
            another.get("two").await;
            another.settle().await;
            tokio::time::sleep(10 * SECOND).await;
        }
        assert_eq!(another.get("three").await.0, State::Hit, "page {number}");
    }
}
