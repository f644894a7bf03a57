//! Bodies in every store, S3 on a real server among them.

mod support;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use facetheory::{Bodies, Content, PageKey, Rendered};
use support::setting;
use tabletheory::{Random, SeededRandom, SystemRandom, Timestamp};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_123);

fn s3_config(secret: &str) -> SdkConfig {
    let credentials = Credentials::new(setting("AWS_ACCESS_KEY_ID"), secret, None, None, "tests");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(setting("FACETHEORY_TEST_S3_ENDPOINT"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build()
}

fn s3() -> Bodies {
    let prefix = format!("test-{:x}", SystemRandom.next_u64());
    let config = s3_config(&setting("AWS_SECRET_ACCESS_KEY"));
    Bodies::s3(&config, &setting("FACETHEORY_TEST_S3_BUCKET"), &prefix).expect("a store")
}

fn each_store() -> (tempfile::TempDir, [(&'static str, Bodies); 3]) {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Bodies::files(directory.path()).expect("a store");
    (directory, [("memory", Bodies::memory()), ("files", files), ("s3", s3())])
}

#[tokio::test]
async fn a_body_is_stored_once_read_checked_and_deleted() {
    let (_directory, stores) = each_store();
    let page = PageKey::new("/").expect("a page");
    for (name, bodies) in stores {
        let (text, content) = ("<h1>é</h1>", Rendered::html("").content);
        let stored = bodies.put(&page, NOW, text.into(), &content, &SystemRandom).await;
        let stored = stored.expect(name);
        assert!(
            stored.s3_key.contains("/8a5edab282632443219e051e/1700000000123-"),
            "{name}: {}",
            stored.s3_key
        );
        let body = bodies.get(&stored.s3_key, Some(&stored.digest)).await.expect(name).expect("it is there");
        assert_eq!(body.bytes, text, "{name}");
        if name != "files" {
            assert_eq!(body.status, Some(200), "{name}");
            assert_eq!(body.content_type.as_deref(), Some("text/html; charset=utf-8"), "{name}");
        }
        assert_eq!(bodies.get(&stored.s3_key, Some("sha256:other")).await.expect(name), None, "{name}");
        bodies.delete(&stored.s3_key).await.expect(name);
        bodies.delete(&stored.s3_key).await.expect("twice is no error");
        assert_eq!(bodies.get(&stored.s3_key, None).await.expect(name), None, "{name}");
    }
}

#[tokio::test]
async fn a_name_that_is_taken_is_never_written_again() {
    let (_directory, stores) = each_store();
    let page = PageKey::new("/").expect("a page");
    for (name, bodies) in stores {
        let put = async |text: &'static str| {
            // The same chance gives the same first name.
            let random = SeededRandom::new(1);
            bodies.put(&page, NOW, text.into(), &Content::default(), &random).await.expect(name)
        };
        let (first, second) = (put("first").await, put("second").await);
        assert_ne!(first.s3_key, second.s3_key, "{name}");
        let body = bodies.get(&first.s3_key, Some(&first.digest)).await.expect(name).expect("it is there");
        assert_eq!(body.bytes, "first", "{name}");
    }
}

#[tokio::test]
async fn s3_keys_of_other_languages_may_name_the_bucket() {
    let bodies = s3();
    let page = PageKey::new("/").expect("a page");
    let stored =
        bodies.put(&page, NOW, "x".into(), &Content::default(), &SystemRandom).await.expect("stored");
    let bucket = setting("FACETHEORY_TEST_S3_BUCKET");
    let full = format!("s3://{bucket}/{}", stored.s3_key);
    assert!(bodies.get(&full, Some(&stored.digest)).await.expect("an answer").is_some());
    assert!(bodies.get(&format!("s3://other/{}", stored.s3_key), None).await.expect("an answer").is_none());
}

#[tokio::test]
async fn wrong_credentials_are_an_error_and_not_a_missing_body() {
    let bucket = setting("FACETHEORY_TEST_S3_BUCKET");
    let bodies = Bodies::s3(&s3_config("wrong"), &bucket, "test").expect("a store");
    let error = bodies.get("test/x.html", None).await.expect_err("the server checks signatures");
    assert_eq!(error.kind(), facetheory::Kind::Unavailable);
    let page = PageKey::new("/").expect("a page");
    assert!(bodies.put(&page, NOW, "x".into(), &Content::default(), &SystemRandom).await.is_err());
}
