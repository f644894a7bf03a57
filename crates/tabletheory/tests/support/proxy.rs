//! A proxy in front of DynamoDB Local with a script of one action per request.
//!
//! DynamoDB Local never throttles, never reports a conflict and never loses a response; DynamoDB does.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The action for one request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Forward the request and its response.
    Pass,
    /// Respond with this error, without forwarding the request.
    Respond { status: u16, error: &'static str, more: Value },
    /// Forward the request, and close the connection without a response.
    ForwardThenDrop,
    /// Close the connection without forwarding the request.
    DropBefore,
    /// Forward the request, and never respond.
    ForwardThenStall,
    /// Forward the request, and change the body of the response.
    Rewrite(fn(&Value, Value) -> Value),
}

impl Action {
    /// Respond with an error without details.
    pub(crate) fn error(status: u16, error: &'static str) -> Action {
        Action::Respond { status, error, more: Value::Null }
    }

    /// Respond that a transaction was cancelled for these reasons.
    pub(crate) fn cancelled(codes: &[&str]) -> Action {
        let reasons: Vec<Value> = codes.iter().map(|code| serde_json::json!({ "Code": code })).collect();
        Action::Respond { status: 400, error: "TransactionCanceledException", more: Value::from(reasons) }
    }
}

/// A running proxy, stopped on drop.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    server: String,
    script: Mutex<VecDeque<Action>>,
    seen: Mutex<Vec<Request>>,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The operation, such as `PutItem`.
    pub(crate) operation: String,
    /// The parsed body.
    pub(crate) body: Value,
    raw: Vec<u8>,
}

impl Proxy {
    /// Starts a proxy that forwards everything until it has a script.
    pub(crate) async fn start(server: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let state = Arc::new(State {
            server: server.trim_start_matches("http://").trim_end_matches('/').to_owned(),
            script: Mutex::default(),
            seen: Mutex::default(),
        });
        let serving = state.clone();
        let task = tokio::spawn(async move {
            // Aborted together with the proxy.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let state = serving.clone();
                connections.spawn(async move { state.serve(client).await });
            }
        });
        Proxy { address, state, task }
    }

    /// Returns the URL of the proxy.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the actions for the next requests; later requests are forwarded.
    pub(crate) fn script(&self, actions: impl IntoIterator<Item = Action>) {
        *self.state.script.lock() = actions.into_iter().collect();
        self.state.seen.lock().clear();
    }

    /// Returns the requests since the last script.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.state.seen.lock().clone()
    }

    /// Returns the operations of the requests since the last script.
    pub(crate) fn operations(&self) -> Vec<String> {
        self.seen().into_iter().map(|request| request.operation).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    /// Serves the only request of a connection. Each response ends its connection, so its length need not be parsed.
    async fn serve(&self, mut client: TcpStream) {
        let Some(request) = read_request(&mut client).await else { return };
        self.seen.lock().push(request.clone());
        let action = self.script.lock().pop_front().unwrap_or(Action::Pass);
        let response = match action {
            Action::Pass => self.forward(&request).await,
            Action::DropBefore => return,
            Action::ForwardThenDrop => {
                self.forward(&request).await;
                return;
            }
            Action::ForwardThenStall => {
                self.forward(&request).await;
                std::future::pending().await
            }
            Action::Respond { status, error, more } => {
                let body = serde_json::json!({
                    "__type": format!("com.amazonaws.dynamodb.v20120810#{error}"),
                    "message": "scripted by the test",
                    "CancellationReasons": more,
                });
                scripted(status, &body)
            }
            Action::Rewrite(change) => {
                let response = self.forward(&request).await;
                let start = find(&response, b"\r\n\r\n").expect("a response with a head") + 4;
                let body = serde_json::from_slice(&response[start..]).expect("a JSON body");
                scripted(200, &change(&request.body, body))
            }
        };
        // The client may have closed the connection.
        let _ = client.write_all(&response).await;
        let _ = client.shutdown().await;
    }

    async fn forward(&self, request: &Request) -> Vec<u8> {
        let mut server = TcpStream::connect(&self.server).await.expect("a connection to the server");
        server.write_all(&request.raw).await.expect("the server reads");
        let mut response = Vec::new();
        server.read_to_end(&mut response).await.expect("a response");
        response
    }
}

fn scripted(status: u16, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: application/x-amz-json-1.0\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Reads a request with its body, and adds a header that makes the server close the connection after its response.
async fn read_request(client: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end;
        }
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).expect("headers in UTF-8");
    let header = |name: &str| {
        let named =
            |line: &&str| line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name));
        let line = head.lines().find(named)?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let length: usize = header("content-length")?.parse().expect("a number");
    while bytes.len() < end + 4 + length {
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let target = header("x-amz-target").expect("an operation");
    let body = bytes[end + 4..].to_vec();
    let raw = [head.as_bytes(), b"\r\nconnection: close\r\n\r\n", &body].concat();
    Some(Request {
        operation: target.rsplit('.').next().unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).expect("a JSON body"),
        raw,
    })
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
