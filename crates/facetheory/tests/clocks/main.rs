//! The engine in several processes whose wall clocks are set forward and back by an hour, on DynamoDB and S3 and on one SQLite
//! file: no acknowledged invalidation of any kind is lost.
//!
//! The test program starts itself as its child processes; an environment variable gives them their role.

mod site;
#[path = "../support/stores.rs"]
mod stores;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, ExitCode, Stdio};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use site::{CONTENT, KINDS};
use stores::{Stores, run_child};
use tabletheory::{Random as _, SeededRandom};

/// How often each kind of invalidation is tried.
const ROUNDS: u64 = 12;
const PROCESSES: usize = 3;
/// The offset of the wall clock of a process, in seconds.
const STEPS: [i64; 3] = [-3600, 0, 3600];
/// How often a page is requested until it is fresh.
const MAX_REQUESTS: usize = 2000;
const PAUSE: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    if let Some((role, stores)) = Stores::for_child() {
        return run_child(site::child(role, stores));
    }
    let mut trials = Vec::new();
    // Without a maximum age, every request reads the table. With one, processes rely on what they know from themselves.
    for role in ["serve-without-max-age", "serve", "serve-with-feed"] {
        trials.push(Trial::test(
            format!("no_step_of_a_clock_loses_an_invalidation_on_sqlite_{role}"),
            move || step_clocks(role, &Stores::on_sqlite()?),
        ));
        trials.push(Trial::test(
            format!("no_step_of_a_clock_loses_an_invalidation_on_servers_{role}"),
            move || {
                let stores = Stores::on_servers()?;
                stores.run("create-table")?;
                step_clocks(role, &stores)
            },
        ));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Invalidates pages by every kind of invalidation, while the clocks of the processes step before every operation.
fn step_clocks(role: &str, stores: &Stores) -> Result<(), Failed> {
    let random = SeededRandom::new(7);
    let pick = |number: usize| usize::try_from(random.next_u64() % number as u64).expect("small");
    let mut processes =
        (0..PROCESSES).map(|_| Process::start(stores, role)).collect::<Result<Vec<_>, _>>()?;
    let is_shared = role == "serve-without-max-age";
    let mut content = 0_u64;
    let write = |content: u64| std::fs::write(stores.directory.join(CONTENT), content.to_string());
    write(content)?;
    for round in 0..ROUNDS {
        for kind in KINDS {
            // Every process has the page, fresh.
            for process in &mut processes {
                process.ask(&format!("step {}", STEPS[pick(3)]))?;
                process.request_until_fresh()?;
            }
            content += 1;
            write(content)?;
            let invalidator = pick(PROCESSES);
            processes[invalidator].ask(&format!("step {}", STEPS[pick(3)]))?;
            processes[invalidator].ask(&format!("invalidate {kind}"))?;
            // From now on, only a page of this content is fresh: at once for the process that has invalidated it, and for
            // all if they read the table for each request.
            let first = pick(PROCESSES);
            let order =
                [invalidator].into_iter().chain((0..PROCESSES).map(|number| (first + number) % PROCESSES));
            for number in order.filter(|number| is_shared || *number == invalidator) {
                processes[number].ask(&format!("step {}", STEPS[pick(3)]))?;
                let response = processes[number].ask("get")?;
                let is_current = response.ends_with(&format!(" {content}"));
                if !is_current && (kind == "hard" || !response.starts_with("stale ")) {
                    let what = format!("{response:?} after the content became {content}");
                    return Err(format!("round {round}, {kind}, process {number}: {what}").into());
                }
            }
            let seen = processes[invalidator].request_until_fresh()?;
            if seen != content {
                return Err(format!("round {round}, {kind}: content {seen} is fresh, not {content}").into());
            }
        }
    }
    Ok(())
}

/// A child process, killed when this is dropped.
struct Process {
    child: Child,
    commands: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl Process {
    fn start(stores: &Stores, role: &str) -> Result<Process, Failed> {
        let mut child = stores.command(role)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let commands = child.stdin.take().ok_or("the child has no input")?;
        let responses = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        Ok(Process { child, commands, responses })
    }

    /// Sends a command, and returns its response.
    fn ask(&mut self, command: &str) -> Result<String, Failed> {
        writeln!(self.commands, "{command}")?;
        let mut line = String::new();
        if self.responses.read_line(&mut line)? == 0 {
            return Err(format!("the process ended during {command:?}; its output is above").into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Requests the page until it is fresh, and returns its content.
    fn request_until_fresh(&mut self) -> Result<u64, Failed> {
        for _ in 0..MAX_REQUESTS {
            let response = self.ask("get")?;
            if let Some(content) = response.strip_prefix("hit ").or(response.strip_prefix("miss ")) {
                return Ok(content.parse()?);
            }
            // Another process may be rendering it.
            std::thread::sleep(PAUSE);
        }
        Err("the page does not get fresh".into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
