//! Flips single bits in the files of the embedded store, and serves all pages through the engine: no page has a wrong body, only
//! the page whose bytes were hit is rendered, and each page is healed.
//!
//! A bit in a key of an index can hide rows, or show them at one time and hide them at another. Requests do not always find that,
//! but the comparison of rows and index does that each process runs in the background.
//!
//! `FACETHEORY_BIT_FLIPS=1000 cargo test --release -p facetheory --all-features --test bit_flips -- --nocapture` flips more
//! bits than the default, `FACETHEORY_BIT_FLIP_SEED` chooses others, and `FACETHEORY_BIT_FLIP_ONLY` repeats the one with this number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use facetheory::{Bodies, GetResult, History, Isr, PageKey, PageStore, Pages, Policy, Rendered, State, Tag};
use tabletheory::{
    ManualClock, OnCorruption, Random as _, SeededRandom, SqliteSettings, SqliteTable, SystemRandom,
    Table as _, Timestamp,
};

const NOW: i64 = 1_700_000_000;
/// Pages with small bodies, which are in `bodies.db`.
const SMALL: usize = 20;
/// Pages with large bodies, which are in files of their own.
const LARGE: usize = 2;
/// More than one SQLite page.
const SMALL_BYTES: usize = 9_000;
const LARGE_BYTES: usize = 300 * 1024;
/// The tag of every fourth page.
const TAG: &str = "news";
/// How often all pages are requested before each one must be a hit.
const ROUNDS: usize = 3;
/// How often if the structure of a file was hit: the damage may be found late, and tags count from the start in a new table.
const ROUNDS_OF_NEW_FILE: usize = 5;
/// The round after which rows and index are compared.
const ROUND_OF_CHECK: usize = 0;

fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// The engine over the files in a directory.
struct Site {
    isr: Isr,
    table: Arc<SqliteTable>,
    clock: Arc<ManualClock>,
    renders: Vec<Arc<AtomicU32>>,
}

impl Site {
    /// Opens the files at this time, in seconds after the start.
    fn open(directory: &Path, after: i64) -> Site {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW + after)));
        let settings = SqliteSettings::default().sweep(None).on_corruption(OnCorruption::Replace);
        let table = SqliteTable::open_with(directory.join("table.db"), &settings, clock.clone());
        let table = Arc::new(table.expect("the table opens"));
        let store = PageStore::new(table.clone());
        let bodies = Bodies::files(directory.join("bodies")).expect("the bodies open");
        // Seeds of two sites must differ: bodies have random names.
        let store = store.with_random(Arc::new(SeededRandom::new(SystemRandom.next_u64())));
        let renders = (0..SMALL + LARGE).map(|_| Arc::default()).collect();
        Site { isr: Isr::new(Pages::new(store, bodies)), table, clock, renders }
    }

    /// Requests a page. A render returns the body of this version.
    async fn get(&self, page: usize, version: u32) -> (State, String) {
        let key = PageKey::new(format!("/{page}")).expect("a page").at_path(format!("/{page}"));
        let mut policy = Policy::every(Duration::from_secs(86_400));
        if page.is_multiple_of(2) {
            policy = policy.with_history(History::Versions);
        }
        let renders = self.renders[page].clone();
        let render = move |_| async move {
            renders.fetch_add(1, Ordering::SeqCst);
            let mut rendered = Rendered::html(body(page, version));
            if page.is_multiple_of(4) {
                rendered.content.tags = vec![TAG.to_owned()];
            }
            Ok(rendered)
        };
        match self.isr.get(&key, &policy, render).await.expect("a result") {
            GetResult::Page(served) => {
                (served.state, String::from_utf8(served.page.bytes().to_vec()).expect("a text"))
            }
            GetResult::Bypass(_) => (State::Bypass, body(page, version)),
        }
    }

    async fn close(self) {
        assert!(self.isr.shut_down(Duration::from_secs(600)).await);
    }
}

/// The body of one version of one page, of which every part names both.
fn body(page: usize, version: u32) -> String {
    let bytes = if page < SMALL { SMALL_BYTES + page * 100 } else { LARGE_BYTES };
    format!("<p>page {page:02} version {version}</p>").repeat(bytes / 26)
}

/// Renders all pages, and invalidates a tag before that, so that it has a row.
async fn fill(directory: &Path) {
    let site = Site::open(directory, 0);
    site.isr.invalidate_tag(&Tag::new(TAG).expect("a tag"), None).await.expect("an invalidation");
    site.clock.advance(Duration::from_secs(60));
    for version in 0..2 {
        for page in 0..SMALL + LARGE {
            site.get(page, version).await;
        }
    }
    site.close().await;
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)
        } else {
            drop(fs::copy(entry.path(), target))
        }
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

fn flip(file: &Path, bit: u64) {
    let open = File::options().read(true).write(true).open(file).expect("a file");
    let mut byte = [0];
    open.read_exact_at(&mut byte, bit / 8).expect("a byte");
    open.write_all_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).expect("a byte");
}

/// Whether SQLite finds the flipped file in order, with the schema of the intact one: then at most a row was hit.
fn is_sound(flipped: &Path, intact: &Path) -> bool {
    let inspect = |file: &Path| -> rusqlite::Result<String> {
        let connection = rusqlite::Connection::open(file)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        let text = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
        let mode = text("PRAGMA journal_mode")?;
        let schema = text("SELECT group_concat(name || coalesce(sql, '') || rootpage) FROM sqlite_schema")?;
        let ids = text(
            "SELECT application_id || ',' || user_version FROM pragma_application_id, pragma_user_version",
        )?;
        Ok(format!("{} {mode} {ids} {schema}", text("PRAGMA integrity_check")?))
    };
    matches!((inspect(flipped), inspect(intact)), (Ok(flipped), Ok(intact)) if flipped == intact)
}

#[derive(Debug, Default)]
struct Outcome {
    /// The pages that were not hits at the first request.
    affected: BTreeSet<usize>,
    stale: BTreeSet<usize>,
    renders: u32,
}

/// Requests all pages several times. The last time, each must be a hit.
async fn serve(site: &Site, sound: bool, what: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let rounds = if sound { ROUNDS } else { ROUNDS_OF_NEW_FILE };
    for round in 0..rounds {
        for page in 0..SMALL + LARGE {
            let (state, found) = site.get(page, 2).await;
            let is_right = (0..3).any(|version| found == body(page, version));
            assert!(is_right, "{what}: page {page} has a wrong body ({state:?}): {:?}", found.get(..60));
            assert!(
                // A lease that was acquired in a file that is then set aside is lost.
                matches!(state, State::Hit | State::Miss | State::Stale) || state == State::Bypass && !sound,
                "{what}: page {page} is {state:?} in round {round}"
            );
            if round == 0 && state != State::Hit {
                outcome.affected.insert(page);
            }
            if state == State::Stale {
                outcome.stale.insert(page);
            }
            assert!(
                round + 1 < rounds || state == State::Hit,
                "{what}: page {page} is not healed: {state:?}"
            );
        }
        assert!(site.isr.settle(Duration::from_secs(600)).await);
        if round == ROUND_OF_CHECK {
            site.table.sweep(Duration::from_secs(60)).await.expect(what);
        }
        // Later than the margin for the clocks of other processes after an invalidation.
        site.clock.advance(Duration::from_secs(10));
    }
    outcome.renders = site.renders.iter().map(|renders| renders.load(Ordering::SeqCst)).max().unwrap_or(0);
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_affects_one_page_which_is_healed_by_one_render() {
    let flips = number_of("FACETHEORY_BIT_FLIPS", 40);
    let seed = number_of("FACETHEORY_BIT_FLIP_SEED", 1);
    let only =
        std::env::var("FACETHEORY_BIT_FLIP_ONLY").ok().map(|text| text.parse::<u64>().expect("a number"));
    let random = SeededRandom::new(seed);
    let intact = tempfile::tempdir().expect("a directory");
    fill(intact.path()).await;
    let all = files(intact.path());
    // Small files are hit as often as large ones.
    let kinds: Vec<&PathBuf> = all.iter().filter(|file| !file.to_string_lossy().contains("-shm")).collect();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for number in 0..flips {
        let chosen = match random.next_u64() % 8 {
            0..4 => kinds.iter().find(|file| file.ends_with("table.db")),
            4..7 => kinds.iter().find(|file| file.ends_with("bodies.db")),
            _ => kinds.iter().find(|file| !file.to_string_lossy().contains(".db")),
        };
        let chosen = chosen.expect("a file");
        let bit = random.next_u64() % (fs::metadata(chosen).expect("a file").len() * 8);
        let flipped_while_open = random.next_u64().is_multiple_of(4);
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let directory = tempfile::tempdir().expect("a directory");
        copy(intact.path(), directory.path());
        let relative = chosen.strip_prefix(intact.path()).expect("below").to_owned();
        let file = directory.path().join(&relative);
        let what = format!("seed {seed}, flip {number}: bit {bit} of {}", relative.display());
        let probe = directory.path().join("probe");
        fs::copy(&file, &probe).expect("a copy");
        flip(&probe, bit);
        let is_database = relative.to_string_lossy().ends_with(".db");
        let sound = !is_database || is_sound(&probe, chosen);

        let site = if flipped_while_open {
            let site = Site::open(directory.path(), 1000);
            assert_eq!(site.get(0, 2).await.0, State::Hit);
            flip(&file, bit);
            site
        } else {
            flip(&file, bit);
            Site::open(directory.path(), 1000)
        };
        let outcome = serve(&site, sound, &what).await;
        site.close().await;
        let was_replaced =
            files(directory.path()).iter().any(|file| file.to_string_lossy().ends_with(".damaged"));
        let is_tag = !outcome.stale.is_empty() && outcome.affected.iter().all(|page| page.is_multiple_of(4));
        if sound && !was_replaced {
            assert!(
                outcome.affected.len() <= 1 || is_tag,
                "{what}: pages {:?} are affected",
                outcome.affected
            );
            assert!(outcome.renders <= 1 || is_tag, "{what}: {} renders of one page", outcome.renders);
        }
        // An engine that starts again finds everything healed, except for what the other one had read before the flip.
        let site = Site::open(directory.path(), 2000);
        let again = serve(&site, sound, &format!("{what}, after a restart")).await;
        site.close().await;
        let unnoticed = usize::from(flipped_while_open && outcome.affected.is_empty());
        assert!(
            again.affected.len() <= unnoticed || !sound,
            "{what}: pages {:?} are affected after a restart",
            again.affected
        );
        let kind = match (was_replaced, outcome.affected.len().max(again.affected.len())) {
            (true, _) => "the file was replaced",
            (false, 0) => "no page affected",
            (false, 1) => "one page affected",
            (false, _) if is_tag => "the pages of a tag affected",
            (false, _) => "several pages affected, structure of the file damaged",
        };
        *counts.entry(kind).or_default() += 1;
    }
    println!("{flips} flips: {counts:?}");
    assert!(counts.len() > 1 || only.is_some(), "the flips have effects: {counts:?}");
}
