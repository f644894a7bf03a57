//! The development server of Vite with the site of create-vite: it notifies browsers of changes over a WebSocket.

use std::path::Path;

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::Gateway;
use crate::{Application, in_time};

const VITE: Application = Application { variable: "FACETHEORY_E2E_VITE" };
const ROUTES: &str = r#""/**" = { isr = "60s" }"#;

/// The longest accepted message; Vite's messages have a few hundred bytes.
const MAX_MESSAGE: usize = 1 << 16;

/// The receiving side of a WebSocket in a browser.
struct Socket {
    stream: TcpStream,
}

impl Socket {
    /// Opens it as Vite's script does.
    async fn open(address: &str, token: &str) -> Socket {
        let mut stream = TcpStream::connect(address).await.expect("the gateway listens");
        let request = format!(
            "GET /?token={token} HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\nconnection: Upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             sec-websocket-protocol: vite-hmr\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(in_time("the handshake", stream.read_u8()).await.expect("a byte"));
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        // The accept value for the example key of RFC 6455.
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        Socket { stream }
    }

    /// Reads the next message, which a server sends in one unmasked frame.
    async fn receive(&mut self) -> String {
        let stream = &mut self.stream;
        let message = async {
            let _kind = stream.read_u8().await?;
            let length = match stream.read_u8().await? {
                126 => usize::from(stream.read_u16().await?),
                short => usize::from(short),
            };
            let mut message = vec![0; length.min(MAX_MESSAGE)];
            stream.read_exact(&mut message).await?;
            std::io::Result::Ok(message)
        };
        String::from_utf8(in_time("a message", message).await.expect("a message")).expect("text")
    }
}

#[tokio::test]
#[ignore = "scripts/test-e2e starts the application"]
async fn a_browser_receives_changes_over_a_websocket_through_the_gateway() {
    let directory = std::env::var("FACETHEORY_E2E_VITE_DIRECTORY")
        .expect("scripts/test-e2e sets the directory of the site");
    let gateway = Gateway::directly_in_front_of(&VITE.address(), ROUTES);
    let mut client = gateway.client();
    let page = client.get("/").await;
    assert!(page.status == StatusCode::OK && page.text().contains("/@vite/client"), "{}", page.text());
    let token = client.get("/@vite/client").await.quoted_after("wsToken = \"");

    let mut socket = Socket::open(gateway.address(), &token).await;
    assert_eq!(socket.receive().await, r#"{"type":"connected"}"#);
    let style = Path::new(&directory).join("src/style.css");
    assert_eq!(client.get("/src/main.js").await.status, StatusCode::OK);
    assert_eq!(client.get("/src/style.css").await.status, StatusCode::OK);
    let text = std::fs::read_to_string(&style).expect("a style sheet");
    std::fs::write(&style, text + "\n.of-the-test { color: red }\n").expect("the file is written");
    let message = socket.receive().await;
    assert!(message.contains("\"type\":\"update\"") && message.contains("/src/style.css"), "{message}");
    let style = client.get("/src/style.css").await;
    assert!(style.text().contains("of-the-test"), "{}: {}", style.state(), style.text());
}
