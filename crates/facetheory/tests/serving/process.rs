//! A process of a site, as the test controls it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use libtest_mimic::Failed;

use crate::child_protocol::{Burst, ChildCommand, Message, Responses, Row};
use crate::stores::Stores;

/// A test fails if it waits longer than this.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// The duration of short leases. They are refreshed after a third of it, which must not be too soon for a busy machine.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(8);
/// The timeout for a store that will be unreachable, shorter than the shortest outage.
pub(crate) const SHORT_TIMEOUT: Duration = Duration::from_secs(3);
/// In this file each render is a line: the page and the process.
pub(crate) const RENDERS: &str = "renders.txt";
/// The files with this name and a process id have a byte for each finished call of that process to its table.
pub(crate) const TABLE_CALLS: &str = "table-calls";
/// How often the test polls a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A child process, killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    commands: Option<ChildStdin>,
    messages: Receiver<String>,
}

impl Process {
    pub(crate) fn start(stores: &Stores) -> Result<Process, Failed> {
        Process::start_as(stores, "serve")
    }

    /// A process with short leases, for tests in which another process waits for them to expire.
    pub(crate) fn with_short_leases(stores: &Stores) -> Result<Process, Failed> {
        Process::start_as(stores, "serve-with-short-leases")
    }

    /// A process with a single thread, which polls requests in the order in which they are woken.
    pub(crate) fn on_one_thread(stores: &Stores) -> Result<Process, Failed> {
        Process::start_as(stores, "serve-on-one-thread")
    }

    /// A process with a short timeout for the stores that will be unreachable.
    pub(crate) fn start_without(stores: &Stores, table: bool, bodies: bool) -> Result<Process, Failed> {
        let role = match (table, bodies) {
            (false, false) => "serve",
            (true, false) => "serve-without-table",
            (false, true) => "serve-without-bodies",
            (true, true) => "serve-without-both",
        };
        Process::start_as(stores, role)
    }

    fn start_as(stores: &Stores, role: &str) -> Result<Process, Failed> {
        let mut child = stores.command(role)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        let (sender, messages) = channel();
        // Ends with the output of the child, or when the receiver is dropped.
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let commands = child.stdin.take();
        Ok(Process { child, commands, messages })
    }

    /// The process id, which its rendered bodies contain.
    pub(crate) fn name(&self) -> String {
        self.child.id().to_string()
    }

    /// Sends a burst of requests, and returns once all have started.
    pub(crate) fn start_burst(&mut self, burst: &Burst) -> Result<(), Failed> {
        Process::start_bursts(std::slice::from_mut(self), burst)
    }

    /// Sends the same burst to several processes at once.
    pub(crate) fn start_bursts(processes: &mut [Process], burst: &Burst) -> Result<(), Failed> {
        for process in &mut *processes {
            process.send(&ChildCommand::Burst(burst.clone()))?;
        }
        for process in processes {
            match process.receive()? {
                Message::Started => {}
                other => return Err(format!("{other:?} before the requests started").into()),
            }
        }
        Ok(())
    }

    /// Waits for all responses of a burst.
    pub(crate) fn responses(&mut self) -> Result<Responses, Failed> {
        let mut responses = Responses::default();
        loop {
            match self.receive()? {
                Message::Count { state, count, text } => {
                    responses.counts.insert((state, text), count);
                }
                Message::Done { slowest } => return Ok(Responses { slowest, ..responses }),
                other => return Err(format!("{other:?} instead of the responses").into()),
            }
        }
    }

    pub(crate) fn request(&mut self, burst: &Burst) -> Result<Responses, Failed> {
        self.start_burst(burst)?;
        self.responses()
    }

    /// The row of the first page with this name.
    pub(crate) fn row(&mut self, name: &str) -> Result<Row, Failed> {
        self.send(&ChildCommand::Row(name.to_owned()))?;
        match self.receive()? {
            Message::Row(row) => Ok(row),
            other => Err(format!("{other:?} instead of a row").into()),
        }
    }

    /// Sends a signal, as `kill -STOP` does.
    pub(crate) fn signal(&self, signal: &str) -> Result<(), Failed> {
        let status = Command::new("kill").args([signal, &self.name()]).status()?;
        if status.success() { Ok(()) } else { Err(format!("kill {signal} failed: {status}").into()) }
    }

    /// Shuts it down after its background work has finished.
    pub(crate) fn shut_down(mut self) -> Result<(), Failed> {
        drop(self.commands.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err("a process failed; its output is above".into()) }
    }

    fn send(&mut self, command: &ChildCommand) -> Result<(), Failed> {
        let commands = self.commands.as_mut().ok_or("the process was shut down")?;
        Ok(writeln!(commands, "{command}")?)
    }

    fn receive(&self) -> Result<Message, Failed> {
        // Requests time out after `TIMEOUT` and are reported after that.
        let line = self.messages.recv_timeout(2 * TIMEOUT);
        line.map_err(|_| "a process has exited or does not respond; its output is above")?.parse()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number of renders so far.
pub(crate) fn renders(stores: &Stores) -> usize {
    std::fs::read_to_string(stores.directory.join(RENDERS)).map_or(0, |text| text.lines().count())
}

/// The number of calls to its table that a process has finished.
pub(crate) fn table_calls(stores: &Stores, process: &Process) -> u64 {
    let file = stores.directory.join(format!("{TABLE_CALLS}.{}", process.name()));
    std::fs::metadata(file).map_or(0, |file| file.len())
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool, Failed>) -> Result<(), Failed> {
    for _ in 0..TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
        if holds()? {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Err(format!("timed out after {TIMEOUT:?} waiting for {what}").into())
}

/// Lets renders finish that wait for this file.
pub(crate) fn release(stores: &Stores, file: &str) -> Result<(), Failed> {
    Ok(std::fs::write(stores.directory.join(file), "")?)
}
