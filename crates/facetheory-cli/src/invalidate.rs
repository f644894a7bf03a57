//! `facetheory invalidate`: makes pages stale, directly in the table.

mod materialise;

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use facetheory::{InvalidationMode, Listing, PageStore, Tag, Tenant};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tabletheory::Address;
use tokio_util::sync::CancellationToken;

use self::materialise::{BATCH, Materialise, Report, remedy};
use crate::print;
use crate::serve::{StoreLocation, Stores};
use crate::signals::Signals;
use crate::table::read_store;

/// Make all pages of a tag, path or tenant stale, directly in the table.
///
/// Without --materialise two small rows are written, however many pages there are: the tag, and an entry of the change
/// feed. FaceTheory gateways notice it; services in other languages, which read only the rows of a page, do not. With
/// --materialise the row of every matching page is written as well, which every language understands, and which --hard
/// needs: it marks the stored version of each page as not to be served. The pages are found by reading the whole table.
///
/// Pages that another language wrote have no tags in their rows, so --tag does not find them. --path finds them if their
/// keys are raw; --everything and --tenant find them in any case.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory invalidate --tag news                             two small rows, for FaceTheory gateways
  facetheory invalidate --tag news --materialise               also every page, for services in other languages
  facetheory invalidate --path /docs --materialise --dry-run   count the pages, write nothing
  facetheory invalidate --everything --materialise --hard --table dynamodb:pages --bodies s3://bucket/isr

Ctrl-C stops after the writes in progress. The last line then says how to continue.")]
pub(crate) struct Arguments {
    /// Pages with this tag
    #[arg(long, value_name = "TAG", conflicts_with_all = ["path", "everything"])]
    tag: Option<String>,
    /// Pages at this path or below it
    #[arg(long, value_name = "PATH", conflicts_with = "everything")]
    path: Option<String>,
    /// All pages
    #[arg(long)]
    everything: bool,
    /// Only pages of this tenant [default: only pages without a tenant]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Write every matching page: for services in other languages, and for --hard
    #[arg(long)]
    materialise: bool,
    /// The stored versions of the pages must not be served any more, not even while the pages are regenerated
    #[arg(long, requires = "materialise")]
    hard: bool,
    /// Count the matching pages, and write nothing
    #[arg(long, requires = "materialise")]
    dry_run: bool,
    /// Continue an interrupted run that began at this time, in epoch seconds
    #[arg(long, value_name = "SECONDS", requires = "materialise")]
    since: Option<i64>,
    /// Pages that are written at the same time
    #[arg(long, value_name = "PAGES", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Configuration file [default: facetheory.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    store: StoreLocation,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Output<'o> {
    /// Whether the invalidation is written for FaceTheory gateways.
    invalidated: bool,
    #[serde(flatten)]
    materialised: Option<&'o Report>,
}

/// Invalidates the pages.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let (tag, tenant) = arguments.target()?;
    let (store, rows) = arguments.open().await?;
    // A gateway that relies on the change feed notices nothing else.
    let announcing = store.clone().with_announcements(true);
    let began = store.now().seconds();
    ensure!(
        arguments.since.is_none_or(|since| (0..=began).contains(&since)),
        "--since is not a time in the past; write the number that the interrupted run printed, in epoch seconds"
    );
    // First, so that gateways already notice it, and so that a continued run does not do it again.
    let writes_epoch = !arguments.dry_run && arguments.since.is_none();
    if writes_epoch {
        announcing.invalidate_tag(&tag, tenant.as_ref()).await?;
    }
    if !arguments.materialise {
        return if arguments.json {
            print(&(serde_json::to_string_pretty(&Output { invalidated: true, materialised: None })? + "\n"))
        } else {
            print("invalidated for FaceTheory gateways; services in other languages need --materialise\n")
        };
    }
    let report = arguments.materialise(&store, began, tenant.clone(), progress_bar(rows)).await?;
    // Once for all pages: a gateway cannot read thousands of entries at once. Also if this run wrote no page, because the
    // one that it continues may have ended before this.
    let announced =
        if arguments.dry_run { Ok(()) } else { announcing.announce_tag(&tag, tenant.as_ref()).await };
    if arguments.json {
        let output = Output { invalidated: !arguments.dry_run, materialised: Some(&report) };
        print(&(serde_json::to_string_pretty(&output)? + "\n"))?;
    } else {
        print(&report.to_string())?;
    }
    if let Some(error) = &report.first_error {
        bail!(
            "{} pages could not be invalidated; the first error: {error}; {}",
            report.failed,
            report.remedy()
        );
    }
    if let Some(error) = &report.read_error {
        bail!("the table could not be read to its end: {error}; {}", report.remedy());
    }
    ensure!(report.finished, "interrupted; {}", report.remedy());
    if let Err(error) = announced {
        bail!("{:#}; {}", anyhow::Error::from(error), report.remedy());
    }
    Ok(())
}

impl Arguments {
    /// The tag whose epoch is written, and the tenant.
    fn target(&self) -> Result<(Tag, Option<Tenant>)> {
        let tenant = self.tenant.as_deref().map(Tenant::new).transpose()?;
        let tag = match (&self.tag, &self.path) {
            (Some(tag), _) => Tag::new(tag.as_str())?,
            (None, Some(path)) => Tag::path(path)?,
            (None, None) if self.everything || tenant.is_some() => Tag::everything(),
            (None, None) => bail!("name the pages with --tag, --path, --tenant or --everything"),
        };
        Ok((tag, tenant))
    }

    /// Opens the store. Returns it, and about how many rows its table has, if that is known.
    async fn open(&self) -> Result<(PageStore, Option<u64>)> {
        let mut store = read_store(self.config.as_deref())?;
        self.store.override_in(&mut store);
        let stores = Stores::of(&store)?;
        if let Address::Sqlite(file) = &stores.table {
            // Opening a file that does not exist would create an empty table.
            ensure!(
                file.exists(),
                "the table file {} does not exist; name the store with --data, or with --table and --bodies",
                file.display()
            );
        }
        ensure!(
            stores.table != Address::Memory,
            "a table in memory belongs to one process and cannot be reached; use POST /api/v1/invalidate of that process"
        );
        let table = stores.open_table().await?;
        let rows = match &table.dynamo {
            // Without the permission to describe the table, the progress has no total.
            Some(dynamo) if self.materialise => dynamo.describe().await.ok().map(|table| table.rows),
            _ => None,
        };
        Ok((stores.pages(table, &store).await?.store().clone(), rows))
    }

    /// Writes all matching pages until done or interrupted, with a progress bar on a terminal.
    async fn materialise(
        &self,
        store: &PageStore,
        began: i64,
        tenant: Option<Tenant>,
        progress: ProgressBar,
    ) -> Result<Report> {
        let stop = CancellationToken::new();
        let mut pages = Listing::new(BATCH);
        (pages.tag, pages.below, pages.tenant) = (self.tag.clone(), self.path.clone(), tenant);
        let run = Materialise {
            pages,
            mode: if self.hard { InvalidationMode::Hard } else { InvalidationMode::Soft },
            since: self.since.unwrap_or(began),
            dry_run: self.dry_run,
            concurrency: usize::from(self.concurrency),
        };
        let mut signals = Signals::install()?;
        let mut running = std::pin::pin!(run.run(store, &stop, |report| show(&progress, report)));
        loop {
            tokio::select! {
                report = &mut running => {
                    progress.finish_and_clear();
                    return Ok(report);
                }
                _ = signals.next() => {
                    ensure!(
                        !stop.is_cancelled(),
                        "interrupted while writes were in progress; {}",
                        remedy(run.since)
                    );
                    stop.cancel();
                }
            }
        }
    }
}

/// A progress bar over the rows of the table on standard error, or a spinner if their number is not known. It is shown only
/// on a terminal.
fn progress_bar(rows: Option<u64>) -> ProgressBar {
    match rows.filter(|rows| *rows > 0) {
        Some(rows) => {
            let style = ProgressStyle::with_template("{wide_bar} {percent}% {elapsed} {msg}");
            ProgressBar::new(rows).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        }
        None => {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
            ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        }
    }
}

fn show(progress: &ProgressBar, report: &Report) {
    progress.set_position(report.rows as u64);
    progress.set_message(report.progress());
}

#[cfg(test)]
mod tests {
    use std::io::Result;
    use std::sync::Arc;

    use indicatif::{ProgressDrawTarget, TermLike};
    use parking_lot::Mutex;

    use super::*;

    /// A terminal that records its text.
    #[derive(Clone, Debug, Default)]
    struct Recorder(Arc<Mutex<String>>);

    impl TermLike for Recorder {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> Result<()> {
            self.0.lock().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> Result<()> {
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    /// Returns what a terminal shows of a run that has read 50 rows of a table with so many.
    fn shown(rows: Option<u64>) -> String {
        let (terminal, progress) = (Recorder::default(), progress_bar(rows));
        progress.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        let mut report = Report::default();
        (report.rows, report.matched, report.written) = (50, 20, 10);
        show(&progress, &report);
        terminal.0.lock().clone()
    }

    #[test]
    fn the_progress_bar_shows_the_part_of_the_table_that_was_read() {
        let text = "50 rows read, 20 pages match, 10 written";
        let bar = shown(Some(200));
        assert!(bar.contains("█") && bar.contains(" 25% ") && bar.contains(text), "{bar}");
        for unknown in [None, Some(0)] {
            let spinner = shown(unknown);
            assert!(!spinner.contains('%') && spinner.contains(text), "{spinner}");
        }
    }
}
