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
    /// Kept open to the end: a program whose words nobody hears may die of it.
    _output: BufReader<ChildStdout>,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_facetheory"))
            .args(["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "off"])
            .args(arguments)
            // Half a store, which is an error where a gateway has none of its own.
            .env("CACHE_TABLE", "pages")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut output = BufReader::new(child.stdout.take().expect("an output"));
        let mut said = String::new();
        while !said.contains("Ctrl-C ends it") {
            assert!(output.read_line(&mut said).expect("it says what to try") > 0, "{said}");
        }
        let address = |before: &str| {
            let rest = said.split(before).nth(1).and_then(|rest| rest.split("http://").nth(1));
            rest.and_then(|rest| rest.split('/').next()).expect("an address").to_owned()
        };
        let (site, console) = (address("The demo listens on"), address("The console is at"));
        Demo { child, site, console, _output: output }
    }

    /// The state and the body that a visitor gets.
    fn visit(&self, path: &str) -> (String, String) {
        let (head, body) = ask(&self.site, "GET", path, "");
        let state = head.lines().find_map(|line| line.strip_prefix("x-facetheory-isr: ")).unwrap_or_default();
        (state.to_owned(), body)
    }
}

/// The head and the body of an answer.
fn ask(address: &str, method: &str, path: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    let content = match body.len() {
        0 => String::new(),
        length => format!("content-type: application/json\r\ncontent-length: {length}\r\n"),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{content}\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

impl Drop for Demo {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A demo whose page two visitors have seen within the ten seconds for which it is fresh, and what they saw. On a machine
/// that rests for so long between the two it is stale, and another demo is tried.
fn with_a_fresh_page() -> (Demo, String) {
    const DEMOS: usize = 5;
    for _ in 0..DEMOS {
        let demo = Demo::start(&[]);
        let (state, first) = demo.visit("/posts/hello");
        assert_eq!(state, "miss", "{first}");
        assert!(first.contains("<h1>hello</h1>") && first.contains("render number 1 of"), "{first}");
        let (state, again) = demo.visit("/posts/hello");
        assert_eq!(again, first);
        if state == "hit" {
            return (demo, first);
        }
        assert_eq!(state, "stale");
    }
    panic!("no page was seen while it was fresh");
}

#[test]
fn the_demo_shows_a_page_rendered_once_and_renewed_behind_its_visitor() {
    let (demo, first) = with_a_fresh_page();
    let (answer, said) = ask(&demo.console, "POST", "/api/v1/invalidate", r#"{"path":"/posts"}"#);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer} {said}");
    assert_eq!(demo.visit("/posts/hello"), ("stale".to_owned(), first.clone()));
    let front = demo.visit("/").1;
    assert!(front.contains("href=\"/posts/hello\""), "{front}");
    assert!(
        front.contains(&format!("href=\"http://{}/\"", demo.console)),
        "it links to the console: {front}"
    );
    assert!(ask(&demo.console, "GET", "/", "").1.contains("/metrics"), "which links to what there is");
    assert!(demo.visit("/posts/%3Cb%3E").1.contains("<h1>&lt;b&gt;</h1>"), "names are escaped");
}

#[test]
fn the_demo_finds_the_pages_again_that_it_was_told_to_keep() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("new").display().to_string();
    let first = Demo::start(&["--data", &data]).visit("/posts/hello").1;
    let (state, again) = Demo::start(&["--data", &data]).visit("/posts/hello");
    assert_eq!(again, first);
    assert!(state == "hit" || state == "stale", "{state}");
}

#[test]
fn an_address_that_is_in_use_is_explained() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = facetheory(&["demo", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("{address} is in use by another program; choose another with --listen")),
        "{said}"
    );
    assert_eq!(facetheory(&["demo", "--listen", "nowhere"]).status.code(), Some(2));
}
