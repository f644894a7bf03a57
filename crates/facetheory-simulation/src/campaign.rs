//! Many seeds, on all cores.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::{Report, Settings, simulate};

/// How many reports may wait for whoever reads them.
const QUEUE: usize = 64;

/// A run of many seeds: each on one thread, several at once.
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
    brake: Brake,
}

/// A hold on a campaign from elsewhere, to stop it.
///
/// ```
/// use facetheory_simulation::{Campaign, Settings};
///
/// let campaign = Campaign::start(0..1_000_000, Settings::default());
/// campaign.brake().stop();
/// assert!(campaign.count() < 1_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Brake {
    stopped: Arc<AtomicBool>,
}

impl Brake {
    /// No further seed is begun; those under way are finished.
    ///
    /// ```
    /// facetheory_simulation::Brake::default().stop();
    /// ```
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Whether it was stopped.
    ///
    /// ```
    /// assert!(!facetheory_simulation::Brake::default().is_stopped());
    /// ```
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl Campaign {
    /// Starts on these seeds, in order, on as many threads as there are cores.
    ///
    /// ```
    /// use facetheory_simulation::{Campaign, Settings};
    ///
    /// assert!(Campaign::start(3..4, Settings::default()).all(|report| report.seed == 3));
    /// ```
    #[must_use]
    pub fn start(seeds: Range<u64>, settings: Settings) -> Self {
        let (sender, reports) = mpsc::sync_channel(QUEUE);
        let (next, brake) = (Arc::new(AtomicU64::new(seeds.start)), Brake::default());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            let (sender, next, brake, end) = (sender.clone(), next.clone(), brake.clone(), seeds.end);
            std::thread::spawn(move || {
                while !brake.is_stopped() {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    // Nobody reads any more: the campaign was dropped.
                    if seed >= end || sender.send(simulate(seed, &settings)).is_err() {
                        break;
                    }
                }
            });
        }
        Campaign { reports, brake }
    }

    /// The means to stop it.
    ///
    /// ```
    /// use facetheory_simulation::{Campaign, Settings};
    ///
    /// assert!(!Campaign::start(0..1, Settings::default()).brake().is_stopped());
    /// ```
    #[must_use]
    pub fn brake(&self) -> Brake {
        self.brake.clone()
    }
}

/// Reports as they come, which is not always in the order of seeds.
impl Iterator for Campaign {
    type Item = Report;

    fn next(&mut self) -> Option<Report> {
        self.reports.recv().ok()
    }
}
