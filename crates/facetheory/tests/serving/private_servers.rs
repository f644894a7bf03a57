//! Servers of one test alone, which it may freeze and kill: a second installation by `scripts/local-aws`.

use std::ffi::OsStr;
use std::fs::{read, read_dir, read_link, read_to_string, write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Failed;
use tempfile::TempDir;

use crate::process::wait_until;
use crate::stores::Stores;

/// The servers as `scripts/local-aws` names them; their files in its directory start with these names.
const NAMES: [&str; 2] = [TABLE, BODIES];
pub(crate) const TABLE: &str = "dynamodb";
pub(crate) const BODIES: &str = "s3";

/// The servers. They are stopped when this is dropped, or when the test process ends in any way.
pub(crate) struct PrivateServers {
    directory: TempDir,
    /// Stops the servers as soon as its standard input is closed.
    guard: Child,
    /// Servers that were started again, as children of the test.
    restarted: Vec<Child>,
}

/// How to start a killed server again.
pub(crate) struct Killed {
    name: &'static str,
    command: Command,
}

impl PrivateServers {
    /// Starts servers from the same files as those of the other tests.
    pub(crate) fn start() -> Result<PrivateServers, Failed> {
        let directory = tempfile::tempdir()?;
        for entry in read_dir(installed_files())?.collect::<Result<Vec<_>, _>>()? {
            let name = entry.file_name();
            let is_server =
                NAMES.iter().any(|server| name.to_string_lossy().starts_with(&format!("{server}-")));
            if is_server {
                symlink(entry.path(), directory.path().join(name))?;
            }
        }
        // An interrupted test drops nothing, but its pipes are closed. The guard has a process group of its own, so
        // that signals of the terminal do not reach it.
        let mut guard = Command::new("sh");
        guard.args(["-c", "cat >/dev/null; exec \"$0\" stop"]).arg(script());
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let guard = guard.env("FACETHEORY_LOCAL_AWS_DIR", directory.path()).spawn()?;
        let servers = PrivateServers { directory, guard, restarted: vec![] };
        servers.await_ready()?;
        Ok(servers)
    }

    /// New stores on these servers.
    pub(crate) fn stores(&self) -> Result<Stores, Failed> {
        let lines = read_to_string(self.directory.path().join("env"))?;
        let variable = |name: &str| {
            let set = lines.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == name);
            set.map(|(_, value)| value.to_owned()).ok_or(format!("the servers have no {name}"))
        };
        let mut stores = Stores::on_servers()?;
        for (name, value) in &mut stores.environment {
            *value = variable(name)?;
        }
        let (_, name) = stores.table.split_once(':').ok_or("the address of the table has no name")?;
        stores.bodies = format!("s3://{}/{name}", variable("FACETHEORY_TEST_S3_BUCKET")?);
        Ok(stores)
    }

    /// Sends a signal to a server, as `kill -STOP` does.
    pub(crate) fn signal(&self, name: &str, signal: &str) -> Result<(), Failed> {
        let (pid, _) = self.state(name)?;
        // The process id of a dead server may have been reused.
        let command = read(Path::new("/proc").join(&pid).join("cmdline")).unwrap_or_default();
        // The server was started with the canonical path of its directory.
        let directory = self.directory.path().canonicalize()?;
        if !String::from_utf8_lossy(&command).contains(&*directory.to_string_lossy()) {
            return Err(format!("{name} is not running").into());
        }
        let status = Command::new("kill").args([signal, &pid]).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("kill {signal} of {name} failed: {status}").into())
        }
    }

    /// Kills a server.
    pub(crate) fn kill(&self, name: &'static str) -> Result<Killed, Failed> {
        let (pid, _) = self.state(name)?;
        let process = PathBuf::from("/proc").join(&pid);
        let texts = |file: &str| {
            let text = read(process.join(file))?;
            let words = text.split_inclusive(|byte| *byte == 0);
            let words =
                words.map(|word| OsStr::from_bytes(word.strip_suffix(&[0]).unwrap_or(word)).to_owned());
            Ok::<_, Failed>(words.collect::<Vec<_>>())
        };
        let (arguments, environment) = (texts("cmdline")?, texts("environ")?);
        let (program, arguments) = arguments.split_first().ok_or(format!("{name} is not running"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(read_link(process.join("cwd"))?);
        // Environment variables need not be UTF-8.
        let pairs = environment.iter().filter_map(|line| {
            let line = line.as_bytes();
            let end = line.iter().position(|byte| *byte == b'=')?;
            Some((OsStr::from_bytes(&line[..end]), OsStr::from_bytes(&line[end + 1..])))
        });
        command.env_clear().envs(pairs);
        self.signal(name, "-KILL")?;
        // A zombie has no command line any more.
        wait_until("the end of a server", || {
            Ok(read(process.join("cmdline")).unwrap_or_default().is_empty())
        })?;
        Ok(Killed { name, command })
    }

    /// Starts servers again with the same ports, and with their data if that is in files.
    pub(crate) fn restart(&mut self, killed: Vec<Killed>) -> Result<(), Failed> {
        for Killed { name, mut command } in killed {
            let (_, rest) = self.state(name)?;
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            // The script recognizes the new process by this file.
            write(self.state_file(name), format!("{} {rest}\n", child.id()))?;
            self.restarted.push(child);
        }
        self.await_ready()
    }

    /// Starts the servers that are not running, and returns once all are ready.
    fn await_ready(&self) -> Result<(), Failed> {
        let mut start = Command::new(script());
        start.arg("start").env("FACETHEORY_LOCAL_AWS_DIR", self.directory.path()).stdin(Stdio::null());
        let output = start.output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("starting the servers failed: {}", String::from_utf8_lossy(&output.stderr)).into())
    }

    /// The process id of a server, and the rest of its state file.
    fn state(&self, name: &str) -> Result<(String, String), Failed> {
        let line = read_to_string(self.state_file(name))?;
        let (pid, rest) = line.trim().split_once(' ').ok_or("the state file of the server is invalid")?;
        Ok((pid.to_owned(), rest.to_owned()))
    }

    fn state_file(&self, name: &str) -> PathBuf {
        self.directory.path().join("run").join(name).with_extension("state")
    }
}

impl Drop for PrivateServers {
    fn drop(&mut self) {
        // A graceful stop takes up to fifteen seconds, and a frozen server does not receive it. Killing fails if the
        // server is not running.
        for name in NAMES {
            let _ = self.signal(name, "-KILL");
        }
        for child in &mut self.restarted {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The guard deletes the files.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/local-aws")
}

/// The directory where the servers of all tests are installed. `scripts/local-aws` downloads missing files.
fn installed_files() -> PathBuf {
    let directory = std::env::var_os("FACETHEORY_LOCAL_AWS_DIR").map(PathBuf::from);
    directory.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.local-aws"))
}
