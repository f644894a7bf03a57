//! Minimizes a failing case.

use std::time::Duration;

use tokio::time::Instant;

use crate::Case;
use crate::campaign::Campaign;
use crate::stream;

/// How long smaller cases are tried.
const TIME: Duration = Duration::from_secs(30);

/// The report of a case that fails alone, with its minimized bytes; `None` if it passes.
pub(crate) fn report(seed: u64, number: u64) -> Option<String> {
    let case = Case::of(seed, number);
    let violations = alone(&mut None, &case)?;
    let mut campaign = None;
    let smallest = smallest(case.bytes.clone(), |bytes| {
        let case = Case::plain(bytes.to_vec());
        let is_clear = !case.is_http2() || stream::expected_requests(bytes).is_some();
        is_clear && alone(&mut campaign, &case).is_some()
    });
    Some(format!(
        "case {number} of seed {seed} ({}; again: scripts/fuzz --seed {seed} --case {number})\n{}\nall bytes: \
         {}\nenough of them: {}",
        if case.is_http2() { "HTTP/2" } else { "HTTP/1" },
        violations.join("\n"),
        case.bytes.escape_ascii(),
        smallest.escape_ascii()
    ))
}

/// The violations of a case at a new gateway.
fn alone(campaign: &mut Option<Campaign>, case: &Case) -> Option<Vec<String>> {
    let violations = campaign.get_or_insert_with(|| Campaign::start(0)).try_alone(case);
    if violations.is_empty() {
        return None;
    }
    *campaign = None;
    Some(violations)
}

/// Removes pieces of decreasing size as long as the case still fails.
fn smallest(mut bytes: Vec<u8>, mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let (mut piece, start) = (bytes.len() / 2, Instant::now());
    while piece > 0 {
        let mut at = 0;
        while at < bytes.len() {
            if start.elapsed() > TIME {
                return bytes;
            }
            let end = (at + piece).min(bytes.len());
            let fewer = [&bytes[..at], &bytes[end..]].concat();
            if fails(&fewer) {
                bytes = fewer;
            } else {
                at = end;
            }
        }
        piece /= 2;
    }
    bytes
}

#[test]
fn unneeded_bytes_are_removed() {
    let fails = |bytes: &[u8]| bytes.contains(&b'x') && bytes.contains(&b'y');
    assert_eq!(smallest(b"some x and some more, and y".to_vec(), fails), b"xy");
}
