//! Splits the bytes of a connection into requests, and finds how many of them hyper may read.

use super::chunk::ChunkedBody;
use super::connection_state::Expected;
use super::head::{Framing, Head};
use super::rejection::{BODY_TOO_LARGE, RejectedRequest, Rejection, RequestLimits};

/// Checks the bytes that a client sends. The result does not depend on how they are split into reads.
#[derive(Debug)]
pub(super) struct Scanner {
    limits: RequestLimits,
    /// The last valid `Host` value; empty at first.
    last_host: Vec<u8>,
    part: Part,
}

/// The part of a request that is being read.
#[derive(Debug)]
enum Part {
    Head(Head),
    Sized { left: u64 },
    Chunked(ChunkedBody),
}

impl Default for Part {
    fn default() -> Self {
        Part::Head(Head::default())
    }
}

/// The result of checking some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scanned {
    /// How many of the bytes hyper may read. The rest must be the beginning of the next bytes.
    pub(super) accepted: usize,
    /// How many request heads are among the accepted bytes.
    pub(super) heads: u32,
    pub(super) next: Next,
}

impl Scanned {
    /// The method and path of the request that is rejected, if one is; `bytes` are those that were checked.
    pub(super) fn rejected_request(&self, bytes: &[u8]) -> RejectedRequest {
        match self.next {
            Next::Rejected(_) => RejectedRequest::parse(&bytes[self.accepted..]),
            Next::More | Next::Upgrade | Next::BodyRejected(_) => RejectedRequest::default(),
        }
    }
}

/// The event after the accepted bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More bytes are needed.
    More,
    /// The last head requests a protocol upgrade: the following bytes may not be HTTP.
    Upgrade,
    /// A request that is rejected, and of which nothing has been accepted.
    Rejected(Rejection),
    /// The rest of a body that is rejected after its head was accepted.
    BodyRejected(Rejection),
}

impl Scanner {
    pub(super) fn new(limits: RequestLimits) -> Self {
        Scanner { limits, last_host: Vec::new(), part: Part::default() }
    }

    /// The part of a request that the client has to send next.
    pub(super) fn expected(&self) -> Expected {
        match &self.part {
            Part::Head(head) if head.has_begun() => Expected::Head,
            Part::Head(_) => Expected::Request,
            Part::Sized { .. } | Part::Chunked(_) => Expected::Body,
        }
    }

    /// Checks bytes, which begin with those that were not accepted the last time.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Scanned {
        let mut scanned = Scanned { accepted: 0, heads: 0, next: Next::More };
        // Where the current request begins, if nothing of it was accepted by an earlier call.
        let mut start = None;
        loop {
            let rest = &bytes[scanned.accepted..];
            if rest.is_empty() {
                return scanned;
            }
            let outcome = match &mut self.part {
                Part::Head(head) => {
                    start = Some(scanned.accepted);
                    match head.read(rest, &self.limits, &mut self.last_host) {
                        Ok(None) => return scanned,
                        Ok(Some(parsed)) => self.body(parsed.body).map(|part| {
                            scanned.heads += 1;
                            let next = if parsed.is_upgrade { Next::Upgrade } else { Next::More };
                            (parsed.end, Some((part, next)))
                        }),
                        Err(rejection) => Err(rejection),
                    }
                }
                Part::Sized { left } => {
                    let count = u64::try_from(rest.len()).unwrap_or(u64::MAX).min(*left);
                    *left -= count;
                    let next = (*left == 0).then(|| (Part::default(), Next::More));
                    Ok((usize::try_from(count).unwrap_or(rest.len()), next))
                }
                Part::Chunked(body) => body
                    .read(rest, &self.limits)
                    .map(|(read, has_ended)| (read, has_ended.then(|| (Part::default(), Next::More)))),
            };
            match outcome {
                Ok((read, next)) => {
                    scanned.accepted += read;
                    let Some((part, next)) = next else { return scanned };
                    self.part = part;
                    scanned.next = next;
                    if scanned.next == Next::Upgrade {
                        return scanned;
                    }
                }
                Err(rejection) => return self.rejected(rejection, scanned, start),
            }
        }
    }

    /// The part after a head.
    fn body(&self, framing: Framing) -> Result<Part, Rejection> {
        match framing {
            Framing::None => Ok(Part::default()),
            Framing::Sized(left) if left > self.limits.body_bytes => Err(BODY_TOO_LARGE),
            Framing::Sized(left) => Ok(Part::Sized { left }),
            Framing::Chunked => Ok(Part::Chunked(ChunkedBody::default())),
        }
    }

    fn rejected(&self, rejection: Rejection, mut scanned: Scanned, start: Option<usize>) -> Scanned {
        let Some(start) = start else { return Scanned { next: Next::BodyRejected(rejection), ..scanned } };
        // The head of a rejected body is rejected with it.
        scanned.heads -= u32::from(matches!(self.part, Part::Chunked(_)));
        Scanned { accepted: start, next: Next::Rejected(rejection), ..scanned }
    }
}
