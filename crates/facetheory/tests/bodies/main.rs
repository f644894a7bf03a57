//! Bodies in every store, including S3 on a real server.

mod fake;
mod probe;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use facetheory::protocol::{Content, Generation, Meta};
use facetheory::{Bodies, PageKey, PageStore, Pages, Pointers, Rendered};
use support::server_variable;
use tabletheory::{MemoryTable, Random, SeededRandom, SystemRandom, Table as _, Timestamp, Txn, Write};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_123);

fn s3_config(secret: &str) -> SdkConfig {
    let credentials = Credentials::new(server_variable("AWS_ACCESS_KEY_ID"), secret, None, None, "tests");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(server_variable("FACETHEORY_TEST_S3_ENDPOINT"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build()
}

fn s3() -> Bodies {
    let prefix = format!("test-{:x}", SystemRandom.next_u64());
    let config = s3_config(&server_variable("AWS_SECRET_ACCESS_KEY"));
    Bodies::s3(&config, &server_variable("FACETHEORY_TEST_S3_BUCKET"), &prefix).expect("a store")
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
        // The embedded store has a checksum of each small body, so its digest is not computed.
        let large = bodies.put(&page, NOW, vec![b'x'; 1 << 20].into(), &content, &SystemRandom).await;
        let large = large.expect(name).s3_key;
        assert_eq!(bodies.get(&large, Some(&stored.digest)).await.expect(name), None, "{name}");
        bodies.delete(&large).await.expect(name);
        bodies.delete(&stored.s3_key).await.expect(name);
        bodies.delete(&stored.s3_key).await.expect("deleting twice is not an error");
        assert_eq!(bodies.get(&stored.s3_key, None).await.expect(name), None, "{name}");
    }
}

#[tokio::test]
async fn a_key_that_is_taken_is_never_overwritten() {
    let (_directory, stores) = each_store();
    let page = PageKey::new("/").expect("a page");
    for (name, bodies) in stores {
        let put = async |text: &'static str| {
            // The same seed gives the same first key.
            let random = SeededRandom::new(1);
            bodies.put(&page, NOW, text.into(), &Content::default(), &random).await.expect(name)
        };
        let (first, second) = (put("first").await, put("second").await);
        assert_ne!(first.s3_key, second.s3_key, "{name}");
        let body = bodies.get(&first.s3_key, Some(&first.digest)).await.expect(name).expect("it is there");
        assert_eq!(body.bytes, "first", "{name}");
    }
}

/// A page whose row another language has written is served with the metadata of its object.
#[tokio::test]
async fn the_metadata_of_an_object_fills_in_what_the_row_lacks() {
    let (_directory, stores) = each_store();
    let page = PageKey::new("/").expect("a page");
    for (name, bodies) in stores {
        let table = Arc::new(MemoryTable::new());
        let pages = Pages::new(PageStore::new(table.clone()), bodies.clone());
        let mut rendered = Rendered::html("<h1>Gone</h1>");
        rendered.content.status = Some(410);
        rendered.content.headers = vec![("Content-Security-Policy".into(), "default-src 'self'".into())];
        let stored = bodies.put(&page, NOW, "<h1>Gone</h1>".into(), &rendered.content, &SystemRandom).await;
        let foreign = Meta::of(Generation::new(stored.expect(name).s3_key, 1_700_000_000, 60));
        let put = Txn::from(Write::put(page.meta(), foreign.to_item()));
        assert!(table.commit(&put).await.expect("no error").is_done());
        let (meta, body) = pages.read(&page).await.expect(name).expect("it is served");
        let content = &meta.generation.content;
        assert_eq!(body.bytes, "<h1>Gone</h1>", "{name}");
        if name == "files" {
            assert_eq!((content.status, content.content_type.as_deref()), (None, None));
            continue;
        }
        assert_eq!(content.status, Some(410), "{name}");
        assert_eq!(content.content_type.as_deref(), Some("text/html; charset=utf-8"), "{name}");
        let policy = ("content-security-policy".to_owned(), "default-src 'self'".to_owned());
        assert_eq!(content.headers, [policy], "{name}");
    }
}

#[tokio::test]
async fn a_body_is_stored_even_if_a_value_does_not_fit_into_a_header() {
    let (_directory, stores) = each_store();
    let page = PageKey::new("/").expect("a page");
    let long = format!("default-src {}", "x".repeat(4096));
    for (name, bodies) in stores {
        for hostile in ["default-src é", "a\r\nx-amz-acl: public-read", "\0", long.as_str()] {
            let mut rendered = Rendered::html("x");
            rendered.content.content_type = Some(hostile.into());
            rendered.content.headers = vec![("content-security-policy".into(), hostile.into())];
            let stored = bodies.put(&page, NOW, "x".into(), &rendered.content, &SystemRandom).await;
            let stored = stored.unwrap_or_else(|error| panic!("{name}, {hostile:?}: {error}"));
            let body = bodies.get(&stored.s3_key, Some(&stored.digest)).await.expect(name).expect("there");
            assert_eq!((body.content_type, body.content_security_policy), (None, None), "{name}");
        }
    }
}

#[tokio::test]
async fn s3_keys_of_other_languages_may_name_the_bucket() {
    let bodies = s3();
    let page = PageKey::new("/").expect("a page");
    let stored =
        bodies.put(&page, NOW, "x".into(), &Content::default(), &SystemRandom).await.expect("stored");
    let bucket = server_variable("FACETHEORY_TEST_S3_BUCKET");
    let full = format!("s3://{bucket}/{}", stored.s3_key);
    assert!(bodies.get(&full, Some(&stored.digest)).await.expect("no error").is_some());
    assert!(bodies.get(&format!("s3://other/{}", stored.s3_key), None).await.expect("no error").is_none());
}

#[tokio::test]
async fn wrong_credentials_are_an_error_not_a_missing_body() {
    let bucket = server_variable("FACETHEORY_TEST_S3_BUCKET");
    let bodies = Bodies::s3(&s3_config("wrong"), &bucket, "test").expect("a store");
    let error = bodies.get("test/x.html", None).await.expect_err("the server checks signatures");
    assert_eq!(error.kind(), facetheory::Kind::Unavailable);
    let page = PageKey::new("/").expect("a page");
    assert!(bodies.put(&page, NOW, "x".into(), &Content::default(), &SystemRandom).await.is_err());
}

#[tokio::test]
async fn a_body_is_read_and_deleted_in_every_form_of_its_key() {
    let (_directory, stores) = each_store();
    let page = PageKey::new("/").expect("a page");
    for (name, bodies) in stores {
        let put = async |pointers| {
            let bodies = bodies.clone().with_pointers(pointers);
            bodies.put(&page, NOW, "body".into(), &Content::default(), &SystemRandom).await.expect(name)
        };
        let (absolute, relative) = (put(Pointers::Absolute).await, put(Pointers::Relative).await);
        let start = absolute.s3_key.find("8a5edab282632443219e051e/").expect("the directory of the page");
        let prefix = &absolute.s3_key[..start];
        assert!(prefix.ends_with('/'), "{name}: {}", absolute.s3_key);
        assert!(relative.s3_key.starts_with("8a5edab282632443219e051e/"), "{name}: {}", relative.s3_key);
        for (stored, key) in [(&absolute, &absolute.s3_key[start..]), (&relative, relative.s3_key.as_str())] {
            let mut forms = vec![key.to_owned(), format!("{prefix}{key}"), format!("/{prefix}{key}")];
            if name == "s3" {
                forms.push(format!("s3://{}/{prefix}{key}", server_variable("FACETHEORY_TEST_S3_BUCKET")));
                let other = format!("s3://other/{prefix}{key}");
                assert_eq!(bodies.get(&other, None).await.expect(name), None, "{name}: {other}");
            }
            for form in &forms {
                let body = bodies.get(form, Some(&stored.digest)).await.expect(name);
                assert_eq!(body.expect("a body").bytes, "body", "{name}: {form}");
                // A small body of the embedded store has a checksum in place of the digest.
                if name != "files" {
                    assert_eq!(bodies.get(form, Some("sha256:0")).await.expect(name), None, "{name}: {form}");
                }
            }
            bodies.delete(key).await.expect(name);
            bodies.delete(key).await.expect("deleting twice is not an error");
            for form in &forms {
                assert_eq!(bodies.get(form, None).await.expect(name), None, "{name}: {form}");
            }
        }
    }
}
