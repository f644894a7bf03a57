//! Garbage collection of bodies, through the real binary.

#[path = "support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tabletheory::{Clock as _, ManualClock, SystemClock};

use crate::support::gateway::{Gateway, data};
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{HOST, get, with_long_timeouts};
use crate::support::table::{blobs, open_blobs};
use crate::support::wait_for;

const DAY: Duration = Duration::from_secs(86_400);
const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n";
const GC: &str = "[gc]\ninterval = \"1s\"\ngrace = \"631s\"\n";

/// Returns all bodies with this extension, the newest last.
fn bodies(directory: &Path, extension: &str) -> Vec<String> {
    let mut names: Vec<String> =
        blobs(directory).into_iter().filter(|name| name.ends_with(&format!(".{extension}"))).collect();
    names.sort_by_key(|name| file_name(name).to_owned());
    names
}

fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Stores these bodies again as if that had been two days ago, under the names that `rename` returns.
fn age(directory: &Path, names: &[String], rename: fn(&str) -> String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let blobs = open_blobs(directory, Arc::new(ManualClock::at(SystemClock.now() - 2 * DAY)));
    runtime.block_on(async {
        for name in names {
            let blob = blobs.get(name).await.expect("no error").expect("a body");
            blobs.delete(name).await.expect("deleted");
            blobs.create(&rename(name), blob.bytes).await.expect("stored");
        }
    });
}

/// The name of an unreferenced body that was rendered two days earlier.
fn two_days_older(name: &str) -> String {
    let (directory, file) = name.rsplit_once('/').expect("a directory");
    let (millis, rest) = file.split_once('-').expect("a time and an id");
    let millis = millis.parse::<u128>().expect("a time") - (2 * DAY).as_millis();
    format!("{directory}/{millis}-{rest}")
}

/// Starts an origin whose page changes with every render, and returns the number of renders.
fn changing() -> (Origin, Arc<AtomicUsize>) {
    let (origin, renders) = (Origin::start(), Arc::new(AtomicUsize::new(0)));
    let counted = renders.clone();
    origin.script("/news", move |_| {
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        ScriptedResponse::page(&["Content-Type: text/html"], &format!("the news, number {number}"))
    });
    (origin, renders)
}

/// Regenerates the page several times.
fn regenerate(gateway: &Gateway, times: usize) {
    let request = format!("{{\"url\":\"http://{HOST}/news\",\"hard\":true}}");
    for _ in 0..times {
        assert_eq!(gateway.admin_post("/api/v1/invalidate", &request).status, 200);
        let response = gateway.exchange(get("/news", ""));
        assert_eq!(response.state(), "miss");
    }
}

#[test]
fn old_bodies_of_a_changing_page_are_deleted_and_the_current_one_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let (origin, renders) = changing();
    let configured = |config: &str| with_long_timeouts(&format!("{PAGES}{config}"));
    let gateway = Gateway::start(place, origin.address, &configured("[gc]\ninterval = false\n"), &[]);
    assert_eq!(gateway.exchange(get("/news", "")).state(), "miss");
    regenerate(&gateway, 9);
    gateway.shut_down();
    let all = bodies(place, "html");
    assert_eq!(all.len(), 10, "every render stores a body");
    let (served, replaced) = all.split_last().expect("ten bodies");
    age(place, replaced, two_days_older);

    let gateway = Gateway::start(place, origin.address, &configured(GC), &[]);
    // The body that was replaced last may still be read by requests in progress.
    wait_for("the old bodies are gone", || (bodies(place, "html").len() == 2).then_some(()));
    assert_eq!(bodies(place, "html").last(), Some(served));
    let log = wait_for("the run is logged", || {
        gateway
            .log()
            .lines()
            .find(|line| {
                line.contains("garbage collection finished") && line.contains("\"deleted_bodies\":8,")
            })
            .map(str::to_owned)
    });
    assert!(log.contains("\"deleted_bytes\":144"), "{log}");
    let response = gateway.exchange(get("/news", ""));
    assert_eq!((response.state(), response.text().as_str()), ("hit", "the news, number 10"));
    regenerate(&gateway, 3);
    gateway.shut_down();
    assert_eq!(renders.load(Ordering::SeqCst), 13);
    assert_eq!(bodies(place, "html").len(), 5, "bodies within the grace period are retained");
}

#[test]
fn an_old_body_that_is_current_is_not_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let (origin, _) = changing();
    let config = with_long_timeouts(&format!("{PAGES}{GC}"));
    let page = facetheory::PageKey::new("/a page of long ago").expect("a page");
    let kept = {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(publish_long_ago(place, &page))
    };
    assert_eq!(bodies(place, "html").len(), 3);
    age(place, &bodies(place, "html"), str::to_owned);
    let gateway = Gateway::start(place, origin.address, &config, &[]);
    wait_for("the other bodies are deleted", || (bodies(place, "html").len() == 1).then_some(()));
    assert!(bodies(place, "html")[0].ends_with(&kept), "{kept} is referenced");
    wait_for("gc has run several times", || {
        (gateway.log().matches("garbage collection finished").count() > 2).then_some(())
    });
    assert_eq!(bodies(place, "txt").len(), 1, "the record of a run leaves no other bodies");
}

/// The files of large bodies, with their lengths, and those of incomplete ones.
fn large(directory: &Path) -> Vec<(PathBuf, u64)> {
    let entries = |directory: &Path| -> Vec<PathBuf> {
        let listed = std::fs::read_dir(directory).into_iter().flatten();
        listed.map(|entry| entry.expect("an entry").path()).collect()
    };
    let pages = entries(&data(directory).join("bodies/isr"));
    let files = pages.iter().flat_map(|page| entries(page));
    // A file may be deleted meanwhile.
    files.filter_map(|file| std::fs::metadata(&file).ok().map(|found| (file, found.len()))).collect()
}

#[test]
fn pages_that_change_at_every_render_leave_a_bounded_number_of_bodies_and_bytes() {
    const PAGES_OF_SITE: usize = 200;
    /// Every tenth page is too large for the file of small bodies.
    const LARGE_BYTES: usize = 300_000;
    const ROUNDS: usize = 5;
    let directory = tempfile::tempdir().expect("a directory");
    let (place, origin) = (directory.path(), Origin::start());
    let path = |page: usize| format!("/page/{page}");
    let renders = Arc::new(AtomicUsize::new(0));
    for page in 0..PAGES_OF_SITE {
        let renders = renders.clone();
        origin.script(&path(page), move |_| {
            let number = renders.fetch_add(1, Ordering::SeqCst);
            let number = format!("{number:010}");
            let length = if page % 10 == 0 { LARGE_BYTES } else { 1000 };
            ScriptedResponse::page(&["Content-Type: text/html"], &number.repeat(length / number.len()))
        });
    }
    // The shortest time that these timeouts allow, and no garbage collection.
    let config = format!(
        "{PAGES}[gc]\ninterval = false\nreplaced = \"29s\"\n\
         [timeouts]\ntable = \"10s\"\nbodies = \"10s\"\npublish = \"2m\"\nheaders = \"5m\"\n"
    );
    let gateway = Gateway::start(place, origin.address, &config, &[]);
    let mut last = Vec::new();
    for _ in 0..ROUNDS {
        last.clear();
        for page in 0..PAGES_OF_SITE {
            let request = format!("{{\"url\":\"http://{HOST}{}\",\"hard\":true}}", path(page));
            assert_eq!(gateway.admin_post("/api/v1/invalidate", &request).status, 200);
            let response = gateway.exchange(get(&path(page), ""));
            assert_eq!(response.state(), "miss");
            last.push(response.text());
        }
    }
    let large_pages = PAGES_OF_SITE / 10;
    let stored = || (bodies(place, "html").len(), large(place).len());
    wait_for("only the current bodies are left", || {
        (stored() == (PAGES_OF_SITE - large_pages, large_pages)).then_some(())
    });
    assert!(large(place).iter().all(|(_, bytes)| *bytes == LARGE_BYTES as u64));
    let deleted = (ROUNDS - 1) * PAGES_OF_SITE;
    let counted = gateway.metric("facetheory_replaced_bodies_total{outcome=\"deleted\"}");
    assert_eq!(counted, Some(deleted as f64));
    // A gateway with nothing in memory reads all bodies from the store.
    gateway.shut_down();
    let gateway = Gateway::start(place, origin.address, &config, &[]);
    for (page, expected) in last.iter().enumerate() {
        let response = gateway.exchange(get(&path(page), ""));
        assert!(response.state() == "hit" && response.text() == *expected, "{page}: {}", response.state());
    }
    assert_eq!(renders.load(Ordering::SeqCst), ROUNDS * PAGES_OF_SITE);
}

#[test]
fn a_killed_gateway_leaves_no_file_for_ever() {
    const LARGE_BYTES: usize = 300_000;
    let directory = tempfile::tempdir().expect("a directory");
    let (place, (origin, renders)) = (directory.path(), changing());
    origin
        .script("/large", |_| ScriptedResponse::page(&["Content-Type: text/html"], &"x".repeat(LARGE_BYTES)));
    let configured = |config: &str| with_long_timeouts(&format!("{PAGES}{config}"));
    let gateway = Gateway::start(place, origin.address, &configured("[gc]\ninterval = false\n"), &[]);
    for path in ["/news", "/large"] {
        assert_eq!(gateway.exchange(get(path, "")).state(), "miss");
    }
    regenerate(&gateway, 3);
    // The bodies wait for their deletion in the memory of this process.
    gateway.kill();
    let all = bodies(place, "html");
    assert_eq!(all.len(), renders.load(Ordering::SeqCst));
    let (served, replaced) = all.split_last().expect("four bodies");
    age(place, replaced, two_days_older);
    // A file that the process was writing when it was killed.
    let [(current, _)] = large(place).try_into().expect("one large body");
    let mut incomplete = current.clone().into_os_string();
    incomplete.push("#1");
    std::fs::write(&incomplete, "half a bo").expect("a file");
    let file = std::fs::File::options().append(true).open(&incomplete).expect("the file");
    let long_ago = (SystemClock.now() - 2 * DAY).millis().unsigned_abs();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_millis(long_ago)).expect("a time");

    let gateway = Gateway::start(place, origin.address, &configured(GC), &[]);
    // The body that was replaced last is as young as the one that replaced it.
    wait_for("the old bodies are gone", || (bodies(place, "html").len() == 2).then_some(()));
    assert_eq!(bodies(place, "html").last(), Some(served));
    wait_for("the incomplete file is gone", || (large(place).len() == 1).then_some(()));
    assert!(current.exists());
    wait_for("the run is logged", || gateway.log().contains("\"deleted_incomplete_files\":1,").then_some(()));
}

/// Publishes a page three times, two days ago, and returns the key of its last body.
async fn publish_long_ago(place: &Path, page: &facetheory::PageKey) -> String {
    use facetheory::{Bodies, Outcome, PageStore, Pages, Policy, Rendered};
    use tabletheory::{SqliteSettings, SqliteTable};
    let clock = Arc::new(ManualClock::at(SystemClock.now() - 2 * DAY));
    std::fs::create_dir_all(data(place)).expect("a directory");
    let settings = SqliteSettings::default().sweep(None);
    let table = SqliteTable::open_with(data(place).join("table.db"), &settings, clock.clone());
    let bodies = Bodies::files(data(place).join("bodies")).expect("a store");
    let pages = Pages::new(PageStore::new(Arc::new(table.expect("a table"))), bodies);
    let mut kept = String::new();
    for body in ["one", "two", "three"] {
        let policy = Policy::every(Duration::ZERO);
        let outcome = pages.regenerate(page, &policy, |_| async { Ok(Rendered::html(body)) }).await;
        let Ok(Outcome::Published(generation)) = outcome else { panic!("{outcome:?}") };
        kept = generation.s3_key;
        clock.advance(Duration::from_secs(60));
    }
    kept
}
