//! The gateway as a child process.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use super::client::{Connection, Response};
use super::store::Store;
use super::wait_for;

/// A gateway process, killed when this is dropped.
pub(crate) struct Gateway {
    child: Child,
    /// The address for clients.
    pub(crate) address: SocketAddr,
    output: Output,
}

/// The output of a process so far.
#[derive(Clone)]
struct Output {
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

/// A gateway that did not start.
#[derive(Debug)]
pub(crate) struct StartError {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// Its error output.
    pub(crate) errors: String,
}

fn started(result: Result<Gateway, StartError>) -> Gateway {
    result.unwrap_or_else(|StartError { status, errors }| {
        panic!("the gateway does not start ({status}): {errors}")
    })
}

impl Gateway {
    /// Starts a gateway with this configuration; its data and its configuration file are in the directory.
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn start(directory: &Path, origin: SocketAddr, config: &str, arguments: &[&str]) -> Gateway {
        started(Gateway::try_start(directory, origin, config, arguments))
    }

    /// Starts a gateway on a store that others may share, without an access log.
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn start_on(store: &Store, directory: &Path, origin: SocketAddr, config: &str) -> Gateway {
        let arguments = ["--table", &store.table, "--bodies", &store.bodies, "--no-access-log"];
        started(Gateway::try_start_in(&store.environment, directory, origin, config, &arguments))
    }

    /// Starts a gateway that may fail to start. Its data is in the directory unless there is a `--table` argument.
    pub(crate) fn try_start(
        directory: &Path,
        origin: SocketAddr,
        config: &str,
        arguments: &[&str],
    ) -> Result<Gateway, StartError> {
        Gateway::try_start_in(&[], directory, origin, config, arguments)
    }

    /// Like [`Gateway::try_start`], with additional environment variables.
    pub(crate) fn try_start_in(
        environment: &[(&str, String)],
        directory: &Path,
        origin: SocketAddr,
        config: &str,
        arguments: &[&str],
    ) -> Result<Gateway, StartError> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory"));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Gateway::try_start_by(command, directory, origin, config, arguments)
    }

    /// Starts a gateway under strace, which writes its system calls to a file.
    ///
    /// # Panics
    /// If strace is not installed, or the gateway does not start.
    pub(crate) fn start_traced(
        trace: &Path,
        directory: &Path,
        origin: SocketAddr,
        config: &str,
        arguments: &[&str],
    ) -> Gateway {
        let installed = Command::new("strace").arg("--version").stdout(Stdio::null()).status();
        assert!(installed.is_ok(), "strace is missing; on Debian: sudo apt-get install strace");
        let mut strace = Command::new("strace");
        // The process that is started becomes the gateway, and its child traces it.
        strace.args(["-D", "--follow-forks", "--timestamps=unix,us", "--string-limit=256"]);
        strace.arg("--output").arg(trace).arg(env!("CARGO_BIN_EXE_facetheory"));
        started(Gateway::try_start_by(strace, directory, origin, config, arguments))
    }

    /// Starts a gateway that can open this many files and connections.
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn start_with_open_files(
        limit: usize,
        directory: &Path,
        origin: SocketAddr,
        config: &str,
        arguments: &[&str],
    ) -> Gateway {
        let mut shell = Command::new("sh");
        let limited = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_facetheory")]);
        started(Gateway::try_start_by(shell, directory, origin, config, arguments))
    }

    /// Starts a gateway by a command, to which the arguments of the gateway are added.
    pub(crate) fn try_start_by(
        mut command: Command,
        directory: &Path,
        origin: SocketAddr,
        config: &str,
        arguments: &[&str],
    ) -> Result<Gateway, StartError> {
        let file = directory.join("facetheory.toml");
        std::fs::write(&file, config).expect("the configuration is written");
        let mut child = command
            .arg("serve")
            .args(if arguments.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] })
            .args(if arguments.contains(&"--admin") { &[][..] } else { &["--admin", "127.0.0.1:0"] })
            .args(["--origin", &format!("http://{origin}")])
            .args([Path::new("--config"), &file])
            .args(if arguments.contains(&"--table") {
                Vec::new()
            } else {
                vec!["--data".into(), data(directory)]
            })
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = Output {
            stdout: collect(child.stdout.take().expect("standard output is piped")),
            stderr: collect(child.stderr.take().expect("standard error is piped")),
        };
        let started = wait_for("the gateway listens or exits", || {
            let printed = output.stdout.lock().expect("not poisoned").clone();
            match address_in(&printed, "listening on ") {
                Some(address) => Some(Ok(address)),
                None => child.try_wait().expect("a process").map(Err),
            }
        });
        match started {
            Ok(address) => Ok(Gateway { child, address, output }),
            Err(status) => {
                let errors = wait_for("an error message", || {
                    let errors = output.stderr.lock().expect("not poisoned").clone();
                    (!errors.is_empty()).then_some(errors)
                });
                Err(StartError { status, errors })
            }
        }
    }

    /// Opens a client connection.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends these bytes over a new connection, and returns the response.
    pub(crate) fn exchange(&self, bytes: impl AsRef<[u8]>) -> Response {
        let mut connection = self.connect();
        connection.send(bytes);
        connection.response()
    }

    /// The address of the admin listener.
    pub(crate) fn admin(&self) -> SocketAddr {
        wait_for("the address of the admin listener", || {
            let printed = self.output.stdout.lock().expect("not poisoned").clone();
            printed.lines().filter(|line| line.contains("admin")).find_map(|line| address_in(line, ""))
        })
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        self.output.stderr.lock().expect("not poisoned").clone()
    }

    /// Whether it is still running.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a process").is_none()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The CPU time it has used, in clock ticks.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = self.proc_file("stat");
        // Only the program name, in parentheses, may contain spaces.
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        ticks(11) + ticks(12)
    }

    /// Its peak resident memory, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.kibibytes("VmHWM:")
    }

    /// Its resident memory, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        self.kibibytes("VmRSS:")
    }

    /// The number of its open files and connections.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("a running process").count()
    }

    fn kibibytes(&self, name: &str) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// How many bytes it has read so far, from files and connections.
    pub(crate) fn bytes_read(&self) -> u64 {
        let io = self.proc_file("io");
        let line = io.lines().find_map(|line| line.strip_prefix("rchar:")).expect("a line");
        line.trim().parse().expect("a number")
    }

    /// The value of a metric, with its labels in the name; `None` before it was counted.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = self.admin_get("/metrics").text();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value.parse().expect("a number"))
    }

    /// Sends a GET to the admin API.
    pub(crate) fn admin_get(&self, path: &str) -> Response {
        let admin = self.admin();
        let mut connection = Connection::open(admin);
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"));
        connection.response()
    }

    /// Sends JSON to the admin API.
    pub(crate) fn admin_post(&self, path: &str, json: &str) -> Response {
        let (admin, length) = (self.admin(), json.len());
        let mut connection = Connection::open(admin);
        connection.send(format!(
            "POST {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
                  Connection: close\r\n\r\n{json}"
        ));
        connection.response()
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a running process");
        self.child.wait().expect("a process");
    }

    /// Makes it reload its configuration.
    pub(crate) fn reload(&self) {
        self.signal("HUP");
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill starts");
        assert!(sent.success(), "the gateway has exited");
    }

    /// Shuts it down, and returns once it has exited.
    ///
    /// # Panics
    /// If it does not exit, or with an error.
    pub(crate) fn shut_down(self) {
        self.signal("TERM");
        self.wait_for_exit();
    }

    /// Waits until it has exited.
    ///
    /// # Panics
    /// If it does not exit, or with an error.
    pub(crate) fn wait_for_exit(mut self) {
        let status = wait_for("the gateway exits", || self.child.try_wait().expect("a process"));
        assert!(status.success(), "the gateway exited with {status}: {}", self.log());
    }

    fn proc_file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).expect("a running process")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The data directory of a gateway.
pub(crate) fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

/// Reads an output in the background, since the process would block on a full pipe.
fn collect(source: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let all = Arc::new(Mutex::new(String::new()));
    let collected = all.clone();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(source);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            collected.lock().expect("not poisoned").push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    all
}

/// The address in the first complete line with this prefix.
fn address_in(output: &str, prefix: &str) -> Option<SocketAddr> {
    let complete = output.rsplit_once('\n').map_or(output, |(complete, _)| complete);
    let line = complete.lines().find(|line| line.starts_with(prefix))?;
    let (_, address) = line.split_once("://")?;
    address.split('/').next()?.trim().parse().ok()
}
