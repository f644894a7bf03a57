//! Leases and publishes compared with plain transactions of two writes, on two files, in turns.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use facetheory::protocol::{Acquire, Content, Generation, Lock, Meta, Published};
use facetheory::{History, PageKey, PageStore};
use tabletheory::{SqliteSettings, SqliteTable, SystemClock, Table, Timestamp, Txn, Write};
use tokio::task::JoinSet;

use crate::memory::resident_mib;
use crate::{Sizes, bar, completes_a_tenth, instant, rate, say};

/// Pages per turn: short enough for noise of the machine to affect both.
const TURN: u64 = 5000;
/// A lease and a publish.
const TRANSACTIONS_PER_PAGE: u64 = 2;

pub(crate) async fn run(sizes: &Sizes, place: &Path) {
    let ours = PageStore::new(open(&place.join("pages.db")));
    let plain = open(&place.join("plain.db"));
    let (mut we_took, mut they_took) = (Duration::ZERO, Duration::ZERO);
    let (mut since, mut done) = ((Duration::ZERO, Duration::ZERO, 0), 0);
    let bar = bar("pages", sizes.pages);
    say(
        &bar,
        &format!("{:>10} {:>12} {:>12} {:>7} {:>9}", "pages", "ours tx/s", "plain tx/s", "ratio", "RSS MiB"),
    );
    while done < sizes.pages {
        let turn = done..(done + TURN).min(sizes.pages);
        let step = turn.end - turn.start;
        // The second finds the disk as the first has left it, so the order alternates.
        for we in if (done / TURN).is_multiple_of(2) { [true, false] } else { [false, true] } {
            let start = instant();
            if we {
                let store = ours.clone();
                shared(turn.clone(), sizes.workers, move |number| publish(store.clone(), number)).await;
                we_took += start.elapsed();
            } else {
                let table = Arc::clone(&plain);
                shared(turn.clone(), sizes.workers, move |number| write(Arc::clone(&table), number)).await;
                they_took += start.elapsed();
            }
        }
        bar.inc(step);
        if completes_a_tenth(done, done + step, sizes.pages) {
            let transactions = (done + step - since.2) * TRANSACTIONS_PER_PAGE;
            let (we, they) = (rate(transactions, we_took - since.0), rate(transactions, they_took - since.1));
            let line = format!(
                "{:>10} {we:>12.0} {they:>12.0} {:>7.2} {:>9}",
                done + step,
                we / they,
                resident_mib()
            );
            say(&bar, &line);
            since = (we_took, they_took, done + step);
        }
        done += step;
    }
    bar.finish_and_clear();
    let transactions = done * TRANSACTIONS_PER_PAGE;
    let (we, they) = (rate(transactions, we_took), rate(transactions, they_took));
    let result = if we / they >= 0.5 { "" } else { "  MISSED" };
    say(
        &bar,
        &format!(
            "\n{done} pages by {} workers: {:.0} pages/s, {we:.0} transactions/s, {:.2} of {they:.0} plain ones (target 0.5){result}\n",
            sizes.workers,
            rate(done, we_took),
            we / they,
        ),
    );
}

fn open(file: &Path) -> Arc<dyn Table> {
    let settings = SqliteSettings::default().sweep(None);
    Arc::new(SqliteTable::open_with(file, &settings, Arc::new(SystemClock)).expect("a new file"))
}

/// Runs the work for these numbers with this many workers.
async fn shared<F>(
    numbers: std::ops::Range<u64>,
    workers: u64,
    work: impl Fn(u64) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let next = Arc::new(AtomicU64::new(numbers.start));
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (next, work, end) = (Arc::clone(&next), work.clone(), numbers.end);
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return;
                }
                work(number).await;
            }
        });
    }
    tasks.join_all().await;
}

fn page(number: u64) -> PageKey {
    PageKey::new(format!("/posts/{number}")).expect("a page")
}

fn s3_key(page: &PageKey, number: u64) -> String {
    let directory = &page.pk()["CACHE#".len()..][..24];
    format!("isr/{directory}/1700000000000-{number:08x}-0000-4000-8000-000000000000.html")
}

/// The S3 key of the body of a page.
pub(crate) fn s3_key_of(number: u64) -> String {
    s3_key(&page(number), number)
}

fn generation(page: &PageKey, number: u64, now: Timestamp) -> Generation {
    let mut generation = Generation::new(s3_key(page, number), now.seconds(), 60);
    generation.etag = Some(format!("\"{number:032x}\""));
    let mut content = Content::default();
    content.status = Some(200);
    content.content_type = Some("text/html; charset=utf-8".into());
    content.digest = Some(format!("sha256:{number:064x}"));
    generation.content = content;
    generation
}

async fn publish(store: PageStore, number: u64) {
    let page = page(number);
    let Acquire::Granted(lease) = store.try_acquire(&page).await.expect("no error") else {
        panic!("nobody else holds it")
    };
    let rendered = generation(&page, number, store.now());
    let published = store.publish(&lease, &rendered, None, History::Latest, None).await.expect("no error");
    assert_eq!(published, Published::Done);
}

/// Writes the rows of a lease and a publish in two plain transactions, without conditions and tokens.
async fn write(table: Arc<dyn Table>, number: u64) {
    let page = page(number);
    let now = table.clock().now();
    let token = format!("{number:032x}");
    let mut meta = Meta::of(generation(&page, number, now));
    meta.mark = Some(token.clone());
    let expires_at = now.seconds() + 30;
    let mut lock = Lock::new(token, expires_at);
    lock.ttl = Some(expires_at + 3600);
    let lock = Write::put(page.lock(), lock.to_item());
    let put = || Write::put(page.meta(), meta.to_item());
    for txn in [Txn::new([put(), lock]), Txn::new([put(), Write::delete(page.lock())])] {
        assert!(table.commit(&txn).await.expect("no error").is_done());
    }
}
