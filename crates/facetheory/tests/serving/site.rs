//! A process of a site: it follows its orders until there are no more.

use std::fs::OpenOptions;
use std::future::poll_fn;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use facetheory::protocol::LeaseTerms;
use facetheory::{Bodies, GetResult, History, Isr, PageKey, PageStore, Pages, Policy, RenderError, Rendered};
use libtest_mimic::Failed;
use tabletheory::{Clock as _, Random as _, SystemClock, SystemRandom};

use crate::order::{Order, Reply, Row, Tally, Visits};
use crate::place::Place;
use crate::process::{PATIENCE, RENDERS};

/// How often a render looks whether it may end.
const LOOK: Duration = Duration::from_millis(10);

/// How long a process waits for its stores before they count as unreachable.
pub(crate) struct Limits {
    pub(crate) table: Duration,
    pub(crate) bodies: Duration,
}

impl Default for Limits {
    /// How fast the machine is decides nothing.
    fn default() -> Limits {
        Limits { table: PATIENCE, bodies: PATIENCE }
    }
}

#[derive(Clone)]
struct Site {
    isr: Isr,
    directory: Arc<Path>,
}

pub(crate) async fn serve(place: &Place, terms: LeaseTerms, limits: Limits) -> Result<(), Failed> {
    let store = PageStore::new(tabletheory::open(&place.table).await?).with_lease_terms(terms);
    let pages = Pages::new(store, Bodies::open(&place.bodies).await?).with_body_timeout(limits.bodies);
    let isr = Isr::builder(pages).table_timeout(limits.table).build();
    let site = Site { isr, directory: place.directory.as_path().into() };
    for line in std::io::stdin().lines() {
        match line?.parse()? {
            Order::Visit(visits) => {
                let tally = site.visit(&visits).await?;
                for ((state, text), count) in tally.answers {
                    say(&Reply::Given { state, count, text })?;
                }
                say(&Reply::Done { slowest: tally.slowest })?;
            }
            Order::Row(name) => say(&Reply::Row(site.row(&page(&name, 0)).await?))?,
        }
    }
    let drained = site.isr.shut_down(PATIENCE).await;
    if drained { Ok(()) } else { Err("what went on in the background did not end".into()) }
}

fn say(reply: &Reply) -> Result<(), Failed> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{reply}")?;
    Ok(output.flush()?)
}

fn page(name: &str, number: usize) -> PageKey {
    PageKey::new(format!("/{name}/{number}")).expect("a page")
}

/// The body of a page, which says whose it is and which process rendered it. No two are the same: one that is served
/// already would not have to be stored.
fn body(page: &PageKey) -> String {
    format!("{}\n{}\n{:x}", page.cache_key(), std::process::id(), SystemRandom.next_u64())
}

impl Site {
    /// All visitors come at once: each is on its way before it is said that they have begun.
    async fn visit(&self, visits: &Visits) -> Result<Tally, Failed> {
        let mut policy = Policy::every(Duration::from_secs(visits.interval)).with_history(History::Versions);
        // How fast the machine is decides nothing.
        (policy.wait, policy.render_timeout) = (PATIENCE, PATIENCE);
        let (total, begun) = (visits.total(), Arc::new(AtomicUsize::new(0)));
        let mut on_their_way = tokio::task::JoinSet::new();
        for number in 0..total {
            let (site, begun) = (self.clone(), begun.clone());
            let page = page(&visits.name, number % visits.pages);
            let until = visits.until.as_ref().map(|file| self.directory.join(file));
            on_their_way.spawn(async move {
                let came = SystemClock.now();
                let renders = site.directory.join(RENDERS);
                let mut visit = pin!(site.isr.get(&page, &policy, |context| {
                    let page = context.page;
                    async move { render(&page, &renders, until.as_deref()).await }
                }));
                let first = poll_fn(|context| Poll::Ready(visit.as_mut().poll(context))).await;
                if begun.fetch_add(1, Ordering::SeqCst) + 1 == total {
                    say(&Reply::Begun)?;
                }
                let answer = match first {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => visit.await,
                };
                Ok::<_, Failed>((given(&page, answer), SystemClock.now().millis() - came.millis()))
            });
        }
        let mut tally = Tally::default();
        while let Some(visit) = on_their_way.join_next().await {
            let (answer, took) = visit??;
            *tally.answers.entry(answer).or_default() += 1;
            tally.slowest = tally.slowest.max(took);
        }
        Ok(tally)
    }

    async fn row(&self, page: &PageKey) -> Result<Row, Failed> {
        let pages = self.isr.pages();
        let view = pages.store().lookup(page).await?;
        let held_until = view.lock.map_or(0, |lock| lock.lease_expires_at);
        let Some((meta, body)) = pages.read(page).await? else {
            return Ok(Row { version: 0, held_until, by: "nobody".to_owned() });
        };
        let version = meta.version.ok_or("pages are kept in versions")?;
        Ok(Row { version, held_until, by: by(page, &body.bytes)? })
    }
}

/// Counted in a file that all processes append to.
async fn render(page: &PageKey, renders: &PathBuf, until: Option<&Path>) -> Result<Rendered, RenderError> {
    let mut file = OpenOptions::new().create(true).append(true).open(renders)?;
    file.write_all(format!("{} {}\n", page.cache_key(), std::process::id()).as_bytes())?;
    while let Some(until) = until
        && !until.exists()
    {
        tokio::time::sleep(LOOK).await;
    }
    Ok(Rendered::html(body(page)))
}

/// What a visitor was given: the state, and the process that rendered its page or why there is none.
fn given(page: &PageKey, answer: facetheory::Result<GetResult>) -> (String, String) {
    match answer {
        Ok(GetResult::Page(served)) => match by(page, served.page.bytes()) {
            Ok(by) => (served.state.as_str().to_owned(), by),
            Err(failed) => ("error".to_owned(), format!("{failed:?}").replace('\n', " ")),
        },
        Ok(GetResult::Bypass(reason)) => ("bypass".to_owned(), reason.as_str().to_owned()),
        Err(error) => ("error".to_owned(), error.to_string().replace('\n', " ")),
    }
}

/// Which process rendered the body, which must be that of this page.
fn by(page: &PageKey, body: &[u8]) -> Result<String, Failed> {
    let text = std::str::from_utf8(body)?;
    match text.split('\n').collect::<Vec<_>>()[..] {
        [key, by, _] if key == page.cache_key() => Ok(by.to_owned()),
        _ => Err(format!("{text:?} is not a body of {}", page.cache_key()).into()),
    }
}
