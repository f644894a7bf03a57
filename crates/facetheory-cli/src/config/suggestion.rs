//! What somebody meant who wrote a key that there is not.

/// Words of other frameworks and servers, as [`plain`] has them, and what they are called here. A word may stand for
/// several keys, since it may be written in several tables.
const FAMILIAR: [(&str, &[&str]); 53] = [
    ("revalidate", &["isr"]),
    ("maxage", &["isr"]),
    ("smaxage", &["isr"]),
    ("ttl", &["isr"]),
    ("cachettl", &["isr"]),
    ("expires", &["isr"]),
    ("expiration", &["isr"]),
    ("interval", &["isr"]),
    ("cache", &["isr"]),
    ("ignoreheaders", &["ignore_origin_cache_control"]),
    ("ignorecachecontrol", &["ignore_origin_cache_control"]),
    ("hidetags", &["strip_tags"]),
    ("static", &["isr"]),
    ("prerender", &["isr"]),
    ("ssg", &["isr"]),
    ("stale", &["stale_while_revalidate"]),
    ("grace", &["stale_while_revalidate"]),
    ("fallback", &["blocking"]),
    ("tag", &["tags"]),
    ("surrogatekey", &["tags"]),
    ("cachetags", &["tags"]),
    ("allowquery", &["query"]),
    ("searchparams", &["query"]),
    ("params", &["query"]),
    ("vary", &["headers"]),
    ("varies", &["headers"]),
    ("cookie", &["cookies"]),
    ("notfound", &["negative_ttl"]),
    ("keep", &["versions"]),
    ("history", &["versions"]),
    ("lock", &["lease"]),
    ("timeout", &["render_timeout", "timeouts"]),
    ("maxduration", &["render_timeout"]),
    ("prefetch", &["early_refresh"]),
    ("upstream", &["origin"]),
    ("backend", &["origin"]),
    ("target", &["origin"]),
    ("proxypass", &["origin"]),
    ("bind", &["listen"]),
    ("port", &["listen"]),
    ("address", &["listen"]),
    ("servername", &["hosts"]),
    ("host", &["hosts"]),
    ("domains", &["hosts"]),
    ("rules", &["routes"]),
    ("routerules", &["routes"]),
    ("logging", &["log"]),
    ("cert", &["certificate"]),
    ("privatekey", &["key"]),
    ("dir", &["data"]),
    ("directory", &["data"]),
    ("bucket", &["bodies"]),
    ("clientmaxbodysize", &["body_bytes", "limits"]),
];

/// How alike two words must be at least for one to be offered for the other.
const ALIKE: f64 = 0.5;

/// The known key that was meant, as far as one can tell.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = plain(word);
    let same = known.iter().find(|key| plain(key) == word);
    let familiar = || {
        let (_, meant) = FAMILIAR.iter().find(|(familiar, _)| *familiar == word)?;
        known.iter().find(|key| meant.contains(key))
    };
    let alike = || {
        let likeness = |key: &str| strsim::normalized_damerau_levenshtein(&word, &plain(key));
        let alike = known.iter().filter(|key| likeness(key) >= ALIKE);
        alike.max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
    };
    // Comparing costs the product of both lengths.
    const LONGEST: usize = 64;
    let near = same.or_else(familiar);
    if word.len() > LONGEST { near.copied() } else { near.or_else(alike).copied() }
}

/// A word in lower case without separators, so that `staleIfError`, `stale-if-error` and `stale_if_error` are one.
fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] =
        ["isr", "stale_while_revalidate", "stale_if_error", "blocking", "tags", "render_timeout"];

    #[test]
    fn a_slip_a_foreign_spelling_and_a_familiar_word_are_understood() {
        for (word, expected) in [
            ("irs", Some("isr")),
            ("ist", Some("isr")),
            ("staleIfError", Some("stale_if_error")),
            ("stale-if-error", Some("stale_if_error")),
            ("stale_if_eror", Some("stale_if_error")),
            ("block", Some("blocking")),
            ("tagss", Some("tags")),
            ("rendertimeou", Some("render_timeout")),
            ("revalidate", Some("isr")),
            ("maxAge", Some("isr")),
            ("max-age", Some("isr")),
            ("staleWhileRevalidate", Some("stale_while_revalidate")),
            ("timeout", Some("render_timeout")),
            ("upstream", None),
            ("something", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &KEYS), expected, "{word}");
        }
        assert_eq!(nearest("timeout", &["origin", "timeouts"]), Some("timeouts"));
        assert_eq!(nearest(&"x".repeat(100_000), &KEYS), None);
    }
}
