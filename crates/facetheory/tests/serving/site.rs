//! A process of a site: it executes the commands of the test until its input ends.

use std::fs::OpenOptions;
use std::future::poll_fn;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use facetheory::protocol::LeaseTerms;
use facetheory::testing::{ObservedTable, TableHooks};
use facetheory::{Bodies, GetResult, History, Isr, PageKey, PageStore, Pages, Policy, RenderError, Rendered};
use libtest_mimic::Failed;
use tabletheory::{Clock as _, Random as _, SystemClock, SystemRandom, Table};

use crate::child_protocol::{Burst, ChildCommand, Message, Responses, Row};
use crate::process::{RENDERS, TABLE_CALLS, TIMEOUT};
use crate::stores::Stores;

/// How often a render polls whether it may finish.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a process waits for its stores before they count as unreachable.
pub(crate) struct Timeouts {
    pub(crate) table: Duration,
    pub(crate) bodies: Duration,
}

impl Default for Timeouts {
    /// Long enough for a slow machine.
    fn default() -> Timeouts {
        Timeouts { table: TIMEOUT, bodies: TIMEOUT }
    }
}

/// A table that appends a byte to a file after each call.
#[derive(Debug)]
struct RecordedTable {
    table: Arc<dyn Table>,
    calls: PathBuf,
}

#[async_trait]
impl TableHooks for RecordedTable {
    fn table(&self) -> &dyn Table {
        &*self.table
    }

    async fn after(&self) {
        let file = OpenOptions::new().create(true).append(true).open(&self.calls);
        file.and_then(|mut file| file.write_all(b".")).expect("the file of table calls is writable");
    }
}

#[derive(Clone)]
struct Site {
    isr: Isr,
    directory: Arc<Path>,
}

pub(crate) async fn serve(stores: &Stores, terms: LeaseTerms, timeouts: Timeouts) -> Result<(), Failed> {
    let calls = stores.directory.join(format!("{TABLE_CALLS}.{}", std::process::id()));
    let table = RecordedTable { table: tabletheory::open(&stores.table).await?, calls };
    let store = PageStore::new(Arc::new(ObservedTable(table))).with_lease_terms(terms);
    let pages = Pages::new(store, Bodies::open(&stores.bodies).await?).with_body_timeout(timeouts.bodies);
    // A page that one client got is in the stores: an outage that follows finds each page that was served published.
    let isr = Isr::builder(pages).table_timeout(timeouts.table).publish_wait(Duration::MAX).build();
    let site = Site { isr, directory: stores.directory.as_path().into() };
    for line in std::io::stdin().lines() {
        match line?.parse()? {
            ChildCommand::Burst(burst) => {
                let responses = site.request(&burst).await?;
                for ((state, text), count) in responses.counts {
                    send(&Message::Count { state, count, text })?;
                }
                send(&Message::Done { slowest: responses.slowest })?;
            }
            ChildCommand::Row(name) => send(&Message::Row(site.row(&page(&name, 0)).await?))?,
        }
    }
    let drained = site.isr.shut_down(TIMEOUT).await;
    if drained { Ok(()) } else { Err("background work did not finish".into()) }
}

fn send(message: &Message) -> Result<(), Failed> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{message}")?;
    Ok(output.flush()?)
}

fn page(name: &str, number: usize) -> PageKey {
    PageKey::new(format!("/{name}/{number}")).expect("a page")
}

/// A body that contains its page and the process that rendered it. Every body is different, since an unchanged one
/// would not be stored.
fn body(page: &PageKey) -> String {
    format!("{}\n{}\n{:x}", page.cache_key(), std::process::id(), SystemRandom.next_u64())
}

impl Site {
    /// Sends all requests at once; each has started before the burst counts as started.
    async fn request(&self, burst: &Burst) -> Result<Responses, Failed> {
        let mut policy = Policy::every(Duration::from_secs(burst.interval)).with_history(History::Versions);
        // Long enough for a slow machine.
        (policy.wait, policy.render_timeout) = (TIMEOUT, TIMEOUT);
        let (total, started) = (burst.total(), Arc::new(AtomicUsize::new(0)));
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..total {
            let (site, started) = (self.clone(), started.clone());
            let page = page(&burst.pages.name, number % burst.pages.count);
            let until = burst.until.as_ref().map(|file| self.directory.join(file));
            requests.spawn(async move {
                let start = SystemClock.now();
                let renders = site.directory.join(RENDERS);
                let mut request = pin!(site.isr.get(&page, &policy, |context| {
                    let page = context.page;
                    async move { render(&page, &renders, until.as_deref()).await }
                }));
                let first = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
                if started.fetch_add(1, Ordering::SeqCst) + 1 == total {
                    send(&Message::Started)?;
                }
                let result = match first {
                    Poll::Ready(result) => result,
                    Poll::Pending => request.await,
                };
                Ok::<_, Failed>((describe(&page, result), SystemClock.now().millis() - start.millis()))
            });
        }
        let mut responses = Responses::default();
        while let Some(request) = requests.join_next().await {
            let (response, took) = request??;
            *responses.counts.entry(response).or_default() += 1;
            responses.slowest = responses.slowest.max(took);
        }
        Ok(responses)
    }

    async fn row(&self, page: &PageKey) -> Result<Row, Failed> {
        let view = self.isr.lookup(page).await?;
        let held_until = view.lock.map_or(0, |lock| lock.lease_expires_at);
        let Some((meta, body)) = self.isr.read(page).await? else {
            return Ok(Row { version: 0, held_until, rendered_by: "nobody".to_owned() });
        };
        let version = meta.version.ok_or("the page has no version")?;
        Ok(Row { version, held_until, rendered_by: rendered_by(page, &body.bytes)? })
    }
}

/// Renders a page, and appends a line to the file that counts the renders of all processes.
async fn render(page: &PageKey, renders: &PathBuf, until: Option<&Path>) -> Result<Rendered, RenderError> {
    let mut file = OpenOptions::new().create(true).append(true).open(renders)?;
    file.write_all(format!("{} {}\n", page.cache_key(), std::process::id()).as_bytes())?;
    while let Some(until) = until
        && !until.exists()
    {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(Rendered::html(body(page)))
}

/// The state of a result, with the process that rendered the page or the reason why there is no page.
fn describe(page: &PageKey, result: facetheory::Result<GetResult>) -> (String, String) {
    match result {
        Ok(GetResult::Page(served)) => match rendered_by(page, served.page.bytes()) {
            Ok(process) => (served.state.as_str().to_owned(), process),
            Err(failed) => ("error".to_owned(), format!("{failed:?}").replace('\n', " ")),
        },
        Ok(GetResult::Bypass(reason)) => ("bypass".to_owned(), reason.as_str().to_owned()),
        Err(error) => ("error".to_owned(), error.to_string().replace('\n', " ")),
    }
}

/// The process that rendered a body, which must be one of this page.
fn rendered_by(page: &PageKey, body: &[u8]) -> Result<String, Failed> {
    let text = std::str::from_utf8(body)?;
    match text.split('\n').collect::<Vec<_>>()[..] {
        [key, process, _] if key == page.cache_key() => Ok(process.to_owned()),
        _ => Err(format!("{text:?} is not a body of {}", page.cache_key()).into()),
    }
}
