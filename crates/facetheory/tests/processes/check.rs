//! Whether what was recorded, the rows and the bodies tell one story.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use facetheory::protocol::{Meta, Version};
use facetheory::{Bodies, Pages};
use libtest_mimic::Failed;

use crate::calm;
use crate::history::Event;
use crate::work::{PAGES, beginning, page};

/// More versions than a page gets in the longest run.
const MOST_VERSIONS: usize = 1_000_000;
/// So many bodies are read at a time.
const READERS: usize = 16;
/// More requests than all the killed together can have sent.
const MOST_ON_THEIR_WAY: usize = 1_000;

/// One attempt to publish, as far as it came.
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
    /// What was heard in the end.
    heard: Option<String>,
}

impl Attempt {
    fn is_published(&self) -> bool {
        self.heard.as_deref() == Some("published")
    }
}

#[expect(clippy::print_stdout, reason = "what was counted is the point of the run")]
pub(crate) async fn all(pages: &Pages, bodies: &Bodies, history: &[Event]) -> Result<(), Failed> {
    let attempts = attempts(history);
    let mut rows = BTreeMap::new();
    for number in 0..PAGES {
        rows.insert(number, at_one_time(pages, number).await?);
    }
    tokens_publish_once(&attempts)?;
    what_was_heard_is_in_the_rows(&attempts, history, &rows)?;
    versions_are_counted(&attempts, history, &rows)?;
    no_earlier_grant_publishes_after_a_later_one(&attempts)?;
    nothing_from_before_an_invalidation_is_fresh_after_it(&attempts, history)?;
    requests_have_one_result(&attempts, history)?;
    nobody_reads_the_page_of_another(history)?;
    every_body_is_whole(bodies, &rows).await?;
    calm::comes(pages, bodies, history).await?;
    let count = |what: &str| history.iter().filter(|event| event.what == what).count();
    if count("published") == 0 {
        return Err("nothing was published".into());
    }
    println!(
        "{} published ({} there), {} unchanged, {} lost, {} invalidated, {} rolled back, {} replayed, {} read",
        count("published") + count("regenerated"),
        rows.values().map(|rows| rows.versions.len()).sum::<usize>(),
        count("confirmed"),
        count("lost"),
        count("invalidated"),
        count("went-back"),
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
            let begun = Attempt { page: event.page, acquiring: event.at, ..Attempt::default() };
            attempts.insert(&event.attempt, begun);
        }
        let Some(attempt) = attempts.get_mut(event.attempt.as_str()) else { continue };
        match event.what.as_str() {
            "granted" => (attempt.granted, attempt.token) = (Some(event.at), word(0)),
            "publishing" => {
                (attempt.publishing, attempt.s3_key) = (Some(event.at), word(1));
                attempt.version = word(2).parse().expect("a version is a number");
                attempt.request = Some(word(3)).filter(|key| key != "-");
            }
            "published" | "lost" | "superseded" | "denied" => attempt.heard = Some(event.what.clone()),
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

type Rows = BTreeMap<u64, RowsOfPage>;

struct RowsOfPage {
    meta: Option<Meta>,
    versions: Vec<(String, Version)>,
}

/// The rows of a page as they were at one time: what the killed have sent is on its way for a while yet.
async fn at_one_time(pages: &Pages, number: u64) -> Result<RowsOfPage, Failed> {
    let (store, page) = (pages.store(), page(number));
    for _ in 0..MOST_ON_THEIR_WAY {
        let meta = store.lookup(&page).await?.meta;
        let versions = store.versions(&page, MOST_VERSIONS).await?;
        // A version is added together with a change of META.
        if store.lookup(&page).await?.meta == meta {
            return Ok(RowsOfPage { meta, versions });
        }
    }
    Err(format!("page {number} is changed again and again, and nobody is left").into())
}

/// Every acknowledged publish has one row; one that was reported as not published has none.
fn what_was_heard_is_in_the_rows(attempts: &[Attempt], history: &[Event], rows: &Rows) -> Result<(), Failed> {
    let mut named: HashMap<(u64, &str), usize> = HashMap::new();
    for (number, of_page) in rows {
        for (_, version) in &of_page.versions {
            *named.entry((*number, version.generation.s3_key.as_str())).or_default() += 1;
        }
    }
    if let Some(((number, s3_key), times)) = named.iter().find(|(_, times)| **times > 1) {
        return Err(format!("page {number}: {times} versions name {s3_key}").into());
    }
    for attempt in attempts.iter().filter(|attempt| attempt.publishing.is_some()) {
        let there = named.contains_key(&(attempt.page, attempt.s3_key.as_str()));
        match attempt.heard.as_deref() {
            Some("published") if !there => {
                return Err(format!("it was acknowledged and has no version: {attempt:?}").into());
            }
            Some("lost" | "denied") if there => {
                return Err(format!("it was reported as not published, and was: {attempt:?}").into());
            }
            _ => {}
        }
    }
    let regenerated = history.iter().filter(|event| event.what == "regenerated");
    for event in regenerated {
        if !named.contains_key(&(event.page, event.more[0].as_str())) {
            return Err(format!("it was acknowledged and has no version: {event:?}").into());
        }
    }
    Ok(())
}

/// Each version is used once, and `META` counts the versions and the ways back, no more and no fewer.
fn versions_are_counted(attempts: &[Attempt], history: &[Event], rows: &Rows) -> Result<(), Failed> {
    let mut used = BTreeSet::new();
    for attempt in attempts.iter().filter(|attempt| attempt.is_published()) {
        if !used.insert((attempt.page, attempt.version)) {
            return Err(format!("the version was used twice: {attempt:?}").into());
        }
    }
    for (number, RowsOfPage { meta, versions }) in rows {
        let wrong = |what: String| Failed::from(format!("page {number}: {what}"));
        let of_page = || history.iter().filter(|event| event.page == *number);
        let ways: Vec<&str> = of_page()
            .filter(|event| event.what == "going-back")
            .map(|event| event.attempt.as_str())
            .collect();
        let answer = |what: &'static str| {
            let answered: BTreeSet<&str> =
                of_page().filter(|event| event.what == what).map(|event| event.attempt.as_str()).collect();
            ways.iter().filter(|attempt| answered.contains(**attempt)).count()
        };
        let (went, stayed) = (answer("went-back"), answer("stayed"));
        let at_least = versions.len() + went;
        // Of those whose answer nobody heard, any number may have happened.
        let at_most = versions.len() + ways.len() - stayed;
        let Some(meta) = meta else {
            if versions.is_empty() {
                continue;
            }
            return Err(wrong("META is missing".into()));
        };
        let version = usize::try_from(meta.version.unwrap_or(0))?;
        if version < at_least || version > at_most {
            return Err(wrong(format!("META counts {version}, and it must be {at_least} to {at_most}")));
        }
        if !versions.iter().any(|(sk, _)| Some(sk) == meta.current_sk.as_ref()) {
            return Err(wrong("META points at no version".into()));
        }
        let highest = used.range((*number, 0)..=(*number, u64::MAX)).next_back();
        if highest.is_some_and(|(_, highest)| *highest > version as u64) {
            return Err(wrong(format!("{highest:?} was acknowledged, and META counts {version}")));
        }
    }
    Ok(())
}

/// Where one grant was heard of before another was asked for, its publish has the lower version.
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
                return Err(format!("an earlier grant has published after {later:?}").into());
            }
        }
    }
    Ok(())
}

/// A lease that was granted before an invalidation began neither publishes after it nor has made what is fresh.
fn nothing_from_before_an_invalidation_is_fresh_after_it(
    attempts: &[Attempt],
    history: &[Event],
) -> Result<(), Failed> {
    let granted: HashMap<&str, usize> =
        attempts.iter().filter_map(|attempt| Some((attempt.token.as_str(), attempt.granted?))).collect();
    let mut begun: HashMap<&str, usize> = HashMap::new();
    // Of each page, for every invalidation that was heard of: when it began and when it was over.
    let mut over: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for event in history {
        match event.what.as_str() {
            "invalidating" => drop(begun.insert(&event.attempt, event.at)),
            "invalidated" => {
                over.entry(event.page).or_default().push((event.at, begun[event.attempt.as_str()]));
            }
            "looked" if event.more[0] == "fresh" => {
                let before = granted.get(event.more[1].as_str()).copied();
                if before.is_some_and(|before| before < begun[event.attempt.as_str()]) {
                    return Err(format!("it was rendered before the invalidation: {event:?}").into());
                }
            }
            _ => {}
        }
    }
    let mut latest: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, invalidations) in &over {
        // The latest beginning of all that were over by then.
        let mut highest = 0;
        let raised = invalidations.iter().map(|(_, began)| {
            highest = highest.max(*began);
            highest
        });
        latest.insert(*number, raised.collect());
    }
    for attempt in attempts.iter().filter(|attempt| attempt.is_published()) {
        let (Some(granted), Some(publishing)) = (attempt.granted, attempt.publishing) else { continue };
        let Some(invalidations) = over.get(&attempt.page) else { continue };
        let by_then = invalidations.partition_point(|(ended, _)| *ended < publishing);
        if by_then > 0 && latest[&attempt.page][by_then - 1] > granted {
            return Err(format!("it was granted before an invalidation: {attempt:?}").into());
        }
    }
    Ok(())
}

/// The same key gives one body, whoever asks; another request under it is refused.
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
    match history.iter().find(|event| event.what == "other" && event.more[1] != "refused") {
        Some(event) => Err(format!("another request was accepted under the same key: {event:?}").into()),
        None => Ok(()),
    }
}

fn nobody_reads_the_page_of_another(history: &[Event]) -> Result<(), Failed> {
    let mut read = history.iter().filter(|event| event.what == "read");
    match read.find(|event| !event.more[0].starts_with(&beginning(event.page))) {
        Some(event) => Err(format!("it is the body of another page: {event:?}").into()),
        None => Ok(()),
    }
}

/// Every version has its body, as its digest tells, and of its own page.
async fn every_body_is_whole(bodies: &Bodies, rows: &Rows) -> Result<(), Failed> {
    let mut reading = tokio::task::JoinSet::new();
    for (number, of_page) in rows {
        for (_, version) in &of_page.versions {
            let (bodies, generation, number) = (bodies.clone(), version.generation.clone(), *number);
            reading.spawn(async move {
                let digest = generation.content.digest.as_deref();
                let body = bodies.get(&generation.s3_key, digest).await?;
                let text = body.map(|body| String::from_utf8_lossy(&body.bytes).into_owned());
                match text {
                    Some(text) if digest.is_some() && text.starts_with(&beginning(number)) => Ok(()),
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
