//! Real servers that belong to one story alone, which may freeze and kill them: a second `scripts/local-aws`.

use std::ffi::OsStr;
use std::fs::{read, read_dir, read_link, read_to_string, write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Failed;
use tempfile::TempDir;

use crate::place::Place;
use crate::process::wait_until;

/// The servers as `scripts/local-aws` names them, and their products in its directory.
const NAMES: [&str; 2] = [TABLE, BODIES];
pub(crate) const TABLE: &str = "dynamodb";
pub(crate) const BODIES: &str = "s3";

/// The servers. They end when it is dropped, or when the process of the test does, in whatever way.
pub(crate) struct Installation {
    directory: TempDir,
    /// It stops the servers as soon as its input ends.
    guard: Child,
    /// Those that were started again are children of the test.
    revived: Vec<Child>,
}

/// What it takes to start a server again as it was.
pub(crate) struct Killed {
    name: &'static str,
    command: Command,
}

impl Installation {
    /// Starts servers of the same products as those of the other tests.
    pub(crate) fn start() -> Result<Installation, Failed> {
        let directory = tempfile::tempdir()?;
        for entry in read_dir(products())?.collect::<Result<Vec<_>, _>>()? {
            let name = entry.file_name();
            let is_product =
                NAMES.iter().any(|server| name.to_string_lossy().starts_with(&format!("{server}-")));
            if is_product {
                symlink(entry.path(), directory.path().join(name))?;
            }
        }
        // A test that is interrupted drops nothing, but its pipes end. The signals of its terminal are not for the
        // guard, which therefore has a process group of its own.
        let mut guard = Command::new("sh");
        guard.args(["-c", "cat >/dev/null; exec \"$0\" stop"]).arg(script());
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let guard = guard.env("FACETHEORY_LOCAL_AWS_DIR", directory.path()).spawn()?;
        let installation = Installation { directory, guard, revived: vec![] };
        installation.await_ready()?;
        Ok(installation)
    }

    /// A place on these servers.
    pub(crate) fn place(&self) -> Result<Place, Failed> {
        let lines = read_to_string(self.directory.path().join("env"))?;
        let setting = |name: &str| {
            let set = lines.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == name);
            set.map(|(_, value)| value.to_owned()).ok_or(format!("the servers have no {name}"))
        };
        let mut place = Place::on_servers()?;
        for (name, value) in &mut place.environment {
            *value = setting(name)?;
        }
        let (_, name) = place.table.split_once(':').ok_or("a table has a name")?;
        place.bodies = format!("s3://{}/{name}", setting("FACETHEORY_TEST_S3_BUCKET")?);
        Ok(place)
    }

    /// Sends a server a signal, as in `kill -STOP`.
    pub(crate) fn signal(&self, name: &str, signal: &str) -> Result<(), Failed> {
        let (pid, _) = self.state(name)?;
        // The number of one that has ended may be somebody else's by now.
        let command = read(Path::new("/proc").join(&pid).join("cmdline")).unwrap_or_default();
        // It is started by the true name of its directory, which may lie behind a link.
        let directory = self.directory.path().canonicalize()?;
        if !String::from_utf8_lossy(&command).contains(&*directory.to_string_lossy()) {
            return Err(format!("{name} does not run").into());
        }
        let status = Command::new("kill").args([signal, &pid]).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("kill {signal} of {name} failed: {status}").into())
        }
    }

    /// Ends a server without any warning.
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
        let (program, arguments) = arguments.split_first().ok_or(format!("{name} does not run"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(read_link(process.join("cwd"))?);
        // Not every variable that a machine has is a text.
        let pairs = environment.iter().filter_map(|line| {
            let line = line.as_bytes();
            let end = line.iter().position(|byte| *byte == b'=')?;
            Some((OsStr::from_bytes(&line[..end]), OsStr::from_bytes(&line[end + 1..])))
        });
        command.env_clear().envs(pairs);
        self.signal(name, "-KILL")?;
        // Somebody may yet have to take note of its end, but then it has no command any more.
        wait_until("the end of a server", || {
            Ok(read(process.join("cmdline")).unwrap_or_default().is_empty())
        })?;
        Ok(Killed { name, command })
    }

    /// Starts servers again: with the same ports, and with their data where that is in files.
    pub(crate) fn revive(&mut self, killed: Vec<Killed>) -> Result<(), Failed> {
        for Killed { name, mut command } in killed {
            let (_, rest) = self.state(name)?;
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            // So the script knows it for its own.
            write(self.state_file(name), format!("{} {rest}\n", child.id()))?;
            self.revived.push(child);
        }
        self.await_ready()
    }

    /// Starts what does not run, and returns once everything can be used.
    fn await_ready(&self) -> Result<(), Failed> {
        let mut start = Command::new(script());
        start.arg("start").env("FACETHEORY_LOCAL_AWS_DIR", self.directory.path()).stdin(Stdio::null());
        let output = start.output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("servers could not be started: {}", String::from_utf8_lossy(&output.stderr)).into())
    }

    /// The process of a server, and what else was recorded of it.
    fn state(&self, name: &str) -> Result<(String, String), Failed> {
        let line = read_to_string(self.state_file(name))?;
        let (pid, rest) = line.trim().split_once(' ').ok_or("no server is recorded")?;
        Ok((pid.to_owned(), rest.to_owned()))
    }

    fn state_file(&self, name: &str) -> PathBuf {
        self.directory.path().join("run").join(name).with_extension("state")
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        // To be told to end takes a server up to fifteen seconds, and one that is frozen does not notice it. One that
        // does not run cannot be killed, which is as good.
        for name in NAMES {
            let _ = self.signal(name, "-KILL");
        }
        for child in &mut self.revived {
            let _ = child.kill();
            let _ = child.wait();
        }
        // What is left are files.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/local-aws")
}

/// Where the servers of all tests are installed. What is missing there is installed anew.
fn products() -> PathBuf {
    let given = std::env::var_os("FACETHEORY_LOCAL_AWS_DIR").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.local-aws"))
}
