//! A DynamoDB Local of its own, which keeps its rows in a file and can be restarted.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tabletheory::{Random as _, SystemRandom};
use tempfile::TempDir;

/// Below the range out of which the system takes ports of outgoing connections: one of those would be taken by others
/// while the server is away.
const PORTS: std::ops::Range<u16> = 10_240..32_000;
/// How often it is tried to find a port that nobody has, and how often one looks whether the server has started.
const ATTEMPTS: usize = 1_200;
/// How long it rests between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The server. It ends when it is dropped.
pub(crate) struct Dynamodb {
    child: Child,
    port: u16,
    product: PathBuf,
    directory: TempDir,
}

impl Dynamodb {
    /// Starts it with no tables, on a port of its own.
    pub(crate) fn start() -> Dynamodb {
        let (product, directory) = (product(), tempfile::tempdir().expect("a directory"));
        let free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
        let width = u64::from(PORTS.end - PORTS.start);
        let chance = || u16::try_from(SystemRandom.next_u64() % width).expect("a small number");
        let port = (0..ATTEMPTS).map(|_| PORTS.start + chance()).find(free).expect("a free port");
        let child = launch(&product, directory.path(), port);
        let dynamodb = Dynamodb { child, port, product, directory };
        dynamodb.await_ready();
        dynamodb
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Kills it in the middle of whatever it does, and starts it again with its rows after a while.
    pub(crate) fn restart(&mut self, away: Duration) {
        self.end();
        std::thread::sleep(away);
        self.child = launch(&self.product, self.directory.path(), self.port);
        self.await_ready();
    }

    fn await_ready(&self) {
        for _ in 0..ATTEMPTS {
            if answers(self.address()).unwrap_or(false) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        panic!("DynamoDB Local has not started");
    }

    fn end(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Dynamodb {
    fn drop(&mut self) {
        self.end();
    }
}

fn launch(product: &Path, directory: &Path, port: u16) -> Child {
    let of_java = |name: &str, path: &Path| format!("-D{name}={}", path.display());
    Command::new("java")
        // It has to start soon, while everybody else is busy.
        .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg(of_java("java.io.tmpdir", directory))
        .arg(of_java("java.library.path", &product.join("DynamoDBLocal_lib")))
        .arg("-jar")
        .arg(product.join("DynamoDBLocal.jar"))
        .args(["-disableTelemetry", "-sharedDb", "-port", &port.to_string(), "-dbPath"])
        .arg(directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("java runs")
}

/// Whether something that speaks HTTP listens there.
fn answers(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    Ok(stream.read(&mut [0])? > 0)
}

/// Where `scripts/local-aws` has installed it, as it does now if it has not yet.
fn product() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let install = Command::new(root.join("scripts/local-aws"))
        .args(["install", "--only", "dynamodb"])
        .stdin(Stdio::null())
        .output()
        .expect("the script runs");
    assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
    let given = std::env::var_os("FACETHEORY_LOCAL_AWS_DIR").map(PathBuf::from);
    let products = given.unwrap_or_else(|| root.join(".local-aws"));
    let entries = std::fs::read_dir(products).expect("a directory").map_while(Result::ok);
    let found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("dynamodb-"));
    // Its name ends with its version.
    found.map(|entry| entry.path()).max().expect("DynamoDB Local is installed")
}
