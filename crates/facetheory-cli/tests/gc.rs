//! Garbage collection of bodies, through the real binary.

#[path = "support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::gateway::{Gateway, data};
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{HOST, get, with_long_timeouts};
use crate::support::wait_for;

const DAY: Duration = Duration::from_secs(86_400);
const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n";
const GC: &str = "[gc]\ninterval = \"1s\"\ngrace = \"631s\"\n";

/// Returns all bodies with this extension, the newest last.
fn bodies(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let pages = std::fs::read_dir(data(directory).join("bodies").join("isr"));
    let pages = pages.expect("a directory").map(|page| page.expect("a directory").path());
    // A directory may be deleted meanwhile.
    let files = pages.filter_map(|page| std::fs::read_dir(page).ok());
    let files = files.flatten().filter_map(Result::ok).map(|file| file.path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|it| it == extension)).collect();
    files.sort_by_key(|file| file.file_name().map(ToOwned::to_owned));
    files
}

/// Makes the file of a body two days older.
fn age_file(file: &Path) {
    let opened = std::fs::File::options().write(true).open(file).expect("a body");
    let stored = opened.metadata().and_then(|metadata| metadata.modified()).expect("its time");
    opened.set_modified(stored - 2 * DAY).expect("another time");
}

/// Makes an unreferenced body two days older, including the time in its name.
fn age_body(file: &Path) {
    age_file(file);
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    let (millis, rest) = name.split_once('-').expect("a time and an id");
    let millis = millis.parse::<u128>().expect("a time") - (2 * DAY).as_millis();
    std::fs::rename(file, file.with_file_name(format!("{millis}-{rest}"))).expect("another name");
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
    replaced.iter().for_each(|file| age_body(file));

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
    bodies(place, "html").iter().for_each(|file| age_file(file));
    let gateway = Gateway::start(place, origin.address, &config, &[]);
    wait_for("the other bodies are deleted", || (bodies(place, "html").len() == 1).then_some(()));
    assert!(bodies(place, "html")[0].ends_with(&kept), "{kept} is referenced");
    wait_for("gc has run several times", || {
        (gateway.log().matches("garbage collection finished").count() > 2).then_some(())
    });
    assert_eq!(bodies(place, "txt").len(), 1, "the record of a run leaves no other bodies");
}

/// Publishes a page three times, two days ago, and returns the key of its last body.
async fn publish_long_ago(place: &Path, page: &facetheory::PageKey) -> String {
    use facetheory::{Bodies, Outcome, PageStore, Pages, Policy, Rendered};
    use tabletheory::{Clock as _, ManualClock, SqliteSettings, SqliteTable, SystemClock};
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
