//! The requests of a connection, one after the other: which of the bytes that have come may be passed on.

use super::chunk::{BODY_TOO_LARGE, Chunks};
use super::head::{Framing, Head};
use super::limits::RequestLimits;
use super::rejected_request::RejectedRequest;
use super::rejection::Rejection;

/// Reads what a client sends, with no opinion about how it was cut in pieces.
#[derive(Debug)]
pub(super) struct Scanner {
    limits: RequestLimits,
    /// The host that was asked for last; empty before.
    host: Vec<u8>,
    within: Within,
}

#[derive(Debug)]
enum Within {
    Head(Head),
    Sized { left: u64 },
    Chunked(Chunks),
}

/// What came of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scanned {
    /// How many of them may be passed on. The others have to be the beginning of the next bytes.
    pub(super) passed: usize,
    /// How many heads are among those.
    pub(super) heads: u32,
    pub(super) then: Then,
}

impl Scanned {
    /// What was asked for by the request that is refused, if one is; of the bytes that this came of.
    pub(super) fn rejected_request(&self, bytes: &[u8]) -> RejectedRequest {
        match self.then {
            Then::Refused(_) => RejectedRequest::of(&bytes[self.passed..]),
            Then::More | Then::Upgrade | Then::Broken(_) => RejectedRequest::default(),
        }
    }
}

/// What comes after the bytes that may be passed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// More has to come.
    More,
    /// The last head asks for another protocol: what comes next is not necessarily HTTP.
    Upgrade,
    /// A request that is refused, and of which nothing has been passed on.
    Refused(Rejection),
    /// The rest of a body that is refused, but whose head was passed on before.
    Broken(Rejection),
}

/// Where the bytes have ended, so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    Between,
    Head,
    Body,
}

impl Scanner {
    /// A connection of which nothing has been read.
    pub(super) fn new(limits: RequestLimits) -> Self {
        Scanner { limits, host: Vec::new(), within: Within::Head(Head::default()) }
    }

    /// Where the bytes have ended, so far.
    pub(super) fn pause(&self) -> Pause {
        match &self.within {
            Within::Head(head) if head.has_begun() => Pause::Head,
            Within::Head(_) => Pause::Between,
            Within::Sized { .. } | Within::Chunked(_) => Pause::Body,
        }
    }

    /// Reads on. The bytes begin with those that were not passed on the last time.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Scanned {
        let mut scanned = Scanned { passed: 0, heads: 0, then: Then::More };
        // Where the request begins that is being read, if nothing of it has been passed on.
        let mut start = None;
        loop {
            let rest = &bytes[scanned.passed..];
            if rest.is_empty() {
                return scanned;
            }
            let outcome = match &mut self.within {
                Within::Head(head) => {
                    start = Some(scanned.passed);
                    match head.read(rest, &self.limits, &mut self.host) {
                        Ok(None) => return scanned,
                        Ok(Some(whole)) => self.body(whole.body).map(|within| {
                            scanned.heads += 1;
                            let then = if whole.is_upgrade { Then::Upgrade } else { Then::More };
                            (whole.end, Some((within, then)))
                        }),
                        Err(rejection) => Err(rejection),
                    }
                }
                Within::Sized { left } => {
                    let here = u64::try_from(rest.len()).unwrap_or(u64::MAX).min(*left);
                    *left -= here;
                    let next = (*left == 0).then(|| (Within::Head(Head::default()), Then::More));
                    Ok((usize::try_from(here).unwrap_or(rest.len()), next))
                }
                Within::Chunked(chunks) => chunks.read(rest, &self.limits).map(|(read, has_ended)| {
                    (read, has_ended.then(|| (Within::Head(Head::default()), Then::More)))
                }),
            };
            match outcome {
                Ok((read, next)) => {
                    scanned.passed += read;
                    let Some((within, then)) = next else { return scanned };
                    self.within = within;
                    scanned.then = then;
                    if scanned.then == Then::Upgrade {
                        return scanned;
                    }
                }
                Err(rejection) => return self.refused(rejection, scanned, start),
            }
        }
    }

    /// What follows a head.
    fn body(&self, framing: Framing) -> Result<Within, Rejection> {
        match framing {
            Framing::None => Ok(Within::Head(Head::default())),
            Framing::Sized(left) if left > self.limits.body_bytes => Err(BODY_TOO_LARGE),
            Framing::Sized(left) => Ok(Within::Sized { left }),
            Framing::Chunked => Ok(Within::Chunked(Chunks::new())),
        }
    }

    fn refused(&self, rejection: Rejection, mut scanned: Scanned, start: Option<usize>) -> Scanned {
        let Some(start) = start else { return Scanned { then: Then::Broken(rejection), ..scanned } };
        // A head that was found good is taken back with its body.
        scanned.heads -= u32::from(matches!(self.within, Within::Chunked(_)));
        Scanned { passed: start, then: Then::Refused(rejection), ..scanned }
    }
}
