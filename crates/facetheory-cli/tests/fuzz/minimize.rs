//! A case that makes something go wrong, made as small as can be had cheaply.

use std::time::Duration;

use tokio::time::Instant;

use crate::Case;
use crate::campaign::Campaign;
use crate::stream;

/// For how long smaller cases are tried.
const TIME: Duration = Duration::from_secs(30);

/// What comes of a case alone, with the bytes that are needed for it; nothing if all is right.
pub(crate) fn report(seed: u64, number: u64) -> Option<String> {
    let case = Case::of(seed, number);
    let violations = alone(&mut None, &case)?;
    let mut campaign = None;
    let smallest = smallest(case.bytes.clone(), |bytes| {
        let case = Case::plain(bytes.to_vec());
        let is_clear = !case.is_http2() || stream::asked(bytes).is_some();
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

/// What is wrong with a case, at a gateway at which nothing has gone wrong before.
fn alone(campaign: &mut Option<Campaign>, case: &Case) -> Option<Vec<String>> {
    let violations = campaign.get_or_insert_with(|| Campaign::start(0)).try_alone(case);
    if violations.is_empty() {
        return None;
    }
    *campaign = None;
    Some(violations)
}

/// Takes away piece after piece, smaller and smaller ones, as long as it still fails.
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
