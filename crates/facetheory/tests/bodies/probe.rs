//! The probe of a store at start-up, and conflicts of conditional puts.

use facetheory::protocol::Content;
use facetheory::{Bodies, Kind, PageKey, ProbeFailure};
use tabletheory::{SeededRandom, SystemRandom};

use crate::fake::{Fake, Fault};
use crate::{NOW, each_store};

async fn failures(fault: Fault) -> (Fake, Vec<ProbeFailure>) {
    let fake = Fake::start(fault).await;
    let probe = fake.bodies().probe(&SystemRandom).await.expect("no error");
    (fake, probe.failures)
}

async fn put(bodies: &Bodies, seed: u64) -> facetheory::Result<facetheory::StoredBody> {
    let page = PageKey::new("/").expect("a page");
    bodies.put(&page, NOW, "x".into(), &Content::default(), &SeededRandom::new(seed)).await
}

#[tokio::test]
async fn real_stores_pass_the_probe_and_are_left_unchanged() {
    let (directory, stores) = each_store();
    for (name, bodies) in stores {
        let probe = bodies.probe(&SystemRandom).await.expect(name);
        if name == "files" {
            assert_eq!(probe.failures, [ProbeFailure::NoMetadata, ProbeFailure::NoContentType]);
        } else {
            assert_eq!(probe.to_string(), "the object storage has every feature that is needed", "{name}");
        }
    }
    assert!(!directory.path().join("isr/probe").exists(), "no file or directory is left behind");
}

#[tokio::test]
async fn a_correct_s3_store_passes_the_probe() {
    let (fake, found) = failures(Fault::None).await;
    assert_eq!(found, []);
    assert!(fake.keys().is_empty(), "the test object is deleted");
}

#[tokio::test]
async fn every_missing_feature_of_a_store_is_reported() {
    for (fault, expected) in [
        (
            Fault::IgnoresIfNoneMatch,
            "a conditional put overwrites an object that exists (the store ignores If-None-Match): only their random \
             keys protect bodies from being overwritten",
        ),
        (
            Fault::ForgetsMetadata,
            "metadata is not returned: a page whose row another language has written is served without its status, \
             content type and security policy\nthe content type is not returned: clients that fetch objects directly \
             have to guess it",
        ),
        (
            Fault::IgnoresDeletes,
            "an object that was deleted still exists: garbage collection cannot delete bodies, and this test leaves an object behind",
        ),
        (
            Fault::Garbles,
            "an object that was just stored cannot be read: the body of every page would be missing",
        ),
    ] {
        let fake = Fake::start(fault).await;
        let probe = fake.bodies().probe(&SystemRandom).await.expect("no error");
        assert_eq!(probe.to_string(), expected, "{fault:?}");
        assert_eq!(probe.failures.iter().any(ProbeFailure::is_fatal), fault == Fault::Garbles);
        assert_eq!(fake.keys().is_empty(), fault != Fault::IgnoresDeletes);
    }
    let (_fake, found) = failures(Fault::DeniesLists).await;
    let [ProbeFailure::NoList(Some(reason))] = found.as_slice() else { panic!("{found:?}") };
    assert!(reason.contains("AccessDenied"), "{reason}");
}

#[tokio::test]
async fn a_store_that_denies_everything_is_an_error() {
    let fake = Fake::start(Fault::DeniesEverything).await;
    let error = fake.bodies().probe(&SystemRandom).await.expect_err("denied");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(error.to_string(), "a test object cannot be stored; check the object storage and try again");
}

#[tokio::test]
async fn a_conflict_is_retried_with_the_same_key() {
    let fake = Fake::start(Fault::Conflicts(3)).await;
    let stored = put(&fake.bodies(), 1).await.expect("stored");
    assert_eq!(fake.puts(), 4);
    assert_eq!(fake.keys(), [stored.s3_key]);
}

#[tokio::test]
async fn a_conflict_that_persists_is_an_error() {
    let fake = Fake::start(Fault::Conflicts(u32::MAX)).await;
    let error = put(&fake.bodies(), 1).await.expect_err("every attempt conflicts");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(fake.puts(), 7, "one attempt and six retries");
}

#[tokio::test]
async fn a_key_that_is_taken_is_not_retried() {
    let fake = Fake::start(Fault::None).await;
    // The same seed gives the same first key.
    let (one, two) = (put(&fake.bodies(), 1).await, put(&fake.bodies(), 1).await);
    assert_ne!(one.expect("stored").s3_key, two.expect("stored").s3_key);
    assert_eq!(fake.puts(), 3, "the taken key was tried once");
}
