//! Suggests the key that was meant by an unknown one.

use super::section::{RULE, TOP};

/// Keys of earlier versions: the table, the old key and the new one.
pub(crate) const RENAMED: [(&str, &str, &str); 9] = [
    (TOP, "collection", "gc"),
    ("[store]", "believe", "metadata_max_age"),
    ("[gc]", "every", "interval"),
    ("[limits]", "new_keys_per_second", "new_pages_per_second"),
    (RULE, "swr", "stale_while_revalidate"),
    (RULE, "override", "ignore_origin_cache_control"),
    (RULE, "negative", "negative_ttl"),
    (RULE, "render_deadline", "render_timeout"),
    (RULE, "wait", "wait_timeout"),
];

/// Each key with the words for it in other frameworks and servers, as [`normalized`] writes them. A word may stand for
/// several keys, since it may be written in several tables.
const SYNONYMS: [(&str, &str); 27] = [
    ("isr", "revalidate maxage smaxage ttl cachettl expires expiration interval cache static prerender ssg"),
    ("ignore_origin_cache_control", "ignoreheaders ignorecachecontrol"),
    ("strip_tags", "hidetags"),
    ("stale_while_revalidate", "stale grace"),
    ("blocking", "fallback"),
    ("tags", "tag surrogatekey cachetags"),
    ("query", "allowquery searchparams params"),
    ("headers", "vary varies"),
    ("cookies", "cookie"),
    ("negative_ttl", "notfound"),
    ("versions", "keep history"),
    ("lease", "lock"),
    ("render_timeout", "timeout maxduration"),
    ("timeouts", "timeout"),
    ("early_refresh", "prefetch"),
    ("origin", "upstream backend target proxypass"),
    ("listen", "bind port address"),
    ("hosts", "servername host domains"),
    ("routes", "rules routerules"),
    ("log", "logging"),
    ("log_sample", "sample sampling samplerate"),
    ("certificate", "cert"),
    ("key", "privatekey"),
    ("data", "dir directory"),
    ("bodies", "bucket"),
    ("body_bytes", "clientmaxbodysize"),
    ("limits", "clientmaxbodysize"),
];

/// How similar an unknown key must be to a known one for the known one to be suggested.
const MIN_SIMILARITY: f64 = 0.5;
/// Longer words are not compared: the time grows with the product of both lengths.
const MAX_COMPARED: usize = 64;

/// Returns the new name of a key of an earlier version.
pub(crate) fn renamed(table: &str, key: &str) -> Option<&'static str> {
    let is_old = |(old_table, old, _): &&(&str, &str, &str)| *old_table == table && *old == key;
    RENAMED.iter().find(is_old).map(|(_, _, new)| *new)
}

/// Returns the known key that was probably meant by `word`.
pub(crate) fn suggest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = normalized(word);
    let same = || known.iter().find(|key| normalized(key) == word);
    let synonym = || {
        let is_synonym = |(_, words): &&(&str, &str)| words.split(' ').any(|other| other == word);
        let mut meant = SYNONYMS.iter().filter(is_synonym).map(|(key, _)| key);
        meant.find_map(|meant| known.iter().find(|key| *key == meant))
    };
    let similar = || {
        let similarity = |key: &str| strsim::normalized_damerau_levenshtein(&word, &normalized(key));
        let similar = known.iter().map(|key| (key, similarity(key)));
        let similar = similar.filter(|(_, similarity)| *similarity >= MIN_SIMILARITY);
        similar.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(key, _)| key)
    };
    let near = same().or_else(synonym);
    if word.len() > MAX_COMPARED { near.copied() } else { near.or_else(similar).copied() }
}

/// Writes a word in lower case without separators: `staleIfError`, `stale-if-error` and `stale_if_error` are equal.
fn normalized(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] =
        ["isr", "stale_while_revalidate", "stale_if_error", "blocking", "tags", "render_timeout"];

    #[test]
    fn typing_errors_other_spellings_and_synonyms_are_recognised() {
        for (expected, words) in [
            (Some("isr"), &["irs", "ist", "revalidate", "maxAge", "max-age"][..]),
            (Some("stale_if_error"), &["staleIfError", "stale-if-error", "stale_if_eror"]),
            (Some("blocking"), &["block"]),
            (Some("tags"), &["tagss"]),
            (Some("render_timeout"), &["rendertimeou", "timeout"]),
            (Some("stale_while_revalidate"), &["staleWhileRevalidate"]),
            (None, &["upstream", "something", ""]),
        ] {
            for word in words {
                assert_eq!(suggest(word, &KEYS), expected, "{word}");
            }
        }
        assert_eq!(suggest("timeout", &["origin", "timeouts"]), Some("timeouts"));
        assert_eq!(suggest(&"x".repeat(100_000), &KEYS), None);
    }
}
