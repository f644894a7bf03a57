//! One run of a garbage collection: reads rows, lists bodies, deletes.

use std::collections::HashMap;
use std::ops::ControlFlow;

use futures_util::{StreamExt as _, future, stream};
use object_store::path::Path;
use tabletheory::{Scan, Timestamp};

use super::live_set::LiveSet;
use super::orphans::{Candidate, Siblings};
use super::scan::{RowScan, Superfluous};
use super::{GcOptions, GcReport};
use crate::bodies::unavailable;
use crate::error::{Error, Kind, Result};
use crate::pages::Pages;

/// Versions that are deleted at the same time.
const CONCURRENT_DELETES: usize = 32;
/// A run stops after this many failures: the next ones would fail too.
const MAX_FAILURES: u64 = 1000;
/// A live set with a higher rate of false positives is too small.
const MAX_FALSE_POSITIVES: f64 = 0.05;

pub(super) struct Run<'a, P> {
    pages: &'a Pages,
    options: &'a GcOptions,
    progress: P,
    pub(super) report: GcReport,
}

impl<'a, P: FnMut(&GcReport) -> ControlFlow<()>> Run<'a, P> {
    pub(super) fn new(pages: &'a Pages, options: &'a GcOptions, progress: P) -> Self {
        let report = GcReport { resume: options.resume.clone(), ..GcReport::default() };
        Run { pages, options, progress, report }
    }

    /// Reports progress after a batch. Breaks if the caller wants to stop, or too much failed.
    fn progress(&mut self) -> ControlFlow<()> {
        if self.report.failed > MAX_FAILURES {
            return ControlFlow::Break(());
        }
        (self.progress)(&self.report)
    }

    pub(super) fn finish(mut self) -> GcReport {
        (self.report.finished, self.report.resume) = (true, None);
        // There is nothing left to stop.
        let _ = (self.progress)(&self.report);
        self.report
    }

    /// Reads all rows, deletes the versions that are not retained, and returns the live bodies; `None` if it was stopped.
    pub(super) async fn scan_rows(&mut self) -> Result<Option<LiveSet>> {
        let live = LiveSet::new(self.options.memory, &*self.pages.random);
        let rows = RowScan::new(live, self.options.retention, self.pages.store.key_scheme().clone());
        let mut rows = rows.with_abandoned_before(self.pages.store.now() - self.options.grace);
        let mut scan = Scan::new().limit(self.options.batch());
        loop {
            let page = self.pages.store.table().scan(&scan).await?;
            page.items.iter().try_for_each(|item| rows.read(item))?;
            self.report.rows += page.items.len() as u64;
            self.report.damaged = rows.damaged;
            let superfluous = rows.take_superfluous();
            if self.options.dry_run {
                self.report.versions += superfluous.len() as u64;
            } else {
                self.delete_versions(&superfluous, &mut rows).await;
            }
            if self.progress().is_break() {
                return Ok(None);
            }
            match page.next {
                Some(cursor) => scan = Scan::new().limit(self.options.batch()).after(cursor),
                None => break,
            }
            self.options.pause().await;
        }
        let live = rows.finish();
        let false_positives = live.false_positives();
        if false_positives > MAX_FALSE_POSITIVES {
            tracing::warn!(
                false_positives,
                "garbage collection misses this share of the orphans: give it more memory"
            );
        }
        Ok(Some(live))
    }

    async fn delete_versions(&mut self, versions: &[Superfluous], rows: &mut RowScan) {
        for some in versions.chunks(CONCURRENT_DELETES) {
            let deletes =
                some.iter().map(|version| self.pages.store.delete_version(&version.meta, &version.sk));
            for (version, outcome) in some.iter().zip(future::join_all(deletes).await) {
                match outcome {
                    Ok(true) => self.report.versions += 1,
                    // A rollback has chosen it in the meantime.
                    Ok(false) => rows.retain(version),
                    // It may or may not be deleted. Its body is deleted by a later run.
                    Err(error) => {
                        rows.retain(version);
                        self.report.add_failures(1, &error);
                    }
                }
            }
        }
    }

    /// Lists all bodies, and deletes the orphans. Breaks if it was stopped.
    pub(super) async fn delete_orphans(
        &mut self,
        live: &LiveSet,
        cutoff: Timestamp,
    ) -> Result<ControlFlow<()>> {
        let bodies = &self.pages.bodies;
        let batch = self.options.batch();
        let prefix = Path::from(bodies.prefix.as_str());
        let mut listed = match &self.options.resume {
            Some(key) if bodies.lists_in_order => {
                bodies.objects.list_with_offset(Some(&prefix), &Path::from(key.as_str()))
            }
            _ => bodies.objects.list(Some(&prefix)),
        };
        let mut siblings = Siblings::new(live, &bodies.prefix, cutoff);
        let (mut orphans, mut unreported) = (Vec::new(), 0);
        loop {
            let next = listed.next().await;
            let is_end = next.is_none();
            match next {
                Some(Ok(object)) => siblings.add(object, &mut self.report, &mut orphans),
                Some(Err(cause)) => return Err(unavailable("bodies cannot be listed", cause)),
                None => siblings.finish(&mut self.report, &mut orphans),
            }
            unreported += 1;
            if orphans.len() < batch && unreported < batch && !is_end {
                continue;
            }
            unreported = 0;
            // All bodies of a page are decided together, so there can be many more orphans than one batch.
            while !orphans.is_empty() {
                let some = orphans.drain(..orphans.len().min(batch)).collect();
                self.delete_batch(some).await;
                self.options.pause().await;
            }
            if bodies.lists_in_order {
                self.report.resume = siblings.through.clone().or(self.report.resume.take());
            }
            if self.progress().is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if is_end {
                return Ok(ControlFlow::Continue(()));
            }
            self.options.pause().await;
        }
    }

    async fn delete_batch(&mut self, orphans: Vec<Candidate>) {
        let mut deleted = |size: u64| {
            self.report.orphans += 1;
            self.report.bytes += size;
        };
        if self.options.dry_run {
            return orphans.iter().for_each(|orphan| deleted(orphan.size));
        }
        let mut sizes: HashMap<Path, u64> =
            orphans.iter().map(|orphan| (orphan.path().clone(), orphan.size)).collect();
        let paths = stream::iter(orphans).map(|orphan| Ok(orphan.path().clone()));
        let mut outcomes = self.pages.bodies.objects.delete_stream(paths.boxed());
        let (mut missing, mut last_error) = (0, None);
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Ok(path) => sizes.remove(&path).into_iter().for_each(&mut deleted),
                // Another process has deleted it.
                Err(object_store::Error::NotFound { .. }) => missing += 1,
                Err(cause) => last_error = Some(unavailable("a body cannot be deleted", cause)),
            }
        }
        // A request that deletes many bodies fails with one error.
        let failed = (sizes.len() as u64).saturating_sub(missing);
        if failed > 0 {
            let silent = || {
                Error::new(Kind::Unavailable, "the object storage did not report whether a body was deleted")
            };
            self.report.add_failures(failed, &last_error.unwrap_or_else(silent));
        }
    }
}
