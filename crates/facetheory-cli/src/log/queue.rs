//! The way of lines to the output: whoever serves visitors never waits for a slow terminal or a full disk.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result};
use metrics::counter;
use tabletheory::{Clock as _, SystemClock, Timestamp};

use super::access::Visit;

/// The most lines that wait to be written; what comes on top is dropped and counted.
const MOST_LINES: usize = 8192;
/// So many bytes are written at once, where so many wait.
const BATCH_BYTES: usize = 64 * 1024;
/// For how long the end of the process waits for lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);
/// How often it is tried to say that the end has come.
const TRIES: u32 = 20;

/// A line, as far as whoever tells of something has to make it: the rest is done where nobody waits for it.
#[derive(Debug)]
pub(super) enum Line {
    /// What happened, in words.
    Event(Box<[u8]>),
    /// A request.
    Access(Box<Visit>),
    /// There are no more.
    End,
}

/// The lines that wait to be written, and the thread that writes them.
#[derive(Debug)]
pub(super) struct Queue {
    lines: Lines,
    /// Told, by being closed, that all lines are written.
    written: Receiver<()>,
}

/// Where lines are put.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    sender: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    /// Writes lines from now on.
    pub(super) fn start(writer: Writer<impl Write + Send + 'static>) -> Result<Self> {
        let ((sender, receiver), (done, written)) = (sync_channel(MOST_LINES), sync_channel(0));
        let lines = Lines { sender, dropped: Arc::default() };
        let dropped = lines.dropped.clone();
        let work = move || {
            writer.run(&receiver, &dropped);
            drop(done);
        };
        std::thread::Builder::new().name("log".into()).spawn(work).context("the log cannot be started")?;
        Ok(Queue { lines, written })
    }

    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // An output that nobody reads must not keep the process from ending.
        for _ in 0..TRIES {
            if self.lines.sender.try_send(Line::End).is_ok() {
                break;
            }
            std::thread::sleep(LAST_LINES / TRIES);
        }
        let _ = self.written.recv_timeout(LAST_LINES);
    }
}

impl Lines {
    /// Puts a line where it waits to be written; where too many wait, it is dropped and counted.
    pub(super) fn put(&self, line: Line) {
        if self.sender.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One event is written at once, by those who put it into words.
impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(Line::Event(bytes.into()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines, each in its form.
pub(super) struct Writer<W> {
    output: W,
    is_json: bool,
    colours: bool,
}

impl<W: Write> Writer<W> {
    /// For people.
    pub(super) fn human(output: W, colours: bool) -> Self {
        Writer { output, is_json: false, colours }
    }

    /// For programs.
    pub(super) fn json(output: W) -> Self {
        Writer { output, is_json: true, colours: false }
    }

    fn run(mut self, lines: &Receiver<Line>, dropped: &AtomicU64) {
        let mut text = Vec::with_capacity(BATCH_BYTES);
        let mut ended = false;
        while !ended {
            let Ok(first) = lines.recv() else { return };
            let mut next = Some(first);
            while let Some(line) = next.take() {
                ended |= matches!(line, Line::End);
                self.add(line, &mut text);
                if text.len() < BATCH_BYTES && !ended {
                    next = lines.try_recv().ok();
                }
            }
            let lost = dropped.swap(0, Ordering::Relaxed);
            if lost > 0 {
                counter!("facetheory.log.dropped").increment(lost);
                self.add_loss(lost, SystemClock.now(), &mut text);
            }
            // Where nobody reads the log, there is nobody to be told.
            drop(self.output.write_all(&text).and_then(|()| self.output.flush()));
            text.clear();
        }
    }

    fn add(&self, line: Line, text: &mut Vec<u8>) {
        match line {
            Line::Event(words) if self.is_json => text.extend_from_slice(&words),
            Line::Event(words) => add_escaped(&words, self.colours, text),
            Line::Access(visit) if self.is_json => visit.add_json(text),
            Line::Access(visit) => visit.add_human(text),
            Line::End => {}
        }
    }

    fn add_loss(&self, lost: u64, now: Timestamp, text: &mut Vec<u8>) {
        let time = super::access::rfc3339(now);
        let line = if self.is_json {
            format!(
                "{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"lines of the log were dropped\",\"lines\":{lost}}}\n"
            )
        } else {
            format!(
                "{time}  WARN {lost} lines of the log were dropped: they came faster than they could be written\n"
            )
        };
        text.extend_from_slice(line.as_bytes());
    }
}

/// An event is one line, whatever the texts in it contain. The escapes of colours are ours: those in texts are taken care of
/// where events are put into words.
fn add_escaped(words: &[u8], colours: bool, text: &mut Vec<u8>) {
    let words = words.strip_suffix(b"\n").unwrap_or(words);
    for c in String::from_utf8_lossy(words).chars() {
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
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    /// An output that takes nothing until it is let.
    struct Stuck {
        entered: Sender<()>,
        let_go: Receiver<()>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.entered.send(());
            let _ = self.let_go.recv();
            self.taken.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_an_output_that_is_stuck_and_what_is_lost_is_told() {
        let ((entered, is_in), (go, let_go)) = (channel(), channel());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let output = Stuck { entered, let_go, taken: taken.clone() };
        let queue = Queue::start(Writer::human(output, false)).expect("a thread");
        let lines = queue.lines();
        lines.put(Line::Event(b"first\n"[..].into()));
        is_in.recv().expect("the output was reached");
        for number in 0..MOST_LINES + 3 {
            lines.put(Line::Event(format!("{number}\n").into_bytes().into()));
        }
        drop(go);
        drop(queue);
        let taken = String::from_utf8(taken.lock().expect("not poisoned").clone()).expect("a text");
        assert!(taken.starts_with("first\n0\n1\n"), "{}", &taken[..20]);
        assert!(taken.contains(" WARN 3 lines of the log were dropped"));
        assert!(taken.contains(&format!("\n{}\n", MOST_LINES - 1)));
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let mut text = Vec::new();
        add_escaped(b"a page\nWARN forged \x1b[31m\r\x00\xff\n", false, &mut text);
        assert_eq!(
            String::from_utf8(text).expect("a text"),
            "a page\\nWARN forged \\u{1b}[31m\\r\\u{0}\u{fffd}\n"
        );
    }
}
