//! The demo, through the real binary.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

fn facetheory(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_facetheory")).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A demo that does not outlive its test.
struct Demo {
    child: Child,
    site: String,
    console: String,
    /// Stays open: writing to a closed pipe would end the process.
    _output: BufReader<ChildStdout>,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_facetheory"))
            .args(["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "off"])
            .args(arguments)
            // A table without bodies, which is an error for a gateway without a store.
            .env("CACHE_TABLE", "pages")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut output = BufReader::new(child.stdout.take().expect("an output"));
        let mut printed = String::new();
        while !printed.contains("Press Ctrl-C") {
            assert!(output.read_line(&mut printed).expect("the introduction") > 0, "{printed}");
        }
        let address = |before: &str| {
            let rest = printed.split(before).nth(1).and_then(|rest| rest.split("http://").nth(1));
            rest.and_then(|rest| rest.split('/').next()).expect("an address").to_owned()
        };
        let (site, console) = (address("The demo listens on"), address("The console is at"));
        Demo { child, site, console, _output: output }
    }

    /// Returns the state and the body of a page.
    fn get(&self, path: &str) -> (String, String) {
        let (head, body) = exchange(&self.site, "GET", path, "");
        let state = head.lines().find_map(|line| line.strip_prefix("x-facetheory-isr: ")).unwrap_or_default();
        (state.to_owned(), body)
    }
}

/// Sends a request, and returns the head and the body of the response.
fn exchange(address: &str, method: &str, path: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let content = match body.len() {
        0 => String::new(),
        length => format!("content-type: application/json\r\ncontent-length: {length}\r\n"),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{content}\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).expect("a request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests a page twice while it is fresh, and returns the demo and the page. On a slow machine the page may be stale at
/// the second request; then another demo is started.
fn with_a_fresh_page() -> (Demo, String) {
    const DEMOS: usize = 5;
    for _ in 0..DEMOS {
        let demo = Demo::start(&[]);
        let (state, first) = demo.get("/posts/hello");
        assert_eq!(state, "miss", "{first}");
        assert!(first.contains("<h1>hello</h1>") && first.contains("render number 1 of"), "{first}");
        let (state, again) = demo.get("/posts/hello");
        assert_eq!(again, first);
        if state == "hit" {
            return (demo, first);
        }
        assert_eq!(state, "stale");
    }
    panic!("every second request came too late");
}

#[test]
fn a_page_is_rendered_once_and_served_stale_after_a_purge() {
    let (demo, first) = with_a_fresh_page();
    let (head, body) = exchange(&demo.console, "POST", "/api/v1/invalidate", r#"{"path":"/posts"}"#);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    assert_eq!(demo.get("/posts/hello"), ("stale".to_owned(), first.clone()));
    let front = demo.get("/").1;
    assert!(front.contains("href=\"/posts/hello\""), "{front}");
    assert!(
        front.contains(&format!("href=\"http://{}/\"", demo.console)),
        "the front page links to the console: {front}"
    );
    assert!(
        exchange(&demo.console, "GET", "/", "").1.contains("/metrics"),
        "the console links to the metrics"
    );
    assert!(demo.get("/posts/%3Cb%3E").1.contains("<h1>&lt;b&gt;</h1>"), "names are escaped");
}

#[test]
fn pages_in_a_data_directory_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("new").display().to_string();
    let first = Demo::start(&["--data", &data]).get("/posts/hello").1;
    let (state, again) = Demo::start(&["--data", &data]).get("/posts/hello");
    assert_eq!(again, first);
    assert!(state == "hit" || state == "stale", "{state}");
}

#[test]
fn an_address_in_use_is_an_error_that_names_the_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = facetheory(&["demo", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(
        printed.contains(&address) && printed.contains("in use") && printed.contains("--listen"),
        "{printed}"
    );
    assert_eq!(facetheory(&["demo", "--listen", "nowhere"]).status.code(), Some(2));
}
