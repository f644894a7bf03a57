//! Garbage collection of orphans among the bodies of the published pages.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use facetheory::{Bodies, GcOptions, GcReport, PageStore, Pages};
use tabletheory::{Clock as _, ManualClock, SqliteSettings, SqliteTable, SystemClock};

use crate::memory::resident_mib;
use crate::{Sizes, bar, completes_a_tenth, instant, publish, rate, say};

/// A body of a small page.
const BODY: [u8; 1024] = [b'x'; 1024];

pub(crate) async fn run(sizes: &Sizes, place: &Path) {
    let directory = place.join("bodies");
    let of = sizes.orphans + sizes.named;
    store(sizes, &directory);

    // By this clock all objects are two days old.
    let later = SystemClock.now() + Duration::from_secs(2 * 86_400);
    let settings = SqliteSettings::default().sweep(None);
    let table = SqliteTable::open_with(place.join("pages.db"), &settings, Arc::new(ManualClock::at(later)));
    let bodies = Bodies::files(&directory).expect("a directory");
    let pages = Pages::new(PageStore::new(Arc::new(table.expect("the file"))), bodies);

    for dry_run in [true, false] {
        let mut how = GcOptions::default();
        how.dry_run = dry_run;
        let (rows, objects) = (bar("rows", sizes.pages), bar("bodies", of));
        say(&rows, &format!("{:>10} {:>10} {:>10} {:>9}", "rows", "bodies", "deleted", "RSS MiB"));
        let mut before = (0, 0);
        let start = instant();
        let mut read = Duration::ZERO;
        let report = pages.gc(&how, |so_far: &GcReport| {
            rows.set_position(so_far.rows);
            objects.set_position(so_far.objects);
            if so_far.objects == 0 {
                read = start.elapsed();
            }
            if completes_a_tenth(before.0, so_far.rows, sizes.pages)
                || completes_a_tenth(before.1, so_far.objects, of)
            {
                let deleted = if dry_run { 0 } else { so_far.orphans };
                let line =
                    format!("{:>10} {:>10} {deleted:>10} {:>9}", so_far.rows, so_far.objects, resident_mib());
                say(&rows, &line);
            }
            before = (so_far.rows, so_far.objects);
            ControlFlow::Continue(())
        });
        let report = report.await.expect("a report");
        let took = start.elapsed() - read;
        rows.finish_and_clear();
        objects.finish_and_clear();
        assert_eq!((report.orphans, report.named, report.failed), (sizes.orphans, sizes.named, 0));
        let what = if dry_run { "to be deleted" } else { "deleted" };
        say(
            &rows,
            &format!(
                "\n{} rows in {:.1} s ({:.0}/s); {} bodies in {:.1} s ({:.0}/s), {} of them ({} MiB) {what}; {} MiB in use\n",
                report.rows,
                read.as_secs_f64(),
                rate(report.rows, read),
                report.objects,
                took.as_secs_f64(),
                rate(report.objects, took),
                report.orphans,
                report.bytes / (1024 * 1024),
                resident_mib(),
            ),
        );
    }
}

/// Bodies of the first pages, and orphans. They need not be durable.
fn store(sizes: &Sizes, directory: &Path) {
    let bar = bar("files", sizes.orphans + sizes.named);
    let orphans = sizes.pages..sizes.pages + sizes.orphans;
    for number in (0..sizes.named.min(sizes.pages)).chain(orphans) {
        let file = directory.join(publish::s3_key_of(number));
        std::fs::create_dir_all(file.parent().expect("it has one")).expect("a directory");
        std::fs::write(file, BODY).expect("a file");
        bar.inc(1);
    }
    bar.finish_and_clear();
}
