//! The path that a raw cache key of a TypeScript service contains. The rows of these services have no attribute for it.

/// The path of the page with this cache key, if the key has the form of FaceTheory's TypeScript services:
/// `default::/news/{slug}?slug=hello`. `None` for keys of other forms.
pub(crate) fn path_of_key(cache_key: &str) -> Option<String> {
    let (_, rest) = cache_key.split_once("::")?;
    let address = rest.split_once('#').map_or(rest, |(address, _)| address);
    let (pattern, pairs) = address.split_once('?')?;
    // The parameters of the path come first, so the first value of a name is the one in the path.
    let value = |name: &str| {
        let mut pairs = pairs.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(other, value)| (decoded(other)? == name).then(|| decoded(value))?)
    };
    let mut path = String::new();
    for segment in pattern.strip_prefix('/')?.split('/') {
        let Some(name) = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) else {
            path.push('/');
            path.push_str(segment);
            continue;
        };
        match name.strip_suffix('*') {
            // The rest of a path may be empty, and has no value then.
            Some(name) => path.extend(value(name).map(|rest| format!("/{rest}"))),
            None => path.push_str(&format!("/{}", value(name.strip_suffix('+').unwrap_or(name))?)),
        }
    }
    Some(if path.is_empty() { "/".to_owned() } else { path })
}

/// Decodes a text as `decodeURIComponent` does; `None` if it is not encoded.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_path_in_every_key_of_the_golden_vectors_is_found() {
        let text = include_str!("../../tests/golden/keys.json");
        let vectors: Value = serde_json::from_str(text).expect("the file is JSON");
        let keys = vectors["facetheory_ts"].as_array().expect("a list");
        assert!(keys.len() > 20);
        for key in keys {
            let cache_key = key["cache_key"].as_str().expect("a text");
            assert_eq!(path_of_key(cache_key).as_deref(), key["path"].as_str(), "{key}");
        }
    }

    #[test]
    fn keys_of_other_forms_have_no_path() {
        for key in [
            "/about",
            "default::www.example.com/posts/{slug}?slug=a",
            "default::/posts/{slug}?other=a",
            "default::/posts/{slug}?slug=%zz",
            "default::/posts",
            "",
        ] {
            assert_eq!(path_of_key(key), None, "{key}");
        }
    }
}
