//! Runs of many seeds on all cores.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::{Report, Settings, simulate};

/// How many finished reports may wait for the reader.
const QUEUE: usize = 64;

/// A run of many seeds, one thread per core.
///
/// ```
/// use facetheory_simulation::{Campaign, Settings};
///
/// let reports: Vec<_> = Campaign::start(0..8, Settings::default()).collect();
/// assert_eq!(reports.len(), 8);
/// ```
#[derive(Debug)]
pub struct Campaign {
    reports: mpsc::Receiver<Report>,
    stop_handle: StopHandle,
}

/// Stops a campaign from another thread.
///
/// ```
/// use facetheory_simulation::{Campaign, Settings};
///
/// let campaign = Campaign::start(0..1_000_000, Settings::default());
/// campaign.stop_handle().stop();
/// assert!(campaign.count() < 1_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopHandle {
    stopped: Arc<AtomicBool>,
}

impl StopHandle {
    /// Starts no further seeds; those in progress are finished.
    ///
    /// ```
    /// facetheory_simulation::StopHandle::default().stop();
    /// ```
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Whether the campaign was stopped.
    ///
    /// ```
    /// assert!(!facetheory_simulation::StopHandle::default().is_stopped());
    /// ```
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl Campaign {
    /// Runs these seeds in order, on as many threads as there are cores.
    ///
    /// ```
    /// use facetheory_simulation::{Campaign, Settings};
    ///
    /// assert!(Campaign::start(3..4, Settings::default()).all(|report| report.seed == 3));
    /// ```
    #[must_use]
    pub fn start(seeds: Range<u64>, settings: Settings) -> Self {
        let (sender, reports) = mpsc::sync_channel(QUEUE);
        let (next, stop_handle) = (Arc::new(AtomicU64::new(seeds.start)), StopHandle::default());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            let (sender, next, stop_handle, end) =
                (sender.clone(), next.clone(), stop_handle.clone(), seeds.end);
            std::thread::spawn(move || {
                while !stop_handle.is_stopped() {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    // Sending fails once the campaign was dropped.
                    if seed >= end || sender.send(simulate(seed, &settings)).is_err() {
                        break;
                    }
                }
            });
        }
        Campaign { reports, stop_handle }
    }

    /// A handle that stops the campaign.
    ///
    /// ```
    /// use facetheory_simulation::{Campaign, Settings};
    ///
    /// assert!(!Campaign::start(0..1, Settings::default()).stop_handle().is_stopped());
    /// ```
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop_handle.clone()
    }
}

/// Yields reports as seeds finish, which is not always their order.
impl Iterator for Campaign {
    type Item = Report;

    fn next(&mut self) -> Option<Report> {
        self.reports.recv().ok()
    }
}
