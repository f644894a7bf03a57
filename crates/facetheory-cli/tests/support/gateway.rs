//! The gateway as a process of its own.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use super::client::{Connection, Response};
use super::store::Store;
use super::until;

/// A gateway that does not outlive its test.
pub(crate) struct Gateway {
    child: Child,
    /// Where visitors connect.
    pub(crate) address: SocketAddr,
    said: Said,
}

/// What a process has written so far.
#[derive(Clone)]
struct Said {
    output: Arc<Mutex<String>>,
    errors: Arc<Mutex<String>>,
}

/// A gateway that did not want to start.
#[derive(Debug)]
pub(crate) struct Refused {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// What it said of the reason.
    pub(crate) errors: String,
}

impl Gateway {
    /// Starts a gateway with this configuration, whose data and file of configuration are in a directory.
    ///
    /// # Panics
    /// When it does not want to start.
    pub(crate) fn start(directory: &Path, origin: SocketAddr, config: &str, arguments: &[&str]) -> Gateway {
        match Gateway::try_start(directory, origin, config, arguments) {
            Ok(gateway) => gateway,
            Err(refused) => panic!("the gateway does not start ({}): {}", refused.status, refused.errors),
        }
    }

    /// Starts a gateway that keeps its pages where others may keep theirs, and does not tell of every request.
    ///
    /// # Panics
    /// When it does not want to start.
    pub(crate) fn start_on(store: &Store, directory: &Path, origin: SocketAddr, config: &str) -> Gateway {
        let arguments = ["--table", &store.table, "--bodies", &store.bodies, "--no-access-log"];
        match Gateway::try_start_in(&store.environment, directory, origin, config, &arguments) {
            Ok(gateway) => gateway,
            Err(refused) => panic!("the gateway does not start ({}): {}", refused.status, refused.errors),
        }
    }

    /// Starts a gateway that may not want to. It keeps its pages in the directory unless it is told another `--table`.
    pub(crate) fn try_start(
        directory: &Path,
        origin: SocketAddr,
        config: &str,
        arguments: &[&str],
    ) -> Result<Gateway, Refused> {
        Gateway::try_start_in(&[], directory, origin, config, arguments)
    }

    /// The same, with these variables in its environment.
    pub(crate) fn try_start_in(
        environment: &[(&str, String)],
        directory: &Path,
        origin: SocketAddr,
        config: &str,
        arguments: &[&str],
    ) -> Result<Gateway, Refused> {
        let file = directory.join("facetheory.toml");
        std::fs::write(&file, config).expect("the configuration is written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_facetheory"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--origin", &format!("http://{origin}")])
            .args([Path::new("--config"), &file])
            .args(if arguments.contains(&"--table") {
                Vec::new()
            } else {
                vec!["--data".into(), data(directory)]
            })
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let said = Said {
            output: collect(child.stdout.take().expect("an output")),
            errors: collect(child.stderr.take().expect("an output for errors")),
        };
        let started = until("the gateway starts, or ends", || {
            let output = said.output.lock().expect("what it said").clone();
            match address_in(&output, "listening on ") {
                Some(address) => Some(Ok(address)),
                None => child.try_wait().expect("a process").map(Err),
            }
        });
        match started {
            Ok(address) => Ok(Gateway { child, address, said }),
            Err(status) => {
                let errors = until("it says why", || {
                    let errors = said.errors.lock().expect("what it said").clone();
                    (!errors.is_empty()).then_some(errors)
                });
                Err(Refused { status, errors })
            }
        }
    }

    /// A new connection of a visitor.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// What comes back for these bytes, over a connection of their own.
    pub(crate) fn exchange(&self, bytes: impl AsRef<[u8]>) -> Response {
        let mut connection = self.connect();
        connection.send(bytes);
        connection.answer()
    }

    /// Where operators connect.
    pub(crate) fn admin(&self) -> SocketAddr {
        until("the gateway says where operators connect", || {
            let output = self.said.output.lock().expect("what it said").clone();
            output.lines().filter(|line| line.contains("admin")).find_map(|line| address_in(line, ""))
        })
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.said.errors.lock().expect("what it said").clone()
    }

    /// Whether it is still there, as it must be whatever was sent to it.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a process").is_none()
    }

    /// How many ticks of the processor it has used.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = self.proc_file("stat");
        // The name of the program, in brackets, is the only field that may have spaces.
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        ticks(11) + ticks(12)
    }

    /// The most memory that it ever had, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.kibibytes("VmHWM:")
    }

    /// The memory that it has now, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        self.kibibytes("VmRSS:")
    }

    /// How many files and connections it has open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("a process that runs").count()
    }

    fn kibibytes(&self, name: &str) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// How many bytes it has read so far, of files or of anything else.
    pub(crate) fn bytes_read(&self) -> u64 {
        let io = self.proc_file("io");
        let line = io.lines().find_map(|line| line.strip_prefix("rchar:")).expect("a line");
        line.trim().parse().expect("a number")
    }

    /// What it tells operators of a metric without labels; none before anything was counted.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let mut connection = Connection::open(self.admin());
        connection
            .send(format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.admin()));
        let text = connection.answer().text();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value.parse().expect("a number"))
    }

    /// What an operator is answered who has a wish, written as JSON.
    pub(crate) fn wish(&self, path: &str, wish: &str) -> Response {
        let (admin, length) = (self.admin(), wish.len());
        let mut connection = Connection::open(admin);
        connection.send(format!(
            "POST {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{wish}"
        ));
        connection.answer()
    }

    /// Ends it as nobody would, in the middle of whatever it does.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a process that runs");
        self.child.wait().expect("a process");
    }

    /// Asks it to read its configuration again.
    pub(crate) fn reload(&self) {
        self.signal("HUP");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(asked.success(), "the gateway has ended before it was asked to");
    }

    /// Asks it to end, and returns once it has.
    ///
    /// # Panics
    /// When it does not, or not well.
    pub(crate) fn end(mut self) {
        self.signal("TERM");
        let status = until("the gateway ends", || self.child.try_wait().expect("a process"));
        assert!(status.success(), "the gateway ended with {status}: {}", self.log());
    }

    fn proc_file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).expect("a process that runs")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a gateway of this directory keeps its pages.
pub(crate) fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

/// Reads to the end, beside everything else: a process whose words nobody hears comes to a halt.
fn collect(source: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let all = Arc::new(Mutex::new(String::new()));
    let said = all.clone();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(source);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            said.lock().expect("what it said").push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    all
}

/// The address in the line that begins so.
fn address_in(output: &str, beginning: &str) -> Option<SocketAddr> {
    let complete = output.rsplit_once('\n').map_or(output, |(complete, _)| complete);
    let line = complete.lines().find(|line| line.starts_with(beginning))?;
    let (_, address) = line.split_once("://")?;
    address.split('/').next()?.trim().parse().ok()
}
