//! Pointers to bodies: the `s3_key` of a row, which other services may write in another form.

use object_store::path::Path;

use super::s3_key::S3Key;

/// The form of the `s3_key` in rows. All forms are read, so services that write different forms share their pages.
///
/// ```
/// use facetheory::{Bodies, Pointers};
///
/// let bodies = Bodies::memory().with_pointers(Pointers::Relative);
/// assert_eq!(Pointers::default(), Pointers::Absolute);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pointers {
    /// The key of the object in its bucket, with the prefix: `isr/<page>/<file>`.
    #[default]
    Absolute,
    /// The key without the prefix, which every reader has to know: `<page>/<file>`.
    Relative,
}

impl Pointers {
    /// The pointer to the object with this key.
    pub(super) fn to_object(self, key: &str, prefix: &str) -> String {
        match self {
            Pointers::Absolute => key,
            Pointers::Relative => key.strip_prefix(prefix).unwrap_or(key),
        }
        .to_owned()
    }
}

/// The objects that a pointer may name, the likeliest first: the key as it is written, and the key under the prefix. Empty for
/// a text that names no object here.
///
/// `root` is `s3://bucket/`. A pointer that begins with it names one object.
pub(super) fn objects(pointer: &str, prefix: &str, root: Option<&str>) -> Vec<Path> {
    let parse = |key: &str| Path::parse(key).ok().filter(|path| !path.as_ref().is_empty());
    if let Some(key) = root.and_then(|root| pointer.strip_prefix(root)) {
        return parse(key).into_iter().collect();
    }
    // A text that is invalid by itself is invalid under the prefix too, and nothing is the prefix itself.
    let Some(written) = parse(pointer) else { return Vec::new() };
    let prefixed = parse(&format!("{prefix}{written}"));
    let mut found: Vec<Path> = prefixed.into_iter().filter(|prefixed| *prefixed != written).collect();
    // A key in the form of ours without the prefix is a relative one. Otherwise the key as it is written comes first.
    let is_relative = S3Key::parse("", written.as_ref()).is_some();
    found.insert(if is_relative { found.len() } else { 0 }, written);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_and_written_as_in_the_file() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/golden/pointers.json")).expect("JSON");
        for vector in vectors.as_array().expect("a list") {
            let text = |name: &str| vector[name].as_str();
            let (pointer, prefix) = (text("s3_key").expect("a pointer"), text("prefix").expect("a prefix"));
            let root = text("bucket").map(|bucket| format!("s3://{bucket}/"));
            let read: Vec<String> =
                objects(pointer, prefix, root.as_deref()).iter().map(ToString::to_string).collect();
            let expected: Vec<&str> =
                vector["objects"].as_array().expect("a list").iter().filter_map(|key| key.as_str()).collect();
            assert_eq!(read, expected, "{vector}");
            let form = match text("written") {
                Some("absolute") => Pointers::Absolute,
                Some("relative") => Pointers::Relative,
                _ => continue,
            };
            assert_eq!(form.to_object(&read[0], prefix), pointer, "{vector}");
        }
    }
}
