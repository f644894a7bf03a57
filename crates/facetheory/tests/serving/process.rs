//! A process of a site, as the test sees it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use libtest_mimic::Failed;

use crate::order::{Order, Reply, Row, Tally, Visits};
use crate::place::Place;

/// Whoever waits for something that must come gives up after this long: it will not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// So long are short leases. They are prolonged three times as often, and a busy machine must not make them end before
/// that.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(8);
/// So long is a store waited for that will be away: for less than the shortest outage.
pub(crate) const SHORT_LIMIT: Duration = Duration::from_secs(3);
/// Each render is a line of this file: which page, and which process.
pub(crate) const RENDERS: &str = "renders.txt";
/// How often the test looks whether something has come about.
const LOOK: Duration = Duration::from_millis(10);

/// A process that is never left behind, whatever becomes of the test.
pub(crate) struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    replies: Receiver<String>,
}

impl Process {
    pub(crate) fn start(place: &Place) -> Result<Process, Failed> {
        Process::start_as(place, "serve")
    }

    /// One whose leases are short: such as another may have to wait for.
    pub(crate) fn with_short_leases(place: &Place) -> Result<Process, Failed> {
        Process::start_as(place, "serve-with-short-leases")
    }

    /// One that notices soon when these stores are away, and waits for the other one for as long as it takes.
    pub(crate) fn start_without(place: &Place, table: bool, bodies: bool) -> Result<Process, Failed> {
        let role = match (table, bodies) {
            (false, false) => "serve",
            (true, false) => "serve-without-table",
            (false, true) => "serve-without-bodies",
            (true, true) => "serve-without-both",
        };
        Process::start_as(place, role)
    }

    fn start_as(place: &Place, role: &str) -> Result<Process, Failed> {
        let mut child = place.command(role)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        let (said, replies) = channel();
        // It ends with the output of the child, or once nobody listens any more.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        let orders = child.stdin.take();
        Ok(Process { child, orders, replies })
    }

    /// As it signs what it renders.
    pub(crate) fn name(&self) -> String {
        self.child.id().to_string()
    }

    /// Lets visitors come, and returns once all of them have begun.
    pub(crate) fn begin(&mut self, visits: &Visits) -> Result<(), Failed> {
        Process::begin_all(std::slice::from_mut(self), visits)
    }

    /// The same for several processes at once.
    pub(crate) fn begin_all(processes: &mut [Process], visits: &Visits) -> Result<(), Failed> {
        for process in &mut *processes {
            process.order(&Order::Visit(visits.clone()))?;
        }
        for process in processes {
            match process.reply()? {
                Reply::Begun => {}
                other => return Err(format!("{other:?} although the visitors have not come").into()),
            }
        }
        Ok(())
    }

    /// What the visitors were given, once all of them were given something.
    pub(crate) fn tally(&mut self) -> Result<Tally, Failed> {
        let mut tally = Tally::default();
        loop {
            match self.reply()? {
                Reply::Given { state, count, text } => {
                    tally.answers.insert((state, text), count);
                }
                Reply::Done { slowest } => return Ok(Tally { slowest, ..tally }),
                other => return Err(format!("{other:?} instead of what visitors were given").into()),
            }
        }
    }

    pub(crate) fn visit(&mut self, visits: &Visits) -> Result<Tally, Failed> {
        self.begin(visits)?;
        self.tally()
    }

    /// What the table has of the first page of a name.
    pub(crate) fn row(&mut self, name: &str) -> Result<Row, Failed> {
        self.order(&Order::Row(name.to_owned()))?;
        match self.reply()? {
            Reply::Row(row) => Ok(row),
            other => Err(format!("{other:?} instead of a row").into()),
        }
    }

    /// Sends a signal, as in `kill -STOP`.
    pub(crate) fn signal(&self, signal: &str) -> Result<(), Failed> {
        let status = Command::new("kill").args([signal, &self.name()]).status()?;
        if status.success() { Ok(()) } else { Err(format!("kill {signal} failed: {status}").into()) }
    }

    /// Lets it end what goes on in the background, and then itself.
    pub(crate) fn end(mut self) -> Result<(), Failed> {
        drop(self.orders.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err("a process failed; what it said is above".into()) }
    }

    fn order(&mut self, order: &Order) -> Result<(), Failed> {
        let orders = self.orders.as_mut().ok_or("it was told to end")?;
        Ok(writeln!(orders, "{order}")?)
    }

    fn reply(&self) -> Result<Reply, Failed> {
        // Visitors have patience for as long, and are given something after it.
        let line = self.replies.recv_timeout(2 * PATIENCE);
        line.map_err(|_| "a process has ended or says nothing any more; why may be above")?.parse()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many renders there were so far.
pub(crate) fn renders(place: &Place) -> usize {
    std::fs::read_to_string(place.directory.join(RENDERS)).map_or(0, |text| text.lines().count())
}

/// Waits until something has come about.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool, Failed>) -> Result<(), Failed> {
    for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
        if is_so()? {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    Err(format!("{what} has not come about within {PATIENCE:?}").into())
}

/// Lets the renders end that wait for this file.
pub(crate) fn release(place: &Place, file: &str) -> Result<(), Failed> {
    Ok(std::fs::write(place.directory.join(file), "")?)
}
