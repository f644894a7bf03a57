//! Writes an invalidation into the row of every matching page.

use std::fmt;

use facetheory::protocol::{EpochTerms, Meta};
use facetheory::{Entry, Invalidated, InvalidationMode, Listing, PageStore};
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// The most pages of one list.
pub(super) const BATCH: usize = 500;
/// A run ends after this many pages that could not be written: the table is then not available.
const MAX_FAILURES: u64 = 100;

/// The pages to write, and how.
#[derive(Debug)]
pub(super) struct Materialise {
    /// The matching pages. Without a tenant, only pages without one are meant.
    pub(super) pages: Listing,
    pub(super) mode: InvalidationMode,
    /// When the invalidation began, in epoch seconds: pages that were rendered later are left alone.
    pub(super) since: i64,
    pub(super) dry_run: bool,
    pub(super) concurrency: usize,
}

/// The result so far.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Report {
    /// When the invalidation began, in epoch seconds: the value of `--since` to continue.
    since: i64,
    /// Rows of the table that were read.
    pub(super) rows: usize,
    /// Matching pages.
    pub(super) matched: u64,
    /// Pages that are stale now; in a dry run, those that would be.
    pub(super) written: u64,
    /// Pages that needed no write: rendered since, or written by the run that this one continues.
    unaffected: u64,
    /// Pages that a pin protects from soft invalidation.
    pinned: u64,
    /// Pages that could not be written.
    pub(super) failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_error: Option<String>,
    /// Why the rest of the table could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) read_error: Option<String>,
    dry_run: bool,
    /// Whether the whole table was read.
    pub(super) finished: bool,
}

impl Materialise {
    /// Reads the table in parts and writes the matching pages of each, until the end, until `stop`, or until the table
    /// cannot be read. Writes in progress are always awaited.
    pub(super) async fn run(
        &self,
        store: &PageStore,
        stop: &CancellationToken,
        mut progress: impl FnMut(&Report),
    ) -> Report {
        let mut listing = self.pages.clone();
        let mut report = Report { since: self.since, dry_run: self.dry_run, ..Report::default() };
        while !stop.is_cancelled() && report.failed < MAX_FAILURES {
            let listed = match store.list(&listing).await {
                Ok(listed) => listed,
                Err(error) => {
                    report.read_error = Some(format!("{:#}", anyhow::Error::from(error)));
                    break;
                }
            };
            report.rows += listed.rows;
            // Without a tenant, a list contains the pages of all tenants.
            let is_meant = |entry: &Entry| entry.tenant.is_some() == self.pages.tenant.is_some();
            let matching = listed.entries.into_iter().filter(is_meant);
            let writes = matching.map(|entry| self.write(store, stop, entry));
            let mut writes = futures_util::stream::iter(writes).buffer_unordered(self.concurrency);
            while let Some(outcome) = writes.next().await {
                report.count(outcome);
                progress(&report);
            }
            progress(&report);
            listing.after = listed.next;
            if listing.after.is_none() {
                report.finished = !stop.is_cancelled();
                break;
            }
        }
        report
    }

    async fn write(&self, store: &PageStore, stop: &CancellationToken, entry: Entry) -> Outcome {
        if stop.is_cancelled() {
            return Outcome::NotStarted;
        }
        if entry.meta.as_ref().is_some_and(|meta| self.is_unaffected(meta)) {
            return Outcome::Unaffected;
        }
        if self.dry_run {
            return Outcome::Written;
        }
        match store.invalidate_listed(&entry, self.mode).await {
            Ok(Invalidated::Pinned) => Outcome::Pinned,
            // A page that was deleted meanwhile cannot be served either.
            Ok(_) => Outcome::Written,
            Err(error) => Outcome::Failed(format!("{}: {error}", entry.pk)),
        }
    }

    /// Whether the page was rendered after the invalidation, with a margin for the clocks of hosts, or was written by
    /// the run that this one continues.
    fn is_unaffected(&self, meta: &Meta) -> bool {
        let margin = i64::try_from(EpochTerms::default().skew.as_secs()).unwrap_or_default();
        let is_rendered_since = meta.generation.generated_at > self.since.saturating_add(margin);
        let is_written = meta.generation.revalidate_seconds == 0
            && meta.stale_since.is_some_and(|since| since >= self.since)
            && (self.mode == InvalidationMode::Soft || meta.must_not_serve);
        is_rendered_since || is_written
    }
}

/// The result of the invalidation of one page.
enum Outcome {
    Written,
    Unaffected,
    Pinned,
    Failed(String),
    NotStarted,
}

impl Report {
    fn count(&mut self, outcome: Outcome) {
        self.matched += u64::from(!matches!(outcome, Outcome::NotStarted));
        match outcome {
            Outcome::Written => self.written += 1,
            Outcome::Unaffected => self.unaffected += 1,
            Outcome::Pinned => self.pinned += 1,
            Outcome::Failed(error) => {
                self.failed += 1;
                self.first_error.get_or_insert(error);
            }
            Outcome::NotStarted => {}
        }
    }

    /// The text of the progress bar.
    pub(super) fn progress(&self) -> String {
        format!("{} rows read, {} pages match, {} written", self.rows, self.matched, self.written)
    }

    /// How to continue a run that did not finish.
    pub(super) fn remedy(&self) -> String {
        remedy(self.since)
    }
}

/// How to continue a run that began at this time.
pub(super) fn remedy(since: i64) -> String {
    format!("run the same command with --since {since} to continue")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { written, unaffected, pinned, failed, rows, .. } = self;
        let verb = if self.dry_run { "would be invalidated" } else { "invalidated" };
        writeln!(
            f,
            "{written} pages {verb}, {unaffected} not affected, {pinned} pinned, {failed} failed; {rows} rows read"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use facetheory::protocol::{Generation, Version};
    use facetheory::{PageKey, Tenant};
    use std::sync::Arc;
    use tabletheory::{ManualClock, MemoryTable, Table as _, Timestamp, Txn, Write};

    const NOW: i64 = 1_700_000_000;
    const PAGES: u64 = 40;

    /// A store with pages that were rendered a minute ago, of which every second has a tenant.
    async fn store() -> PageStore {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        let table = MemoryTable::with_clock(clock);
        for number in 0..2 * PAGES {
            let page = PageKey::new(format!("/{number}")).expect("a page");
            let mut key = page.meta();
            if number % 2 == 1 {
                key.pk = format!("TENANT#acme#{}", key.pk);
            }
            let meta = Meta::of(Generation::new(format!("isr/{number}.html"), NOW - 60, 3600));
            assert!(
                table.commit(&Txn::from(Write::put(key, meta.to_item()))).await.expect("a row").is_done()
            );
        }
        PageStore::new(Arc::new(table))
    }

    fn everything() -> Materialise {
        Materialise {
            pages: Listing::new(BATCH),
            mode: InvalidationMode::Soft,
            since: NOW,
            dry_run: false,
            concurrency: 4,
        }
    }

    #[tokio::test]
    async fn an_interrupted_run_awaits_its_writes_and_a_continued_one_does_the_rest() {
        let (store, stop) = (store().await, CancellationToken::new());
        let interrupt = |report: &Report| {
            if report.written == 10 {
                stop.cancel();
            }
        };
        let first = everything().run(&store, &stop, interrupt).await;
        assert!(!first.finished && (10..PAGES).contains(&first.written), "{first:?}");

        let mut calls = 0;
        let rest = everything().run(&store, &CancellationToken::new(), |_| calls += 1).await;
        assert!(rest.finished && calls > 0, "{rest:?}");
        assert_eq!((rest.written, rest.unaffected), (PAGES - first.written, first.written));
    }

    #[tokio::test]
    async fn only_pages_of_the_tenant_or_without_one_are_written() {
        let store = store().await;
        let stop = CancellationToken::new();
        let mut of_tenant = everything();
        of_tenant.pages.tenant = Some(Tenant::new("acme").expect("a tenant"));
        assert_eq!(of_tenant.run(&store, &stop, |_| {}).await.written, PAGES);
        assert_eq!(everything().run(&store, &stop, |_| {}).await.written, PAGES);
    }

    #[tokio::test]
    async fn a_pin_protects_a_page_until_another_service_moves_the_pointer() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        let table = Arc::new(MemoryTable::with_clock(clock));
        let mut pinned = Meta::of(Generation::new("isr/1.html", NOW - 60, 3600));
        (pinned.current_sk, pinned.pinned_until) = (Some("VER#1".to_owned()), Some(NOW + 3540));
        let version = |body: &str| Version::of(Generation::new(body, NOW - 30, 3600)).to_item();
        for path in ["/pinned", "/swapped"] {
            let page = PageKey::new(path).expect("a page");
            let mut meta = pinned.to_item();
            if path == "/swapped" {
                meta.set("current_sk", "VER#2");
            }
            let rows = [
                Write::put(page.meta(), meta),
                Write::put(page.version("1"), version("isr/1.html")),
                Write::put(page.version("2"), version("isr/2.html")),
            ];
            assert!(table.commit(&Txn::new(rows)).await.expect("rows").is_done());
        }
        let store = PageStore::new(table);
        let report = everything().run(&store, &CancellationToken::new(), |_| {}).await;
        assert_eq!((report.written, report.pinned, report.unaffected), (1, 1, 0));
        let again = everything().run(&store, &CancellationToken::new(), |_| {}).await;
        assert_eq!((again.written, again.pinned, again.unaffected), (0, 1, 1));
    }

    #[tokio::test]
    async fn pages_that_were_rendered_since_are_left_alone_and_a_dry_run_writes_nothing() {
        let (store, stop) = (store().await, CancellationToken::new());
        let dry = Materialise { dry_run: true, ..everything() };
        assert_eq!(dry.run(&store, &stop, |_| {}).await.written, PAGES);
        // Rendered 60 s ago: after an invalidation 63 s ago, but not after one 62 s ago, because of the margin.
        for (since, written) in [(NOW - 63, 0), (NOW - 62, PAGES)] {
            let run = Materialise { since, ..everything() };
            assert_eq!(run.run(&store, &stop, |_| {}).await.written, written, "{since}");
        }
    }
}
