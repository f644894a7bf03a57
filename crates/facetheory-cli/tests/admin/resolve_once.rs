//! A request is resolved once, also where the fast path hands it to the connection service.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::process::{Gateway, Origin, facetheory};

/// The end of all bodies of the origin.
const END: &[u8] = b"</p>\n";
const CONFIG: &str = "[routes]\n\"/**\" = { isr = \"1h\", tags = [\"news\"] }\n\"/account\" = false\n";

#[test]
fn the_gateway_resolves_every_request_once() {
    let command = &mut facetheory();
    let command = command.stderr(Stdio::piped());
    let gateway = Gateway::with_config(CONFIG, &Origin::start(), command, &["--log-level", "debug"]);
    let mut client = TcpStream::connect(&gateway.site).expect("a connection");
    let mut send = |request: &str, state: &str| {
        client.write_all(request.as_bytes()).expect("sent");
        let mut response = Vec::new();
        while !response.ends_with(END) {
            let mut bytes = [0; 1024];
            let read = client.read(&mut bytes).expect("a response");
            assert!(read > 0, "{}", String::from_utf8_lossy(&response));
            response.extend_from_slice(&bytes[..read]);
        }
        let response = String::from_utf8(response).expect("text");
        assert!(response.contains(&format!("x-facetheory-isr: {state}\r\n")), "{request}: {response}");
    };
    for (request, state) in [
        ("GET /a HTTP/1.1\r\nhost: a\r\n\r\n", "miss"),
        ("GET /a HTTP/1.1\r\nhost: a\r\n\r\n", "hit"),
        ("GET /private HTTP/1.1\r\nhost: a\r\n\r\n", "bypass"),
        ("GET /account HTTP/1.1\r\nhost: a\r\n\r\n", "bypass"),
        ("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n", "bypass"),
    ] {
        send(request, state);
    }
    // By its tag, because the URL of a page would be resolved too.
    assert_eq!(gateway.post("/api/v1/invalidate", &json!({ "tag": "news" })).status, 200);
    send("GET /a HTTP/1.1\r\nhost: a\r\n\r\n", "stale");
    // Pipelined requests are not served by the fast path, and keep their order.
    let pipelined =
        "GET /a HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    client.write_all(pipelined.as_bytes()).expect("sent");
    let mut responses = String::new();
    client.read_to_string(&mut responses).expect("responses");
    let bodies: Vec<_> = responses.match_indices("<p>").map(|(at, _)| &responses[at..at + 5]).collect();
    assert_eq!(bodies, ["<p>/a", "<p>/b"]);
    let log = gateway.shut_down();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let resolved = lines.filter(|line| line["message"] == "resolved").map(|line| line["path"].clone());
    assert_eq!(resolved.collect::<Vec<_>>(), ["/a", "/a", "/private", "/account", "/a", "/a", "/a", "/b"]);
}
