//! The S3 key of a body: `<prefix><24 hex of the page>/<generated at, ms>-<uuid>.<extension>`.
//!
//! [`new_s3_key`] is the only function that creates one, and [`S3Key::parse`] the only one that takes one apart.

use tabletheory::{Random, Timestamp};

use crate::protocol::{PageKey, digest::sha256_hex};

/// Hexadecimal digits of the directory of a page.
const PAGE_DIGITS: usize = 24;

/// A new S3 key for a body of this page. No other body has it: each attempt to store a body gets a new UUID.
pub(crate) fn new_s3_key(
    prefix: &str,
    page: &PageKey,
    generated_at: Timestamp,
    content_type: Option<&str>,
    random: &dyn Random,
) -> String {
    let (directory, uuid) = (page_directory(page.cache_key()), uuid(random));
    format!("{prefix}{directory}/{}-{uuid}.{}", generated_at.millis(), extension(content_type))
}

/// The directory of all bodies of a page: the start of the SHA-256 of its cache key.
pub(crate) fn page_directory(cache_key: &str) -> String {
    directory_of_hash(&sha256_hex(cache_key.as_bytes())).to_owned()
}

/// The directory of all bodies of the page with this SHA-256, in hexadecimal.
pub(crate) fn directory_of_hash(hash: &str) -> &str {
    &hash[..PAGE_DIGITS]
}

/// The parts of an S3 key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct S3Key<'a> {
    /// The directory of all bodies of the page.
    pub(crate) directory: &'a str,
    /// When the render started, in epoch milliseconds.
    pub(crate) millis: i64,
}

impl<'a> S3Key<'a> {
    /// Parses the key of an object. Returns `None` for an object that is not a body of ours.
    pub(crate) fn parse(prefix: &str, key: &'a str) -> Option<Self> {
        /// The lengths of the parts of a UUID.
        const UUID: [usize; 5] = [8, 4, 4, 4, 12];
        /// Enough for the next 30,000 years, and few enough for 64 bits.
        const MAX_MILLIS_DIGITS: usize = 15;
        const MAX_EXTENSION_BYTES: usize = 8;
        let is_hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let (directory, file) = key.strip_prefix(prefix)?.split_once('/')?;
        let (stem, extension) = file.split_once('.')?;
        let (millis, uuid) = stem.split_once('-')?;
        let mut parts = uuid.split('-');
        let is_uuid = UUID.iter().all(|digits| parts.next().is_some_and(|part| is_hex(part, *digits)))
            && parts.next().is_none();
        let is_number = (1..=MAX_MILLIS_DIGITS).contains(&millis.len())
            && millis.bytes().all(|byte| byte.is_ascii_digit());
        let is_extension = (1..=MAX_EXTENSION_BYTES).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let ours = is_hex(directory, PAGE_DIGITS) && is_number && is_uuid && is_extension;
        ours.then_some(S3Key { directory, millis: millis.parse().ok()? })
    }
}

/// The file name in an S3 key, which no other body has. Rows of other languages may write the rest differently, for example
/// as `s3://bucket/key`.
pub(crate) fn file_name(s3_key: &str) -> &str {
    let path = s3_key.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

/// The file extension for a content type.
fn extension(content_type: Option<&str>) -> &'static str {
    let essence = content_type.unwrap_or("text/html").split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "text/html" => "html",
        "application/json" => "json",
        "text/plain" => "txt",
        "text/css" => "css",
        "text/javascript" | "application/javascript" => "js",
        "application/xml" | "text/xml" | "application/rss+xml" | "application/atom+xml" => "xml",
        "image/svg+xml" => "svg",
        _ => "bin",
    }
}

/// A random UUID (version 4).
pub(crate) fn uuid(random: &dyn Random) -> String {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let marked = bits & !(0xF000 << 64) & !(0xC000 << 48) | (0x4000 << 64) | (0x8000 << 48);
    let hex = format!("{marked:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    const PAGE: &str = "8a5edab282632443219e051e";
    const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";

    #[test]
    fn a_new_key_is_parsed_into_its_parts() {
        let page = PageKey::new("/").expect("a page");
        let now = Timestamp::from_millis(1_700_000_000_123);
        let key = new_s3_key("isr/", &page, now, None, &SeededRandom::new(1));
        let parsed = S3Key::parse("isr/", &key).expect("a body");
        assert_eq!((parsed.directory, parsed.millis), (PAGE, 1_700_000_000_123));
        assert_eq!(page_directory("/"), PAGE);
        assert_eq!(format!("isr/{PAGE}/{}", file_name(&key)), key);
    }

    #[test]
    fn objects_with_other_keys_are_not_bodies() {
        assert!(S3Key::parse("isr/", &format!("isr/{PAGE}/1700000000123-{UUID}.html")).is_some());
        for other in [
            format!("other/{PAGE}/1700000000123-{UUID}.html"),
            format!("isr/{PAGE}/sub/1700000000123-{UUID}.html"),
            format!("isr/{}/1700000000123-{UUID}.html", &PAGE[1..]),
            format!("isr/{}/1700000000123-{UUID}.html", PAGE.to_uppercase()),
            format!("isr/{PAGE}/1700000000123-{UUID}"),
            format!("isr/{PAGE}/1700000000123-{UUID}.html.bak"),
            format!("isr/{PAGE}/1700000000123-{UUID}-1.html"),
            format!("isr/{PAGE}/1700000000123-{}.html", &UUID[1..]),
            format!("isr/{PAGE}/-{UUID}.html"),
            format!("isr/{PAGE}/1e9-{UUID}.html"),
            format!("isr/{PAGE}/1234567890123456-{UUID}.html"),
            format!("isr/{PAGE}/index.html"),
            "isr/index.html".to_owned(),
            "isr/".to_owned(),
        ] {
            assert_eq!(S3Key::parse("isr/", &other), None, "{other}");
        }
    }

    #[test]
    fn the_file_name_does_not_depend_on_how_the_key_is_written() {
        for key in ["isr/1/x.html", "s3://bucket/isr/1/x.html", "/isr/1/x.html", "x.html", "isr/1/x.html?v=1"]
        {
            assert_eq!(file_name(key), "x.html", "{key}");
        }
    }

    #[test]
    fn a_uuid_is_marked_as_random() {
        for seed in 0..100 {
            let uuid = uuid(&SeededRandom::new(seed));
            assert_eq!(uuid.len(), 36);
            assert_eq!(&uuid[14..15], "4");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }

    #[test]
    fn the_extension_follows_the_content_type() {
        for (content_type, expected) in [
            (None, "html"),
            (Some("text/html; charset=utf-8"), "html"),
            (Some("Application/JSON"), "json"),
            (Some("image/png"), "bin"),
            (Some(""), "bin"),
        ] {
            assert_eq!(extension(content_type), expected);
        }
    }
}
