//! The idle and write timeouts of HTTP/2 connections and tunnels: is anything happening, and does the client read?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use tokio_util::io::InspectWriter;

use super::{ClientTimeouts, MinRate};

/// A slow client may leave a response unread for this many write timeouts while other responses make progress. An unread
/// response holds a connection to the origin.
const MAX_WRITE_TIMEOUTS: u32 = 5;

/// The activity of one connection.
#[derive(Debug)]
pub(crate) struct IdleTracker {
    start: Instant,
    /// The number of responses in progress.
    responses: AtomicUsize,
    /// The number of responses in progress that wait for the client to read.
    unread: AtomicUsize,
    /// When a response last began, ended or went on, in milliseconds since the start.
    last_activity: AtomicU64,
    /// When the client last read something, in milliseconds since the start.
    last_read: AtomicU64,
    /// The rate at which the client reads all responses together.
    rate: Mutex<ReadRate>,
}

/// How far a client is behind the minimum rate.
#[derive(Debug)]
struct ReadRate {
    min: MinRate,
    /// How much longer the client may read nothing.
    time_left: Duration,
    /// The time until which the client's pauses are counted, since the start.
    counted_until: Duration,
}

/// A response in progress.
#[derive(Debug)]
pub(crate) struct TrackedResponse {
    tracker: Arc<IdleTracker>,
    is_unread: AtomicBool,
}

impl IdleTracker {
    /// A tracker without a minimum rate.
    pub(crate) fn new() -> Arc<Self> {
        IdleTracker::with_min_rate(MinRate::none(Duration::MAX))
    }

    pub(crate) fn with_min_rate(min: MinRate) -> Arc<Self> {
        let rate = ReadRate { min, time_left: min.grace, counted_until: Duration::ZERO };
        Arc::new(IdleTracker {
            rate: Mutex::new(rate),
            start: Instant::now(),
            responses: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
            last_activity: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
        })
    }

    /// Counts a response until the returned value is dropped.
    pub(crate) fn begin_response(self: &Arc<Self>) -> TrackedResponse {
        self.count_read(0);
        self.responses.fetch_add(1, Relaxed);
        self.touch();
        TrackedResponse { tracker: self.clone(), is_unread: AtomicBool::new(false) }
    }

    /// Whether the connection is to be closed: it is idle, or its client is too slow.
    pub(crate) fn is_overdue(&self, timeouts: &ClientTimeouts) -> bool {
        self.is_idle(timeouts.idle)
            || self.client_is_slow(timeouts.write.grace)
            || self.count_read(0).is_zero()
    }

    /// Counts the time until now, and then bytes that the client has read. Returns how much longer it may read nothing. Only
    /// time in which a response waits for the client counts: in full if all do, and else as [`MAX_WRITE_TIMEOUTS`] says.
    fn count_read(&self, bytes: u64) -> Duration {
        let mut rate = self.rate.lock();
        let now = self.start.elapsed();
        let passed = now.saturating_sub(std::mem::replace(&mut rate.counted_until, now));
        let waited = match self.unread.load(Relaxed) {
            0 => Duration::ZERO,
            unread if unread == self.responses.load(Relaxed) => passed,
            _ => passed / MAX_WRITE_TIMEOUTS,
        };
        rate.time_left = match rate.min.bytes_per_second {
            // `client_is_slow` limits the pauses.
            0 => Duration::MAX,
            _ => rate.min.time_left(rate.time_left, waited, bytes),
        };
        rate.time_left
    }

    /// Whether there has been no response for so long.
    fn is_idle(&self, limit: Duration) -> bool {
        self.responses.load(Relaxed) == 0 && self.since(&self.last_activity) >= limit
    }

    /// Whether the write timeout has passed. A response that waits for the origin does not count as unread, but while one
    /// waits, another response may not stay unread forever.
    fn client_is_slow(&self, limit: Duration) -> bool {
        let unread = self.unread.load(Relaxed);
        let all_unread = unread == self.responses.load(Relaxed);
        unread > 0
            && ((all_unread && self.since(&self.last_activity) >= limit)
                || self.since(&self.last_read) >= limit.saturating_mul(MAX_WRITE_TIMEOUTS))
    }

    /// Waits until there has been no activity for so long.
    pub(crate) async fn idle(&self, limit: Duration) {
        while !self.is_idle(limit) {
            let last_activity = Duration::from_millis(self.last_activity.load(Relaxed));
            tokio::time::sleep_until(self.start + last_activity + limit).await;
        }
    }

    /// There is activity.
    pub(crate) fn touch(&self) {
        self.last_activity.store(self.now(), Relaxed);
    }

    /// The client reads something.
    fn client_reads(&self, bytes: u64) {
        self.count_read(bytes);
        let now = self.now();
        self.last_activity.store(now, Relaxed);
        self.last_read.store(now, Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn since(&self, millis: &AtomicU64) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(millis.load(Relaxed)))
    }
}

impl TrackedResponse {
    /// The body was polled, so the client has read everything before. If the body was ready, with data or its end, the
    /// client has yet to read that; if not, the origin has yet to send something.
    pub(crate) fn polled(&self, is_ready: bool) {
        self.tracker.client_reads(0);
        self.set_unread(is_ready);
    }

    fn set_unread(&self, is_unread: bool) {
        match (self.is_unread.swap(is_unread, Relaxed), is_unread) {
            (false, true) => self.tracker.unread.fetch_add(1, Relaxed),
            (true, false) => self.tracker.unread.fetch_sub(1, Relaxed),
            (true, true) | (false, false) => return,
        };
    }
}

impl Drop for TrackedResponse {
    fn drop(&mut self) {
        self.tracker.count_read(0);
        self.tracker.touch();
        self.set_unread(false);
        self.tracker.responses.fetch_sub(1, Relaxed);
    }
}

/// Wraps an HTTP/2 connection. hyper accepts a whole page at once, so writes show whether the client still reads. Only
/// data counts: a client can cause other frames to be written without end.
pub(crate) fn track_h2_writes<IO: AsyncWrite>(
    io: IO,
    tracker: Arc<IdleTracker>,
) -> InspectWriter<IO, impl FnMut(&[u8]) + Send> {
    let mut frames = H2Frames::default();
    InspectWriter::new(io, move |bytes: &[u8]| {
        let data = frames.data_in(bytes);
        if data > 0 {
            tracker.client_reads(data as u64);
        }
    })
}

/// The size of a frame header: payload length, type, flags and stream.
const FRAME_HEADER_BYTES: usize = 9;
/// The type of a frame with body data.
const DATA: u8 = 0;

/// The position in a sequence of frames that is written in pieces.
#[derive(Debug, Default)]
struct H2Frames {
    head: [u8; FRAME_HEADER_BYTES],
    /// How many bytes of the frame header are known.
    begun: usize,
    /// How many bytes of the payload follow.
    left: usize,
}

impl H2Frames {
    /// Moves on by these bytes. Returns how many of them are body data.
    fn data_in(&mut self, mut bytes: &[u8]) -> usize {
        let mut data = 0;
        while !bytes.is_empty() {
            let wanted =
                if self.begun < FRAME_HEADER_BYTES { FRAME_HEADER_BYTES - self.begun } else { self.left };
            let (here, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.begun < FRAME_HEADER_BYTES {
                self.head[self.begun..][..here.len()].copy_from_slice(here);
                self.begun += here.len();
                let [high, middle, low, ..] = self.head;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
            } else {
                data += if self.head[3] == DATA { here.len() } else { 0 };
                self.left -= here.len();
            }
            if self.begun == FRAME_HEADER_BYTES && self.left == 0 {
                self.begun = 0;
            }
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);
    const TIMEOUTS: ClientTimeouts =
        ClientTimeouts { head: LIMIT, idle: LIMIT, body: LIMIT, write: MinRate::none(LIMIT) };

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_responses_is_idle_and_one_that_waits_for_the_origin_is_not() {
        let tracker = IdleTracker::new();
        tokio::time::advance(LIMIT).await;
        assert!(tracker.is_overdue(&TIMEOUTS), "no request yet");
        let response = tracker.begin_response();
        response.polled(false);
        tokio::time::advance(LIMIT * 9).await;
        assert!(!tracker.is_overdue(&TIMEOUTS), "the origin is slow");
        drop(response);
        assert!(!tracker.is_overdue(&TIMEOUTS), "a response has just ended");
        tokio::time::advance(LIMIT).await;
        assert!(tracker.is_overdue(&TIMEOUTS));
    }

    /// A connection with two responses: one that the client does not read, and one that waits for the origin.
    fn with_an_unread_and_a_waiting_response() -> (Arc<IdleTracker>, TrackedResponse, TrackedResponse) {
        let tracker = IdleTracker::new();
        let (unread, waiting) = (tracker.begin_response(), tracker.begin_response());
        unread.polled(true);
        waiting.polled(false);
        (tracker, unread, waiting)
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_response_does_not_end_one_that_waits_for_the_origin() {
        let (tracker, _unread, waiting) = with_an_unread_and_a_waiting_response();
        tokio::time::advance(LIMIT * 4).await;
        assert!(!tracker.is_overdue(&TIMEOUTS), "the origin is slow");
        waiting.polled(true);
        tokio::time::advance(LIMIT).await;
        assert!(tracker.is_overdue(&TIMEOUTS), "the client reads neither");
    }

    #[tokio::test(start_paused = true)]
    async fn other_requests_do_not_let_a_response_stay_unread_forever() {
        let (tracker, _unread, waiting) = with_an_unread_and_a_waiting_response();
        for _ in 0..5 {
            assert!(!tracker.is_overdue(&TIMEOUTS));
            drop(tracker.begin_response());
            tokio::time::advance(LIMIT).await;
        }
        assert!(tracker.is_overdue(&TIMEOUTS), "the client has read nothing of any response");
        waiting.polled(false);
        assert!(!tracker.is_overdue(&TIMEOUTS), "the client reads");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_noticed() {
        let tracker = IdleTracker::new();
        let response = tracker.begin_response();
        response.polled(true);
        tokio::time::advance(LIMIT / 2).await;
        response.polled(true);
        tokio::time::advance(LIMIT / 2).await;
        assert!(!tracker.is_overdue(&TIMEOUTS), "the client reads now and then");
        tokio::time::advance(LIMIT / 2).await;
        assert!(tracker.is_overdue(&TIMEOUTS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_too_slowly_is_noticed_and_one_that_waits_for_the_origin_is_not() {
        let second = Duration::from_secs(1);
        let min = MinRate { bytes_per_second: 1000, grace: LIMIT };
        let timeouts = ClientTimeouts { write: min, ..TIMEOUTS };
        for (bytes, is_unread, is_overdue) in [(1000, true, false), (500, true, true), (1, false, false)] {
            let tracker = IdleTracker::with_min_rate(min);
            let response = tracker.begin_response();
            response.polled(is_unread);
            for _ in 0..30 {
                tokio::time::advance(second).await;
                tracker.client_reads(bytes);
            }
            assert_eq!(tracker.is_overdue(&timeouts), is_overdue, "{bytes} bytes a second, {is_unread}");
        }
    }

    const PING: u8 = 6;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("a short one");
        [&[0, 0, length, kind, 0, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn only_payloads_of_data_frames_are_data_however_they_are_split() {
        let written = [
            frame(PING, b"12345678"),
            frame(DATA, b""),
            frame(DATA, b"piece"),
            frame(PING, b"\0\0\0\0\0\0\0\0"),
            frame(DATA, b"!"),
        ]
        .concat();
        let (before, after) = (17 + 9 + 9, 17);
        let is_data = |at: usize| (before..before + 5).contains(&at) || at == before + 5 + after + 9;
        for step in 1..=written.len() {
            let mut frames = H2Frames::default();
            for (index, piece) in written.chunks(step).enumerate() {
                let positions = (index * step..).take(piece.len());
                assert_eq!(
                    frames.data_in(piece),
                    positions.filter(|at| is_data(*at)).count(),
                    "piece {index} of {step} bytes"
                );
            }
        }
    }
}
