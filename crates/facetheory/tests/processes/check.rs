//! Checks that the recorded history, the rows and the bodies agree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use facetheory::protocol::{Meta, Version};
use facetheory::{Bodies, Pages};
use libtest_mimic::Failed;

use crate::history::Event;
use crate::recovery;
use crate::work::{PAGES, page, signature};

/// More versions than a page gets in the longest run.
const MAX_VERSIONS: usize = 1_000_000;
/// How many bodies are read at a time.
const READERS: usize = 16;
/// More writes than all killed processes together can have in flight.
const MAX_IN_FLIGHT: usize = 1_000;

/// One attempt to publish, with the positions of its steps in the history.
#[derive(Debug, Default)]
struct Attempt {
    page: u64,
    acquiring: usize,
    granted: Option<usize>,
    token: String,
    publishing: Option<usize>,
    s3_key: String,
    version: u64,
    request: Option<String>,
    /// The result that was returned, if any.
    result: Option<String>,
}

impl Attempt {
    fn is_published(&self) -> bool {
        self.result.as_deref() == Some("published")
    }
}

#[expect(clippy::print_stdout, reason = "the counts show what the run covered")]
pub(crate) async fn all(pages: &Pages, bodies: &Bodies, history: &[Event]) -> Result<(), Failed> {
    let attempts = attempts(history);
    let mut rows = BTreeMap::new();
    for number in 0..PAGES {
        rows.insert(number, snapshot(pages, number).await?);
    }
    tokens_publish_once(&attempts)?;
    results_agree_with_rows(&attempts, history, &rows)?;
    versions_are_counted(&attempts, history, &rows)?;
    no_earlier_grant_publishes_after_a_later_one(&attempts)?;
    no_page_rendered_before_an_invalidation_is_fresh_after_it(&attempts, history)?;
    requests_have_one_result(&attempts, history)?;
    pages_are_not_mixed_up(history)?;
    bodies_match_their_digests(bodies, &rows).await?;
    recovery::check(pages, bodies, history).await?;
    let count = |what: &str| history.iter().filter(|event| event.what == what).count();
    if count("published") == 0 {
        return Err("nothing was published".into());
    }
    println!(
        "{} published ({} versions), {} unchanged, {} lost, {} invalidated, {} rolled back, {} replayed, {} read",
        count("published") + count("regenerated"),
        rows.values().map(|rows| rows.versions.len()).sum::<usize>(),
        count("unchanged"),
        count("lost"),
        count("invalidated"),
        count("rolled-back"),
        count("replayed"),
        count("read"),
    );
    Ok(())
}

fn attempts(history: &[Event]) -> Vec<Attempt> {
    let mut attempts: HashMap<&str, Attempt> = HashMap::new();
    for event in history {
        let word = |index: usize| event.more.get(index).cloned().unwrap_or_default();
        if event.what == "acquiring" {
            let started = Attempt { page: event.page, acquiring: event.at, ..Attempt::default() };
            attempts.insert(&event.attempt, started);
        }
        let Some(attempt) = attempts.get_mut(event.attempt.as_str()) else { continue };
        match event.what.as_str() {
            "granted" => (attempt.granted, attempt.token) = (Some(event.at), word(0)),
            "publishing" => {
                (attempt.publishing, attempt.s3_key) = (Some(event.at), word(1));
                attempt.version = word(2).parse().expect("a version is a number");
                attempt.request = Some(word(3)).filter(|key| key != "-");
            }
            "published" | "lost" | "superseded" | "unavailable" => attempt.result = Some(event.what.clone()),
            _ => {}
        }
    }
    attempts.into_values().collect()
}

fn tokens_publish_once(attempts: &[Attempt]) -> Result<(), Failed> {
    let mut tokens = BTreeSet::new();
    for attempt in attempts.iter().filter(|attempt| attempt.granted.is_some()) {
        if !tokens.insert(&attempt.token) {
            return Err(format!("the token {} was granted twice", attempt.token).into());
        }
    }
    Ok(())
}

type Rows = BTreeMap<u64, PageRows>;

struct PageRows {
    meta: Option<Meta>,
    versions: Vec<(String, Version)>,
}

/// A consistent view of the rows of a page, although writes of killed processes may still arrive.
async fn snapshot(pages: &Pages, number: u64) -> Result<PageRows, Failed> {
    let (store, page) = (pages.store(), page(number));
    for _ in 0..MAX_IN_FLIGHT {
        let meta = store.lookup(&page).await?.meta;
        let versions = store.versions(&page, MAX_VERSIONS).await?;
        // A version is always added together with a change of META.
        if store.lookup(&page).await?.meta == meta {
            return Ok(PageRows { meta, versions });
        }
    }
    Err(format!("page {number} still changes although no process is left").into())
}

/// An acknowledged publish has exactly one row, and one reported as not published has none.
fn results_agree_with_rows(attempts: &[Attempt], history: &[Event], rows: &Rows) -> Result<(), Failed> {
    let mut rows_of_body: HashMap<(u64, &str), usize> = HashMap::new();
    for (number, page_rows) in rows {
        for (_, version) in &page_rows.versions {
            *rows_of_body.entry((*number, version.generation.s3_key.as_str())).or_default() += 1;
        }
    }
    if let Some(((number, s3_key), times)) = rows_of_body.iter().find(|(_, times)| **times > 1) {
        return Err(format!("page {number}: {times} versions refer to {s3_key}").into());
    }
    for attempt in attempts.iter().filter(|attempt| attempt.publishing.is_some()) {
        let exists = rows_of_body.contains_key(&(attempt.page, attempt.s3_key.as_str()));
        match attempt.result.as_deref() {
            Some("published") if !exists => {
                return Err(format!("acknowledged, but without a version row: {attempt:?}").into());
            }
            Some("lost" | "unavailable") if exists => {
                return Err(format!("reported as not published, but has a version row: {attempt:?}").into());
            }
            _ => {}
        }
    }
    let regenerated = history.iter().filter(|event| event.what == "regenerated");
    for event in regenerated {
        if !rows_of_body.contains_key(&(event.page, event.more[0].as_str())) {
            return Err(format!("acknowledged, but without a version row: {event:?}").into());
        }
    }
    Ok(())
}

/// Each version number is used once, and `META` counts every publish and every rollback.
fn versions_are_counted(attempts: &[Attempt], history: &[Event], rows: &Rows) -> Result<(), Failed> {
    let mut used = BTreeSet::new();
    for attempt in attempts.iter().filter(|attempt| attempt.is_published()) {
        if !used.insert((attempt.page, attempt.version)) {
            return Err(format!("version number used twice: {attempt:?}").into());
        }
    }
    for (number, PageRows { meta, versions }) in rows {
        let wrong = |what: String| Failed::from(format!("page {number}: {what}"));
        let of_page = || history.iter().filter(|event| event.page == *number);
        let rollbacks: Vec<&str> = of_page()
            .filter(|event| event.what == "rolling-back")
            .map(|event| event.attempt.as_str())
            .collect();
        let with_result = |what: &'static str| {
            let attempts: BTreeSet<&str> =
                of_page().filter(|event| event.what == what).map(|event| event.attempt.as_str()).collect();
            rollbacks.iter().filter(|attempt| attempts.contains(**attempt)).count()
        };
        let (done, not_done) = (with_result("rolled-back"), with_result("no-such-version"));
        let at_least = versions.len() + done;
        // Rollbacks without a recorded result may or may not have been applied.
        let at_most = versions.len() + rollbacks.len() - not_done;
        let Some(meta) = meta else {
            if versions.is_empty() {
                continue;
            }
            return Err(wrong("META is missing".into()));
        };
        let version = usize::try_from(meta.version.unwrap_or(0))?;
        if version < at_least || version > at_most {
            return Err(wrong(format!("META has version {version}, expected {at_least} to {at_most}")));
        }
        if !versions.iter().any(|(sk, _)| Some(sk) == meta.current_sk.as_ref()) {
            return Err(wrong("META does not point at an existing version".into()));
        }
        let highest = used.range((*number, 0)..=(*number, u64::MAX)).next_back();
        if highest.is_some_and(|(_, highest)| *highest > version as u64) {
            return Err(wrong(format!("{highest:?} was acknowledged, but META has version {version}")));
        }
    }
    Ok(())
}

/// If one grant was returned before another was requested, its publish has the lower version.
fn no_earlier_grant_publishes_after_a_later_one(attempts: &[Attempt]) -> Result<(), Failed> {
    for number in 0..PAGES {
        let of_page = attempts.iter().filter(|attempt| attempt.page == number && attempt.is_published());
        let mut published: Vec<&Attempt> = of_page.collect();
        published.sort_by_key(|attempt| attempt.granted);
        let mut highest = Vec::with_capacity(published.len());
        for attempt in &published {
            highest.push(highest.last().copied().unwrap_or(0).max(attempt.version));
        }
        for later in &published {
            let earlier = published.partition_point(|attempt| attempt.granted < Some(later.acquiring));
            if earlier > 0 && highest[earlier - 1] >= later.version {
                return Err(format!("an earlier grant published after {later:?}").into());
            }
        }
    }
    Ok(())
}

/// A lease granted before an invalidation started neither publishes after it nor made the page that is fresh.
fn no_page_rendered_before_an_invalidation_is_fresh_after_it(
    attempts: &[Attempt],
    history: &[Event],
) -> Result<(), Failed> {
    let granted: HashMap<&str, usize> =
        attempts.iter().filter_map(|attempt| Some((attempt.token.as_str(), attempt.granted?))).collect();
    let mut started: HashMap<&str, usize> = HashMap::new();
    // By page, for each acknowledged invalidation: when it was over and when it started.
    let mut acknowledged: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for event in history {
        match event.what.as_str() {
            "invalidating" => drop(started.insert(&event.attempt, event.at)),
            "invalidated" => {
                acknowledged.entry(event.page).or_default().push((event.at, started[event.attempt.as_str()]));
            }
            "read-after-invalidation" if event.more[0] == "fresh" => {
                let before = granted.get(event.more[1].as_str()).copied();
                if before.is_some_and(|before| before < started[event.attempt.as_str()]) {
                    return Err(format!("fresh although rendered before the invalidation: {event:?}").into());
                }
            }
            _ => {}
        }
    }
    let mut latest: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, invalidations) in &acknowledged {
        // The latest start of all invalidations up to this one.
        let mut highest = 0;
        let raised = invalidations.iter().map(|(_, started)| {
            highest = highest.max(*started);
            highest
        });
        latest.insert(*number, raised.collect());
    }
    for attempt in attempts.iter().filter(|attempt| attempt.is_published()) {
        let (Some(granted), Some(publishing)) = (attempt.granted, attempt.publishing) else { continue };
        let Some(invalidations) = acknowledged.get(&attempt.page) else { continue };
        let by_then = invalidations.partition_point(|(ended, _)| *ended < publishing);
        if by_then > 0 && latest[&attempt.page][by_then - 1] > granted {
            return Err(format!("published although granted before an invalidation: {attempt:?}").into());
        }
    }
    Ok(())
}

/// The same key gives one body to every caller; another request under the same key is rejected.
fn requests_have_one_result(attempts: &[Attempt], history: &[Event]) -> Result<(), Failed> {
    let mut results: BTreeMap<(u64, &str), &str> = BTreeMap::new();
    let completed = attempts
        .iter()
        .filter(|attempt| attempt.is_published())
        .filter_map(|attempt| Some(((attempt.page, attempt.request.as_deref()?), attempt.s3_key.as_str())));
    let replayed = history.iter().filter(|event| event.what == "replayed");
    let replayed = replayed.map(|event| ((event.page, event.more[0].as_str()), event.more[1].as_str()));
    for (key, result) in completed.chain(replayed) {
        let known = results.entry(key).or_insert(result);
        if *known != result {
            return Err(format!("the request {key:?} has the results {known} and {result}").into());
        }
    }
    match history.iter().find(|event| event.what == "other" && event.more[1] != "rejected") {
        Some(event) => Err(format!("another request was accepted under the same key: {event:?}").into()),
        None => Ok(()),
    }
}

fn pages_are_not_mixed_up(history: &[Event]) -> Result<(), Failed> {
    let mut read = history.iter().filter(|event| event.what == "read");
    match read.find(|event| !event.more[0].starts_with(&signature(event.page))) {
        Some(event) => Err(format!("read the body of another page: {event:?}").into()),
        None => Ok(()),
    }
}

/// Every version has a body of its own page that matches its digest.
async fn bodies_match_their_digests(bodies: &Bodies, rows: &Rows) -> Result<(), Failed> {
    let mut reading = tokio::task::JoinSet::new();
    for (number, page_rows) in rows {
        for (_, version) in &page_rows.versions {
            let (bodies, generation, number) = (bodies.clone(), version.generation.clone(), *number);
            reading.spawn(async move {
                let digest = generation.content.digest.as_deref();
                let body = bodies.get(&generation.s3_key, digest).await?;
                let text = body.map(|body| String::from_utf8_lossy(&body.bytes).into_owned());
                match text {
                    Some(text) if digest.is_some() && text.starts_with(&signature(number)) => Ok(()),
                    other => {
                        Err(Failed::from(format!("page {number}: {generation:?} has the body {other:?}")))
                    }
                }
            });
            if reading.len() >= READERS
                && let Some(read) = reading.join_next().await
            {
                read??;
            }
        }
    }
    while let Some(read) = reading.join_next().await {
        read??;
    }
    Ok(())
}
