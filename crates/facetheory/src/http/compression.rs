//! Content codings: negotiation with `Accept-Encoding` (RFC 9110 §12.5.3).

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};

pub(crate) use crate::engine::Coding;

impl Coding {
    /// All codings, in the cache's order of preference.
    pub(crate) const ALL: [Coding; 4] = [Coding::Brotli, Coding::Zstd, Coding::Gzip, Coding::Identity];

    /// The value of `Content-Encoding`, or `None` if there is no such header.
    pub(crate) const fn as_str(self) -> Option<&'static str> {
        match self {
            Coding::Identity => None,
            Coding::Brotli => Some("br"),
            Coding::Zstd => Some("zstd"),
            Coding::Gzip => Some("gzip"),
        }
    }

    /// The suffix of entity tags in this coding, so that no two codings share one.
    pub(crate) const fn etag_suffix(self) -> &'static str {
        match self {
            Coding::Identity => "",
            Coding::Brotli => "-br",
            Coding::Zstd => "-zstd",
            Coding::Gzip => "-gzip",
        }
    }

    fn of_name(name: &str) -> Option<Coding> {
        let name = if name.eq_ignore_ascii_case("x-gzip") { "gzip" } else { name };
        let is_named = |coding: &Coding| coding.as_str().unwrap_or("identity").eq_ignore_ascii_case(name);
        Coding::ALL.into_iter().find(is_named)
    }
}

/// Chooses the coding that a client prefers among the available ones.
///
/// A client without preferences, or that accepts none of them, gets the uncompressed page. Between equal weights, the cache's
/// own order decides.
pub(crate) fn choose(headers: &HeaderMap, is_available: impl Fn(Coding) -> bool) -> Coding {
    let accepted = AcceptedCodings::of(headers);
    let mut best = (Coding::Identity, accepted.weight(Coding::Identity));
    // In reverse order, so that the most preferred one wins between equal weights.
    for coding in Coding::ALL.into_iter().rev().filter(|coding| is_available(*coding)) {
        let weight = accepted.weight(coding);
        if weight > 0 && weight >= best.1 {
            best = (coding, weight);
        }
    }
    best.0
}

/// Whether a client prefers a compressed page.
pub(crate) fn accepts_compressed(headers: &HeaderMap) -> bool {
    choose(headers, |_| true) != Coding::Identity
}

/// The weights of `Accept-Encoding`, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AcceptedCodings {
    named: [Option<u16>; 4],
    others: Option<u16>,
}

/// The most codings of a request that are parsed; fewer than ten are registered.
const MAX_CODINGS: usize = 64;

impl AcceptedCodings {
    fn of(headers: &HeaderMap) -> Self {
        let mut accepted = AcceptedCodings::default();
        let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
        for part in lines.flat_map(|line| line.split(',')).take(MAX_CODINGS) {
            let (name, parameters) = part.split_once(';').unwrap_or((part, ""));
            // A coding with an invalid weight is ignored.
            let Some(weight) = weight_of(parameters) else { continue };
            let entry = match name.trim() {
                "*" => &mut accepted.others,
                name => match Coding::of_name(name) {
                    Some(coding) => &mut accepted.named[coding as usize],
                    None => continue,
                },
            };
            // The lower of two weights counts.
            *entry = Some(entry.map_or(weight, |known| known.min(weight)));
        }
        accepted
    }

    fn weight(&self, coding: Coding) -> u16 {
        match (self.named[coding as usize], coding) {
            (Some(weight), _) => weight,
            // Acceptable unless it is excluded, but never preferred.
            (None, Coding::Identity) => self.others.map_or(1, |others| others.min(1)),
            (None, _) => self.others.unwrap_or(0),
        }
    }
}

/// Returns the weight among the parameters of a coding, in thousandths, or `None` if it is invalid.
fn weight_of(parameters: &str) -> Option<u16> {
    let mut parameters = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let weight = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    weight.map_or(Some(1000), |(_, value)| thousandths(value.trim()))
}

/// Parses `0` or `1`, with up to three digits after a point.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_fraction = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !is_fraction || !matches!(whole, "0" | "1") {
        return None;
    }
    let digits = whole.bytes().chain(fraction.bytes()).chain([b'0'; 3]).take(4);
    let weight = digits.fold(0, |weight, digit| weight * 10 + u16::from(digit - b'0'));
    (weight <= 1000).then_some(weight)
}

/// Whether a response has a content coding.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn coding_for(lines: &[&str]) -> Coding {
        let value = |line: &&str| HeaderValue::from_bytes(line.as_bytes()).expect("a header value");
        choose(&lines.iter().map(|line| (ACCEPT_ENCODING, value(line))).collect(), |_| true)
    }

    #[test]
    fn a_client_gets_the_coding_that_it_prefers() {
        for (line, expected) in [
            ("", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("GZIP", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("gzip, deflate, br, zstd", Coding::Brotli),
            ("gzip, zstd", Coding::Zstd),
            ("gzip;q=1.0, br;q=0.9", Coding::Gzip),
            ("br;q=0.5, zstd;q=0.5, gzip;q=0.5", Coding::Brotli),
            ("br;q=0.001", Coding::Brotli),
            ("br;q=0", Coding::Identity),
            ("br;q=0, gzip", Coding::Gzip),
            ("*", Coding::Brotli),
            ("*;q=0.5, br;q=0", Coding::Zstd),
            ("*;q=0", Coding::Identity),
            ("identity", Coding::Identity),
            ("identity, gzip;q=0.5", Coding::Identity),
            ("identity;q=0.5, gzip;q=0.5", Coding::Gzip),
            ("identity;q=0, gzip;q=0.1", Coding::Gzip),
            ("identity;q=0", Coding::Identity),
            ("compress, deflate", Coding::Identity),
            ("gzip;Q=0", Coding::Identity),
            ("gzip; q = 1", Coding::Gzip),
            ("gzip;level=9;q=0.5", Coding::Gzip),
            ("gzip;q=2", Coding::Identity),
            ("gzip;q=-1", Coding::Identity),
            ("gzip;q=1.001", Coding::Identity),
            ("gzip;q=0.1234", Coding::Identity),
            ("gzip;q=", Coding::Identity),
            ("gzip;q=x, br", Coding::Brotli),
            ("gzip;q", Coding::Gzip),
            ("gzip, gzip;q=0", Coding::Identity),
            (",,;;,q=1,gzip", Coding::Gzip),
            ("gzip br", Coding::Identity),
        ] {
            assert_eq!(coding_for(&[line]), expected, "{line}");
        }
        assert_eq!(coding_for(&[]), Coding::Identity);
        assert_eq!(coding_for(&["gzip", "br"]), Coding::Brotli, "lines accumulate");
    }

    #[test]
    fn only_available_codings_are_chosen() {
        let headers: HeaderMap =
            [(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip;q=0.5"))].into_iter().collect();
        assert_eq!(choose(&headers, |coding| coding == Coding::Gzip), Coding::Gzip);
        assert_eq!(choose(&headers, |_| false), Coding::Identity);
    }

    #[test]
    fn a_coded_response_is_detected() {
        let coded = |value: &'static str| {
            is_coded(&[(CONTENT_ENCODING, HeaderValue::from_static(value))].into_iter().collect())
        };
        assert!(coded("gzip") && coded("") && coded("identity, br"));
        assert!(!coded(" Identity") && !is_coded(&HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn no_client_gets_a_coding_that_it_did_not_name(line in "[a-z*;=,q01. -]{0,40}") {
            let coding = coding_for(&[&line]);
            let named = coding.as_str().is_none_or(|name| line.contains(name) || line.contains('*'));
            prop_assert!(named, "{} for {}", coding.etag_suffix(), line);
        }

        #[test]
        fn well_formed_weights_select_what_a_naive_implementation_selects(
            weights in proptest::collection::vec(proptest::option::of(0u16..=1000), 4),
        ) {
            let names = ["br", "zstd", "gzip", "identity"];
            let codings: Vec<String> = names.iter().zip(&weights)
                .filter_map(|(name, weight)| weight.map(|weight| format!("{name};q={}.{:03}", weight / 1000, weight % 1000)))
                .collect();
            // The first of the heaviest in our order. A coding that is not named weighs nothing, and identity a little more.
            let weight = |index: usize| u32::from(weights[index].unwrap_or_default()) * 2
                + u32::from(index == 3 && weights[index].is_none());
            let heaviest = (0..4).map(weight).max().unwrap_or_default();
            let expected = match (0..4).find(|index| weight(*index) == heaviest) {
                Some(index) if heaviest > 0 => Coding::ALL[index],
                _ => Coding::Identity,
            };
            prop_assert_eq!(coding_for(&[&codings.join(", ")]), expected);
        }
    }
}
