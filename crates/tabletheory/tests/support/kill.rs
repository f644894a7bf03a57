//! Kills writers at random moments, and lets a test check what they have written. The test program starts itself as its child
//! processes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use libtest_mimic::Failed;
use tabletheory::{Random as _, SeededRandom};

/// Upper bound of the lines that are read before a kill.
const MAX_LINES: u64 = 25;
/// Upper bound of the busy wait between a line and the kill, in iterations: a few milliseconds.
const MAX_SPINS: u64 = 2_000_000;
/// Environment variable that tells a process that it is a writer, and what it writes.
const WRITER_OF: &str = "TABLETHEORY_WRITER_OF";

/// The number of kills: that of the environment, or the default.
pub(crate) fn kills(default: u32) -> u32 {
    std::env::var("TABLETHEORY_KILLS").map_or(default, |text| text.parse().expect("a number of kills"))
}

/// The task of a child process.
pub(crate) struct Writer {
    /// The name of what it writes.
    pub(crate) subject: String,
    pub(crate) path: PathBuf,
    pub(crate) number: u32,
    /// How many processes were started before it.
    pub(crate) start: u32,
}

impl Writer {
    /// Returns the task of this process, if it is a child process.
    pub(crate) fn of_this_process() -> Option<Writer> {
        let subject = std::env::var(WRITER_OF).ok()?;
        let argument = |index| std::env::args().nth(index).expect("an argument");
        let number = |index| argument(index).parse().expect("a number");
        Some(Writer { subject, path: argument(1).into(), number: number(2), start: number(3) })
    }

    /// Does the work of all workers concurrently, until the process is killed.
    pub(crate) async fn run(workers: impl Iterator<Item = impl Future<Output = ()>>) -> ! {
        let mut workers: Vec<_> = workers.map(Box::pin).collect();
        // One task polls all of them.
        std::future::poll_fn(|context| {
            for worker in &mut workers {
                let _ = worker.as_mut().poll(context);
            }
            std::task::Poll::<()>::Pending
        })
        .await;
        unreachable!("it writes until it is killed")
    }
}

/// Writes a line to the parent: unbuffered and at once, so that the parent never reads half a line.
pub(crate) fn tell_parent(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).expect("the parent reads");
}

/// Records the lines that the writers report, and checks what they have written.
pub(crate) trait Check {
    /// Records a line of a writer.
    fn record(&mut self, line: &str) -> Result<(), Failed>;

    /// Checks what a writer has written that was just killed. Others may continue to write.
    fn check(&mut self, path: &Path, writer: u32) -> Result<(), Failed>;
}

/// Kills and restarts writers, one at a time, and checks what they have written after each kill.
pub(crate) fn kill_writers(
    subject: &str,
    path: &Path,
    writers: u32,
    kills: u32,
    check: &mut impl Check,
) -> Result<(), Failed> {
    let random = SeededRandom::new(u64::from(writers));
    let start = |number, start| Running::start(subject, path, number, start);
    let mut running = (0..writers).map(|number| start(number, number)).collect::<Result<Vec<_>, _>>()?;
    for kill in 0..kills {
        let number = kill % writers;
        let mut killed = running.remove(0);
        for _ in 0..random.next_u64() % MAX_LINES {
            if !killed.read_line(check)? {
                return Err("a writer exited by itself; its output is above".into());
            }
        }
        for spin in 0..random.next_u64() % MAX_SPINS {
            std::hint::black_box(spin);
        }
        killed.kill()?;
        while killed.read_line(check)? {}
        check.check(path, number)?;
        running.push(start(number, writers + kill)?);
    }
    for mut killed in running {
        killed.kill()?;
        while killed.read_line(check)? {}
    }
    (0..writers).try_for_each(|number| check.check(path, number))
}

/// A process that is killed on drop.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(subject: &str, path: &Path, number: u32, start: u32) -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(path)
            .args([number.to_string(), start.to_string()])
            .env(WRITER_OF, subject)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        Ok(Running { child, output })
    }

    /// Records one line; returns false at the end of the output.
    fn read_line(&mut self, check: &mut impl Check) -> Result<bool, Failed> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        check.record(line.trim_end())?;
        Ok(true)
    }

    /// Kills the process. It is an error if it has exited by itself, because of an unexpected result.
    fn kill(&mut self) -> Result<(), Failed> {
        const SIGKILL: i32 = 9;
        self.child.kill()?;
        match self.child.wait()?.signal() {
            Some(SIGKILL) => Ok(()),
            other => {
                Err(format!("a writer exited by itself, with signal {other:?}; its output is above").into())
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.kill();
    }
}
