//! A separate DynamoDB Local with its rows in a file, which can be restarted.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tabletheory::{Random as _, SystemRandom};
use tempfile::TempDir;

/// Below the range of ephemeral ports, since another process could take one of those while the server is restarted.
const PORTS: std::ops::Range<u16> = 10_240..32_000;
/// The number of attempts to find a free port, and to connect to the started server.
const ATTEMPTS: usize = 1_200;
/// The pause between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The server, killed when this is dropped.
pub(crate) struct Dynamodb {
    child: Child,
    port: u16,
    installed: PathBuf,
    directory: TempDir,
}

impl Dynamodb {
    /// Starts it without tables, on a free port.
    pub(crate) fn start() -> Dynamodb {
        let (installed, directory) = (installed_directory(), tempfile::tempdir().expect("a directory"));
        let free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
        let width = u64::from(PORTS.end - PORTS.start);
        let chance = || u16::try_from(SystemRandom.next_u64() % width).expect("a small number");
        let port = (0..ATTEMPTS).map(|_| PORTS.start + chance()).find(free).expect("a free port");
        let child = launch(&installed, directory.path(), port);
        let dynamodb = Dynamodb { child, port, installed, directory };
        dynamodb.await_ready();
        dynamodb
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Kills it, and starts it again with its rows after a pause.
    pub(crate) fn restart(&mut self, away: Duration) {
        self.end();
        std::thread::sleep(away);
        self.child = launch(&self.installed, self.directory.path(), self.port);
        self.await_ready();
    }

    fn await_ready(&self) {
        for _ in 0..ATTEMPTS {
            if responds(self.address()).unwrap_or(false) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        panic!("DynamoDB Local did not start");
    }

    fn end(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Dynamodb {
    fn drop(&mut self) {
        self.end();
    }
}

fn launch(installed: &Path, directory: &Path, port: u16) -> Child {
    let of_java = |name: &str, path: &Path| format!("-D{name}={}", path.display());
    Command::new("java")
        // It has to start quickly although the machine is busy.
        .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg(of_java("java.io.tmpdir", directory))
        .arg(of_java("java.library.path", &installed.join("DynamoDBLocal_lib")))
        .arg("-jar")
        .arg(installed.join("DynamoDBLocal.jar"))
        .args(["-disableTelemetry", "-sharedDb", "-port", &port.to_string(), "-dbPath"])
        .arg(directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("java starts")
}

/// Whether an HTTP server listens there.
fn responds(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    Ok(stream.read(&mut [0])? > 0)
}

/// The directory where `scripts/local-aws` has installed it, or installs it now.
fn installed_directory() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let install = Command::new(root.join("scripts/local-aws"))
        .args(["install", "--only", "dynamodb"])
        .stdin(Stdio::null())
        .output()
        .expect("the script starts");
    assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
    let given = std::env::var_os("FACETHEORY_LOCAL_AWS_DIR").map(PathBuf::from);
    let products = given.unwrap_or_else(|| root.join(".local-aws"));
    let entries = std::fs::read_dir(products).expect("a directory").map_while(Result::ok);
    let found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("dynamodb-"));
    // The name ends with the version.
    found.map(|entry| entry.path()).max().expect("DynamoDB Local is installed")
}
