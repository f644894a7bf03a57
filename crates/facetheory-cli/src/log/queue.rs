//! A queue of log lines and the thread that writes them, so that requests never wait for a slow terminal or disk.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result};
use metrics::counter;
use tabletheory::{Clock as _, SystemClock, Timestamp};

use super::access::AccessEntry;

/// The capacity of the queue. Further lines are dropped and counted.
const MAX_LINES: usize = 8192;
/// How many bytes are collected for one write.
const BATCH_BYTES: usize = 64 * 1024;
/// How long a shutdown or a flush waits for queued lines to be written.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a shutdown tries to put the end marker into a full queue.
const END_ATTEMPTS: u32 = 20;

/// A line before formatting. Requests are formatted by the writing thread.
#[derive(Debug)]
pub(super) enum Line {
    /// An event, already formatted.
    Event(Box<[u8]>),
    /// A request.
    Access(Box<AccessEntry>),
    /// Is dropped once all lines before it are written.
    Flush(SyncSender<()>),
    /// The end marker: the thread exits.
    End,
}

/// The queue and its writing thread.
#[derive(Debug)]
pub(super) struct Queue {
    lines: Lines,
    /// Closed once all lines are written.
    written: Receiver<()>,
}

/// The sending side of the queue.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    sender: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    /// Starts the writing thread.
    pub(super) fn start(writer: Writer<impl Write + Send + 'static>) -> Result<Self> {
        let ((sender, receiver), (done, written)) = (sync_channel(MAX_LINES), sync_channel(0));
        let lines = Lines { sender, dropped: Arc::default() };
        let dropped = lines.dropped.clone();
        let work = move || {
            writer.run(&receiver, &dropped);
            drop(done);
        };
        std::thread::Builder::new().name("log".into()).spawn(work).context("cannot start the log thread")?;
        Ok(Queue { lines, written })
    }

    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }

    /// Waits until the queued lines are written.
    pub(super) fn flush(&self) {
        let (sender, written) = sync_channel(0);
        // If the queue is full, nobody reads the output.
        if self.lines.sender.try_send(Line::Flush(sender)).is_ok() {
            // Nothing is received: the channel is closed, or the time is over.
            let _ = written.recv_timeout(DRAIN_TIMEOUT);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // An output that nobody reads must not block the shutdown.
        for _ in 0..END_ATTEMPTS {
            if self.lines.sender.try_send(Line::End).is_ok() {
                break;
            }
            std::thread::sleep(DRAIN_TIMEOUT / END_ATTEMPTS);
        }
        let _ = self.written.recv_timeout(DRAIN_TIMEOUT);
    }
}

impl Lines {
    /// Queues a line. If the queue is full, the line is dropped and counted.
    pub(super) fn put(&self, line: Line) {
        if self.sender.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// `tracing_subscriber` writes each event with one call.
impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(Line::Event(bytes.into()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats and writes lines.
pub(super) struct Writer<W> {
    output: W,
    is_json: bool,
    colours: bool,
}

impl<W: Write> Writer<W> {
    pub(super) fn human(output: W, colours: bool) -> Self {
        Writer { output, is_json: false, colours }
    }

    pub(super) fn json(output: W) -> Self {
        Writer { output, is_json: true, colours: false }
    }

    fn run(mut self, lines: &Receiver<Line>, dropped: &AtomicU64) {
        let mut text = Vec::with_capacity(BATCH_BYTES);
        let mut flushed = Vec::new();
        let mut ended = false;
        while !ended {
            let Ok(first) = lines.recv() else { return };
            let mut next = Some(first);
            while let Some(line) = next.take() {
                ended |= matches!(line, Line::End);
                match line {
                    Line::Flush(waiting) => flushed.push(waiting),
                    line => self.add(line, &mut text),
                }
                if text.len() < BATCH_BYTES && !ended {
                    next = lines.try_recv().ok();
                }
            }
            let lost = dropped.swap(0, Ordering::Relaxed);
            if lost > 0 {
                counter!("facetheory_log_dropped_lines_total").increment(lost);
                self.add_loss(lost, SystemClock.now(), &mut text);
            }
            // An error cannot be reported anywhere.
            drop(self.output.write_all(&text).and_then(|()| self.output.flush()));
            text.clear();
            flushed.clear();
        }
    }

    fn add(&self, line: Line, text: &mut Vec<u8>) {
        match line {
            Line::Event(event) if self.is_json => text.extend_from_slice(&event),
            Line::Event(event) => add_escaped(&event, self.colours, text),
            Line::Access(entry) if self.is_json => entry.add_json(text),
            Line::Access(entry) => entry.add_human(text),
            Line::Flush(_) | Line::End => {}
        }
    }

    fn add_loss(&self, lost: u64, now: Timestamp, text: &mut Vec<u8>) {
        let time = super::access::rfc3339(now);
        let line = if self.is_json {
            format!(
                "{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"log lines dropped: the output is too slow\",\"lines\":{lost}}}\n"
            )
        } else {
            format!("{time}  WARN {lost} log lines dropped: the output is too slow\n")
        };
        text.extend_from_slice(line.as_bytes());
    }
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
    use std::sync::mpsc::{Sender, channel};

    use parking_lot::Mutex;

    /// An output that blocks until it is released.
    struct Blocked {
        entered: Sender<()>,
        released: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
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

    #[test]
    fn a_blocked_output_blocks_no_sender_and_dropped_lines_are_reported() {
        let ((entered, is_blocked), (release, released)) = (channel(), channel());
        let written = Arc::new(Mutex::new(Vec::new()));
        let output = Blocked { entered, released, written: written.clone() };
        let queue = Queue::start(Writer::human(output, false)).expect("a thread");
        let lines = queue.lines();
        lines.put(Line::Event(b"first\n"[..].into()));
        is_blocked.recv().expect("the first write has begun");
        for number in 0..MAX_LINES + 3 {
            lines.put(Line::Event(format!("{number}\n").into_bytes().into()));
        }
        drop(release);
        drop(queue);
        let written = String::from_utf8(written.lock().clone()).expect("a text");
        assert!(written.starts_with("first\n0\n1\n"), "{}", &written[..20]);
        assert!(written.contains(" WARN 3 log lines dropped"));
        assert!(written.contains(&format!("\n{}\n", MAX_LINES - 1)));
    }

    #[test]
    fn a_flush_returns_once_the_lines_before_it_are_written() {
        let ((entered, _), (release, released)) = (channel(), channel());
        let written = Arc::new(Mutex::new(Vec::new()));
        let output = Blocked { entered, released, written: written.clone() };
        let queue = Queue::start(Writer::human(output, false)).expect("a thread");
        queue.lines().put(Line::Event(b"first\n"[..].into()));
        drop(release);
        queue.flush();
        assert_eq!(*written.lock(), b"first\n");
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
