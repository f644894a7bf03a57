//! Quotas: how much a store may hold, and when pages have to be evicted. Pure functions of what it holds.

use tabletheory::FileUsage;

/// Eviction begins at this part of a limit, in percent, ...
const BEGIN: u64 = 95;
/// ... and ends at this one, so that it does not begin again at once.
const END: u64 = 90;
/// From this part of a limit on, it matters which pages were used recently.
const NEAR: u64 = 80;
/// A store never takes more than this part of its file system, in percent.
const OF_FILE_SYSTEM: u64 = 80;
/// This part of the file system stays free, in percent, ...
const RESERVE: u64 = 2;
/// ... but not more than this.
const MAX_RESERVE: u64 = 1 << 30;
/// However full the disk is because of other programs, the store may hold this part of its limit, in percent.
const LEAST: u64 = 10;
/// The free space of the table file, which does not shrink, counts as used up to this part of the limit, in percent.
const TABLE_FREE: u64 = 25;

/// How much a store may hold. `None` sets no limit.
///
/// ```
/// use facetheory::{Demand, Quota, StoreUsage};
///
/// let mut quota = Quota::default();
/// quota.max_pages = Some(1000);
/// let mut usage = StoreUsage::default();
/// for (pages, demand) in [(949, Demand::Nothing), (950, Demand::Evict), (1000, Demand::Full)] {
///     usage.pages = pages;
///     assert_eq!(quota.demand(&usage), demand);
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// The most bytes on the disk.
    pub max_bytes: Option<u64>,
    /// The most pages.
    pub max_pages: Option<u64>,
}

/// How much a store holds.
///
/// ```
/// assert_eq!(facetheory::StoreUsage::default().disk_bytes(), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreUsage {
    /// The number of pages.
    pub pages: u64,
    /// The file of the table.
    pub table: FileUsage,
    /// The file of small bodies.
    pub bodies: FileUsage,
    /// The bytes of large bodies, in files of their own.
    pub large_bodies: u64,
    /// The size of the file system and its free bytes, if known.
    pub file_system: Option<FileSystem>,
}

/// The space of a file system.
///
/// ```
/// let half_full = facetheory::FileSystem::new(1000, 500);
/// assert_eq!(half_full.total - half_full.available, 500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSystem {
    /// Its size in bytes.
    pub total: u64,
    /// The bytes that this process can still write.
    pub available: u64,
}

impl FileSystem {
    /// A file system of this size, with so many bytes available.
    #[must_use]
    pub fn new(total: u64, available: u64) -> Self {
        FileSystem { total, available }
    }
}

/// The measures that keep a store within its quota.
///
/// ```
/// assert!(facetheory::Demand::Nothing < facetheory::Demand::Full);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Demand {
    /// There is room.
    Nothing,
    /// Pages have to be evicted.
    Evict,
    /// Pages have to be evicted, and no new ones may be stored until then.
    Full,
}

impl StoreUsage {
    /// The bytes on the disk.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.table.disk_bytes() + self.bodies.disk_bytes() + self.large_bodies
    }

    /// The bytes that count for a limit: those that new pages cannot use.
    fn counted(&self, limit: u64) -> u64 {
        let reserved = self.table.free_bytes.min(percent(limit, TABLE_FREE));
        self.table.used_bytes() + reserved + self.bodies.used_bytes() + self.large_bodies
    }
}

impl Quota {
    /// The limit in bytes that is in force now: also limited by the file system, and lower while the disk is nearly full.
    ///
    /// ```
    /// use facetheory::{FileSystem, Quota, StoreUsage};
    ///
    /// let mut quota = Quota::default();
    /// quota.max_bytes = Some(10 << 30);
    /// let mut usage = StoreUsage::default();
    /// usage.file_system = Some(FileSystem::new(1 << 30, 1 << 30));
    /// assert!(quota.byte_limit(&usage).unwrap() < 900 << 20);
    /// ```
    #[must_use]
    pub fn byte_limit(&self, usage: &StoreUsage) -> Option<u64> {
        let limit = self.max_bytes?;
        let Some(FileSystem { total, available }) = usage.file_system else { return Some(limit) };
        let limit = limit.min(percent(total, OF_FILE_SYSTEM));
        let reserve = percent(total, RESERVE).min(MAX_RESERVE);
        let room = (usage.disk_bytes() + available).saturating_sub(reserve);
        Some(limit.min(room.max(percent(limit, LEAST))))
    }

    /// Returns the measures that the store needs.
    #[must_use]
    pub fn demand(&self, usage: &StoreUsage) -> Demand {
        if self.is_reached(usage, 100) {
            Demand::Full
        } else if self.is_reached(usage, BEGIN) {
            Demand::Evict
        } else {
            Demand::Nothing
        }
    }

    /// Whether enough was evicted.
    #[must_use]
    pub fn is_satisfied(&self, usage: &StoreUsage) -> bool {
        !self.is_reached(usage, END)
    }

    /// Whether the store holds so much that pages may have to be evicted soon.
    #[must_use]
    pub fn is_near(&self, usage: &StoreUsage) -> bool {
        self.is_reached(usage, NEAR)
    }

    /// How many bytes the file of small bodies should return to the disk, so that the store does not take more than its limit.
    #[must_use]
    pub fn surplus(&self, usage: &StoreUsage) -> u64 {
        let limit = self.byte_limit(usage).unwrap_or(u64::MAX);
        usage.disk_bytes().saturating_sub(limit).min(usage.bodies.free_bytes)
    }

    fn is_reached(&self, usage: &StoreUsage, part: u64) -> bool {
        let bytes = self.byte_limit(usage).is_some_and(|limit| usage.counted(limit) >= percent(limit, part));
        bytes || self.max_pages.is_some_and(|limit| usage.pages >= percent(limit, part))
    }
}

fn percent(of: u64, part: u64) -> u64 {
    // The fraction of the last hundred does not matter for bytes, but does for a few pages.
    of / 100 * part + of % 100 * part / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn file(file_bytes: u64, free_bytes: u64) -> FileUsage {
        let mut file = FileUsage::default();
        (file.file_bytes, file.free_bytes) = (file_bytes, free_bytes);
        file
    }

    fn bytes(max: u64) -> Quota {
        Quota { max_bytes: Some(max), max_pages: None }
    }

    #[test]
    fn eviction_begins_before_the_limit_and_goes_on_below_where_it_began() {
        let quota = bytes(100 * MB);
        let with =
            |large_bodies: u64| StoreUsage { large_bodies: large_bodies * MB, ..StoreUsage::default() };
        let demands = [79, 94, 95, 99, 100].map(|used| quota.demand(&with(used)));
        assert_eq!(demands, [Demand::Nothing, Demand::Nothing, Demand::Evict, Demand::Evict, Demand::Full]);
        assert!(!quota.is_satisfied(&with(90)) && quota.is_satisfied(&with(89)));
        assert!(quota.is_near(&with(80)) && !quota.is_near(&with(79)));
        assert_eq!(Quota::default().demand(&with(1_000_000)), Demand::Nothing, "there is no limit");
    }

    #[test]
    fn free_space_in_the_file_of_bodies_is_used_again_and_that_of_the_table_counts_up_to_a_quarter() {
        let quota = bytes(100 * MB);
        let usage = StoreUsage { bodies: file(99 * MB, 50 * MB), ..StoreUsage::default() };
        assert_eq!(quota.demand(&usage), Demand::Nothing);
        assert_eq!(quota.surplus(&usage), 0);
        let usage = StoreUsage { bodies: file(60 * MB, 0), table: file(40 * MB, 36 * MB), ..usage };
        assert_eq!(usage.counted(100 * MB), 60 * MB + 4 * MB + 25 * MB);
    }

    #[test]
    fn a_file_of_bodies_with_more_room_than_the_limit_allows_shrinks() {
        let usage =
            StoreUsage { bodies: file(90 * MB, 50 * MB), large_bodies: 20 * MB, ..StoreUsage::default() };
        assert_eq!(bytes(100 * MB).surplus(&usage), 10 * MB);
        assert_eq!(bytes(30 * MB).surplus(&usage), 50 * MB, "no more than it has");
    }

    #[test]
    fn a_disk_that_is_nearly_full_lowers_the_limit_but_not_to_nothing() {
        let quota = bytes(100 * MB);
        let on = |total: u64, available: u64| StoreUsage {
            large_bodies: 50 * MB,
            file_system: Some(FileSystem::new(total * MB, available * MB)),
            ..StoreUsage::default()
        };
        assert_eq!(quota.byte_limit(&on(1000, 900)), Some(100 * MB));
        assert_eq!(quota.byte_limit(&on(1000, 30)), Some(60 * MB), "20 MB stay free");
        assert_eq!(quota.byte_limit(&on(1000, 0)), Some(30 * MB), "other programs have filled it");
        assert_eq!(quota.byte_limit(&on(100, 50)), Some(80 * MB), "80 % of the file system");
        let small = StoreUsage { large_bodies: 0, ..on(1000, 0) };
        assert_eq!(quota.byte_limit(&small), Some(10 * MB), "a tenth remains");
    }

    #[test]
    fn pages_are_limited_too() {
        let quota = Quota { max_bytes: None, max_pages: Some(10) };
        let with = |pages| StoreUsage { pages, ..StoreUsage::default() };
        assert_eq!(
            [8, 9, 10].map(|pages| quota.demand(&with(pages))),
            [Demand::Nothing, Demand::Evict, Demand::Full]
        );
    }
}
