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
    /// Kept open to the end: a program whose words nobody hears may die of it.
    _output: BufReader<ChildStdout>,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_facetheory"))
            .args(["demo", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut output = BufReader::new(child.stdout.take().expect("an output"));
        let mut said = String::new();
        output.read_line(&mut said).expect("it says where it listens");
        let site = said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
        Demo { child, site: site.to_owned(), _output: output }
    }

    /// The state and the body that a visitor gets.
    fn visit(&self, method: &str, path: &str) -> (String, String) {
        let site = &self.site;
        let mut stream = TcpStream::connect(site).expect("the demo listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {site}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it is sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        let state = head.lines().find_map(|line| line.strip_prefix("x-facetheory-isr: ")).unwrap_or_default();
        (state.to_owned(), body.to_owned())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_demo_shows_a_page_rendered_once_and_renewed_behind_its_visitor() {
    let demo = Demo::start(&[]);
    let (state, first) = demo.visit("GET", "/posts/hello");
    assert_eq!(state, "miss", "{first}");
    assert!(first.contains("<h1>hello</h1>") && first.contains("render number 1 of"), "{first}");
    assert_eq!(demo.visit("GET", "/posts/hello"), ("hit".to_owned(), first.clone()));
    assert_eq!(demo.visit("POST", "/invalidate/posts").1, "everything at /posts and below is stale\n");
    assert_eq!(demo.visit("GET", "/posts/hello"), ("stale".to_owned(), first.clone()));
    assert!(demo.visit("GET", "/").1.contains("href=\"/posts/hello\""));
    assert!(demo.visit("GET", "/posts/%3Cb%3E").1.contains("<h1>&lt;b&gt;</h1>"), "names are escaped");
}

#[test]
fn the_demo_finds_the_pages_again_that_it_was_told_to_keep() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("new").display().to_string();
    let first = Demo::start(&["--data", &data]).visit("GET", "/posts/hello").1;
    let (state, again) = Demo::start(&["--data", &data]).visit("GET", "/posts/hello");
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
