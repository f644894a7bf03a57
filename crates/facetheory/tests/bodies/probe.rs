//! What stores cannot do is said at start-up, and what S3 answers under contention is understood.

use facetheory::protocol::Content;
use facetheory::{Bodies, Kind, PageKey, ProbeFailure};
use tabletheory::{SeededRandom, SystemRandom};

use crate::fake::{Fake, Faults};
use crate::{NOW, each_store};

async fn failures(faults: Faults) -> (Fake, Vec<ProbeFailure>) {
    let fake = Fake::start(faults).await;
    let probe = fake.bodies().probe(&SystemRandom).await.expect("it can be tried out");
    (fake, probe.failures)
}

async fn put(bodies: &Bodies, seed: u64) -> facetheory::Result<facetheory::StoredBody> {
    let page = PageKey::new("/").expect("a page");
    bodies.put(&page, NOW, "x".into(), &Content::default(), &SeededRandom::new(seed)).await
}

#[tokio::test]
async fn real_stores_do_what_is_needed_and_are_left_as_they_were() {
    let (directory, stores) = each_store();
    for (name, bodies) in stores {
        let probe = bodies.probe(&SystemRandom).await.expect(name);
        if name == "files" {
            assert_eq!(probe.failures, [ProbeFailure::NoMetadata, ProbeFailure::NoContentType]);
        } else {
            assert_eq!(probe.to_string(), "the store of bodies does everything that is needed", "{name}");
        }
    }
    assert!(!directory.path().join("isr/probe").exists(), "no file is left behind, and no directory");
}

#[tokio::test]
async fn a_store_that_speaks_s3_well_has_no_shortcomings() {
    let (fake, found) = failures(Faults::default()).await;
    assert_eq!(found, []);
    assert!(fake.keys().is_empty(), "what was tried out is deleted");
}

#[tokio::test]
async fn what_a_store_cannot_do_is_said_in_plain_words() {
    for (faults, said) in [
        (
            Faults { ignores_if_none_match: true, ..Faults::default() },
            "a put that must not replace anything replaces what is there (the store ignores If-None-Match): that no \
             body is ever rewritten then rests on their random names alone",
        ),
        (
            Faults { forgets_metadata: true, ..Faults::default() },
            "metadata does not come back: a page whose row another language has written is served without its \
             status, content type and security policy\nthe content type does not come back: whoever fetches \
             objects past this program has to guess it",
        ),
        (
            Faults { keeps_what_is_deleted: true, ..Faults::default() },
            "what is deleted stays: bodies that are no longer needed pile up, and the probe leaves one behind too",
        ),
        (
            Faults { garbles: true, ..Faults::default() },
            "what was just stored cannot be read back: every page would look as if its body were missing",
        ),
    ] {
        let fake = Fake::start(faults).await;
        let probe = fake.bodies().probe(&SystemRandom).await.expect("it can be tried out");
        assert_eq!(probe.to_string(), said, "{faults:?}");
        assert_eq!(probe.failures.iter().any(ProbeFailure::is_fatal), faults.garbles);
        assert_eq!(fake.keys().is_empty(), !faults.keeps_what_is_deleted);
    }
    let (_fake, found) = failures(Faults { denies_lists: true, ..Faults::default() }).await;
    let [ProbeFailure::NoList(Some(reason))] = found.as_slice() else { panic!("{found:?}") };
    assert!(reason.contains("AccessDenied"), "{reason}");
}

#[tokio::test]
async fn a_store_that_denies_everything_is_an_error() {
    let fake = Fake::start(Faults { denies_everything: true, ..Faults::default() }).await;
    let error = fake.bodies().probe(&SystemRandom).await.expect_err("denied");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(error.to_string(), "nothing can be stored; check the store of bodies and try again");
}

#[tokio::test]
async fn a_conflict_is_tried_again_under_the_same_name() {
    let fake = Fake::start(Faults { conflicts: 3, ..Faults::default() }).await;
    let stored = put(&fake.bodies(), 1).await.expect("stored in the end");
    assert_eq!(fake.puts(), 4);
    assert_eq!(fake.keys(), [stored.s3_key]);
}

#[tokio::test]
async fn a_conflict_that_never_ends_is_an_error_and_not_a_loop() {
    let fake = Fake::start(Faults { conflicts: u32::MAX, ..Faults::default() }).await;
    let error = put(&fake.bodies(), 1).await.expect_err("it gives up");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(fake.puts(), 7, "one attempt and six repetitions");
}

#[tokio::test]
async fn a_name_that_is_taken_is_not_tried_again() {
    let fake = Fake::start(Faults::default()).await;
    // The same chance gives the same first name.
    let (one, two) = (put(&fake.bodies(), 1).await, put(&fake.bodies(), 1).await);
    assert_ne!(one.expect("stored").s3_key, two.expect("stored").s3_key);
    assert_eq!(fake.puts(), 3, "the taken name was asked for once");
}
