//! A process of the test: an engine whose wall clock the test sets. It executes the commands of the test until its input ends.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use facetheory::testing::{ObservedTable, TableHooks};
use facetheory::{
    Bodies, Feed, GetResult, InvalidationMode, Isr, KeyScheme, PageKey, PageStore, Pages, Policy,
    RenderError, Rendered, Tag, Tenant,
};
use libtest_mimic::Failed;
use tabletheory::{Clock, SystemClock, Table, Timestamp};

use crate::stores::Stores;

/// The file with the current content of the page.
pub(crate) const CONTENT: &str = "content.txt";
/// All kinds of invalidation.
pub(crate) const KINDS: [&str; 7] = ["soft", "hard", "tag", "path", "route", "tenant", "root"];
/// Longer than all steps of the clocks together, so that a page stays fresh by its interval.
const INTERVAL: Duration = Duration::from_secs(10 * 3600);
/// Long enough for a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The wall clock of the machine, and the seconds that the test has added to it.
#[derive(Debug, Default)]
struct SteppedClock(AtomicI64);

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        let (now, step) = (SystemClock.now(), self.0.load(Ordering::SeqCst));
        Timestamp::from_millis(now.millis() + 1000 * step)
    }
}

/// A table as a process sees it whose clock is set.
#[derive(Debug)]
struct SteppedTable {
    table: Arc<dyn Table>,
    clock: Arc<SteppedClock>,
}

#[async_trait]
impl TableHooks for SteppedTable {
    fn table(&self) -> &dyn Table {
        &*self.table
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
}

pub(crate) async fn child(role: String, stores: Stores) -> Result<(), Failed> {
    if role == "create-table" {
        return stores.create_table().await;
    }
    let clock = Arc::new(SteppedClock::default());
    let table = SteppedTable { table: tabletheory::open(&stores.table).await?, clock: clock.clone() };
    let pages =
        Pages::new(PageStore::new(Arc::new(ObservedTable(table))), Bodies::open(&stores.bodies).await?);
    let isr = Isr::builder(pages.with_body_timeout(TIMEOUT)).table_timeout(TIMEOUT);
    let isr = match role.as_str() {
        "serve-without-max-age" => isr.metadata_max_age(Duration::ZERO).build(),
        "serve" => isr.build(),
        "serve-with-feed" => isr.feed(Feed::Exclusive).build(),
        other => return Err(format!("unknown role of a child: {other}").into()),
    };
    let site = Site { isr, clock, page: page()?, tenant: tenant()? };
    for line in std::io::stdin().lines() {
        let line = line?;
        let response = match line.split_once(' ') {
            Some(("step", seconds)) => {
                site.clock.0.store(seconds.parse()?, Ordering::SeqCst);
                "ok".to_owned()
            }
            Some(("invalidate", kind)) => site.invalidate(kind).await.map(|()| "ok".to_owned())?,
            _ => site.get(&stores.directory).await?,
        };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{response}")?;
        output.flush()?;
    }
    Ok(())
}

fn tenant() -> Result<Tenant, Failed> {
    Ok(Tenant::new("acme")?)
}

fn page() -> Result<PageKey, Failed> {
    let page = KeyScheme::Hashed.page(Some(&tenant()?), "/docs/a")?;
    Ok(page.at_path("/docs/a").of_route("/docs/{name}")?)
}

struct Site {
    isr: Isr,
    clock: Arc<SteppedClock>,
    page: PageKey,
    tenant: Tenant,
}

impl Site {
    async fn invalidate(&self, kind: &str) -> Result<(), Failed> {
        let modes = [("soft", InvalidationMode::Soft), ("hard", InvalidationMode::Hard)];
        if let Some((_, mode)) = modes.iter().find(|(name, _)| *name == kind) {
            self.isr.invalidate(&self.page, *mode).await?;
            return Ok(());
        }
        let tag = match kind {
            "tag" => Tag::new("news")?,
            "path" => Tag::path("/docs")?,
            "root" => Tag::path("/")?,
            "route" => Tag::route("/docs/{name}")?,
            "tenant" => Tag::everything(),
            other => return Err(format!("unknown kind of invalidation: {other}").into()),
        };
        Ok(self.isr.invalidate_tag(&tag, Some(&self.tenant)).await?)
    }

    /// Requests the page: its state, and its content.
    async fn get(&self, directory: &Path) -> Result<String, Failed> {
        let mut policy = Policy::every(INTERVAL);
        (policy.wait, policy.render_timeout) = (TIMEOUT, TIMEOUT);
        let content = directory.join(CONTENT);
        let render = |_| async move {
            let mut rendered = Rendered::html(std::fs::read(content)?);
            rendered.content.tags = vec!["news".to_owned()];
            Ok::<_, RenderError>(rendered)
        };
        Ok(match self.isr.get(&self.page, &policy, render).await? {
            GetResult::Page(served) => {
                format!("{} {}", served.state.as_str(), std::str::from_utf8(served.page.bytes())?)
            }
            other => format!("none {other:?}"),
        })
    }
}
