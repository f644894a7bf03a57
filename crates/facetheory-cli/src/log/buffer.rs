//! A buffer of log lines and the thread that writes it, so that requests never wait for a slow terminal or disk.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use metrics::counter;
use parking_lot::{Condvar, Mutex};
use tabletheory::{Clock as _, SystemClock, Timestamp};

use super::timestamp::TimestampText;

/// The most bytes that wait to be written. Further lines are dropped and counted.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// So many bytes are written at once.
const BATCH_BYTES: usize = 64 * 1024;
/// How long fewer bytes are collected after a write. The first line after a pause is written at once.
const COLLECT_TIME: Duration = Duration::from_millis(100);
/// How long a shutdown or a flush waits for lines to be written.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Human { colours: bool },
    Json,
}

/// The running log. Dropping it writes all lines that are in the buffer.
#[derive(Debug)]
pub(super) struct Output {
    lines: Lines,
}

/// The buffer, to which any thread adds lines. Lines are written in the order in which they were added.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<Buffer>);

#[derive(Debug)]
struct Buffer {
    style: Style,
    pending: Mutex<Pending>,
    /// Wakes the writing thread.
    work: Condvar,
    /// Wakes those who wait until lines are written.
    written: Condvar,
}

/// Lines that are not written yet, and what the writing thread and the others tell each other.
#[derive(Debug, Default)]
struct Pending {
    text: Vec<u8>,
    /// How many lines did not fit.
    dropped: u64,
    /// How many bytes were ever added, and how many of these are written.
    added: u64,
    written: u64,
    /// The writing thread waits for the first line.
    is_idle: bool,
    /// Someone waits until the lines are written.
    is_urgent: bool,
    /// No lines follow.
    has_ended: bool,
    /// The writing thread has exited.
    is_closed: bool,
}

impl Output {
    /// Starts the writing thread.
    pub(super) fn start(output: impl Write + Send + 'static, style: Style) -> Result<Self> {
        let (pending, work, written) = (Mutex::default(), Condvar::new(), Condvar::new());
        let lines = Lines(Arc::new(Buffer { style, pending, work, written }));
        let buffer = lines.0.clone();
        let run = move || buffer.run(output);
        std::thread::Builder::new().name("log".into()).spawn(run).context("cannot start the log thread")?;
        Ok(Output { lines })
    }

    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }

    /// Waits until the lines so far are written, for a limited time: an output that nobody reads must not block.
    pub(super) fn flush(&self) {
        let buffer = &self.lines.0;
        let mut pending = buffer.pending.lock();
        let until = pending.added;
        pending.is_urgent = pending.written < until;
        buffer.work.notify_one();
        buffer.written.wait_while_for(&mut pending, |pending| pending.written < until, DRAIN_TIMEOUT);
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let buffer = &self.lines.0;
        let mut pending = buffer.pending.lock();
        pending.has_ended = true;
        buffer.work.notify_one();
        buffer.written.wait_while_for(&mut pending, |pending| !pending.is_closed, DRAIN_TIMEOUT);
    }
}

impl Lines {
    /// Whether lines are JSON.
    pub(super) fn is_json(&self) -> bool {
        self.0.style == Style::Json
    }

    /// Adds a line. If the buffer is full, the line is dropped and counted.
    pub(super) fn put(&self, line: &[u8]) {
        let mut pending = self.0.pending.lock();
        let before = pending.text.len();
        if before + line.len() > MAX_BYTES {
            pending.dropped += 1;
            return;
        }
        pending.text.extend_from_slice(line);
        pending.added += line.len() as u64;
        let is_batch = before < BATCH_BYTES && pending.text.len() >= BATCH_BYTES;
        let wakes = std::mem::take(&mut pending.is_idle) || is_batch;
        drop(pending);
        if wakes {
            self.0.work.notify_one();
        }
    }
}

/// `tracing_subscriber` writes each event with one call.
impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match self.0.style {
            Style::Json => self.put(event),
            Style::Human { colours } => {
                let mut line = Vec::with_capacity(event.len());
                add_escaped(event, colours, &mut line);
                self.put(&line);
            }
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Buffer {
    /// Writes lines until the end.
    fn run(&self, mut output: impl Write) {
        let mut text = Vec::new();
        let mut has_ended = false;
        while !has_ended {
            let added;
            (added, has_ended) = self.take(&mut text);
            // An error cannot be reported anywhere.
            drop(output.write_all(&text).and_then(|()| output.flush()));
            text.clear();
            // The memory that a burst needed is released.
            text.shrink_to(2 * BATCH_BYTES);
            let mut pending = self.pending.lock();
            pending.written = added;
            pending.is_closed = has_ended;
            self.written.notify_all();
        }
    }

    /// Waits for lines, and moves them to an empty text. Returns how many bytes were ever added, and whether no lines follow.
    fn take(&self, text: &mut Vec<u8>) -> (u64, bool) {
        let mut pending = self.pending.lock();
        // After a write, lines are collected for a moment, which saves writes if there are many of them.
        let collects = |pending: &mut Pending| {
            pending.text.len() < BATCH_BYTES && !pending.is_urgent && !pending.has_ended
        };
        if pending.written > 0 {
            self.work.wait_while_for(&mut pending, collects, COLLECT_TIME);
        }
        while pending.text.is_empty() && !pending.has_ended {
            (pending.is_idle, pending.is_urgent) = (true, false);
            self.work.wait(&mut pending);
        }
        (pending.is_idle, pending.is_urgent) = (false, false);
        std::mem::swap(text, &mut pending.text);
        let dropped = std::mem::take(&mut pending.dropped);
        let result = (pending.added, pending.has_ended);
        drop(pending);
        if dropped > 0 {
            counter!("facetheory_log_dropped_lines_total").increment(dropped);
            add_loss(dropped, self.style, SystemClock.now(), text);
        }
        result
    }
}

fn add_loss(lost: u64, style: Style, now: Timestamp, text: &mut Vec<u8>) {
    let mut time = TimestampText::default();
    let time = time.format(now);
    let line = match style {
        Style::Json => format!(
            "{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"log lines dropped: the output is too slow\",\"lines\":{lost}}}\n"
        ),
        Style::Human { .. } => format!("{time}  WARN {lost} log lines dropped: the output is too slow\n"),
    };
    text.extend_from_slice(line.as_bytes());
}

/// Appends an event as one line, with control characters escaped. With colours, ESC is ours: `tracing_subscriber` escapes
/// those in field values.
fn add_escaped(event: &[u8], colours: bool, text: &mut Vec<u8>) {
    let event = event.strip_suffix(b"\n").unwrap_or(event);
    for c in String::from_utf8_lossy(event).chars() {
        if c.is_control() && !(colours && c == '\u{1b}') {
            text.extend(c.escape_default().map(|c| u8::try_from(c).unwrap_or(b'?')));
        } else {
            text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const HUMAN: Style = Style::Human { colours: false };

    /// An output that tells of each write, and blocks it until it is released.
    struct Blocked {
        entered: Sender<()>,
        released: Receiver<()>,
        written: Written,
    }

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.entered.send(());
            let _ = self.released.recv();
            self.written.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The bytes that were written.
    type Written = Arc<Mutex<Vec<u8>>>;

    /// A log whose output blocks, and the ends of the channels of that output.
    fn blocked() -> (Output, Receiver<()>, Sender<()>, Written) {
        let ((entered, is_blocked), (release, released)) = (channel(), channel());
        let written = Arc::new(Mutex::new(Vec::new()));
        let output = Blocked { entered, released, written: written.clone() };
        (Output::start(output, HUMAN).expect("a thread"), is_blocked, release, written)
    }

    #[test]
    fn a_blocked_output_blocks_no_sender_and_dropped_lines_are_reported() {
        const LINE: &[u8; 16] = b"fifteen letters\n";
        let (output, is_blocked, release, written) = blocked();
        let lines = output.lines();
        lines.put(b"first\n");
        is_blocked.recv().expect("the first write has begun");
        for _ in 0..MAX_BYTES / LINE.len() + 3 {
            lines.put(LINE);
        }
        drop(release);
        drop(output);
        let written = String::from_utf8(written.lock().clone()).expect("a text");
        assert!(written.starts_with("first\nfifteen letters\n"), "{}", &written[..20]);
        assert!(written.contains(" WARN 3 log lines dropped"));
        assert_eq!(written.matches("fifteen").count(), MAX_BYTES / LINE.len());
    }

    #[test]
    fn a_flush_returns_once_the_lines_before_it_are_written() {
        let (output, _, release, written) = blocked();
        drop(release);
        output.lines().put(b"first\n");
        output.flush();
        assert_eq!(*written.lock(), b"first\n");
        output.lines().put(b"second\n");
        output.flush();
        assert_eq!(*written.lock(), b"first\nsecond\n");
    }

    #[test]
    fn the_first_line_is_written_at_once_and_more_lines_with_one_write() {
        let (output, is_writing, release, written) = blocked();
        let lines = output.lines();
        // Nothing but the line wakes the thread.
        lines.put(b"0\n");
        is_writing.recv().expect("a write");
        for number in 1..1000 {
            lines.put(format!("{number}\n").as_bytes());
        }
        release.send(()).expect("a write in progress");
        is_writing.recv().expect("a second write");
        drop(release);
        drop(output);
        assert!(is_writing.recv().is_err(), "two writes are enough");
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(*written.lock(), expected.as_bytes(), "in order");
    }

    #[test]
    fn lines_of_all_threads_are_written_before_the_end() {
        let (output, _, release, written) = blocked();
        drop(release);
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let lines = output.lines();
                std::thread::spawn(move || {
                    (0..10_000).for_each(|number| lines.put(format!("{thread} {number}\n").as_bytes()));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        drop(output);
        let written = String::from_utf8(written.lock().clone()).expect("a text");
        for thread in 0..4 {
            let own = written.lines().filter_map(|line| line.strip_prefix(&format!("{thread} ")));
            assert!(own.eq((0..10_000).map(|number| number.to_string())), "thread {thread}");
        }
    }

    #[test]
    fn control_characters_in_an_event_are_escaped() {
        let mut text = Vec::new();
        add_escaped(b"a page\nWARN forged \x1b[31m\r\x00\xff\n", false, &mut text);
        assert_eq!(
            String::from_utf8(text).expect("a text"),
            "a page\\nWARN forged \\u{1b}[31m\\r\\u{0}\u{fffd}\n"
        );
    }
}
