//! A proxy in front of a real server that fails as it is told to, one action for each request.
//!
//! DynamoDB Local is never busy, never in conflict and never loses an answer; the real one is and does.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What to do with a request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Let the server answer.
    Pass,
    /// Answer with this error, without asking the server.
    Answer { status: u16, error: &'static str, more: Value },
    /// Let the server do it, and lose the answer.
    ForwardThenDrop,
    /// Lose the request.
    DropBefore,
    /// Let the server do it, and never answer.
    ForwardThenStall,
    /// Let the server answer, and change the answer, given the request.
    Rewrite(fn(&Value, Value) -> Value),
}

impl Action {
    /// An error without particulars.
    pub(crate) fn error(status: u16, error: &'static str) -> Action {
        Action::Answer { status, error, more: Value::Null }
    }

    /// A transaction that is cancelled for these reasons.
    pub(crate) fn cancelled(codes: &[&str]) -> Action {
        let reasons: Vec<Value> = codes.iter().map(|code| serde_json::json!({ "Code": code })).collect();
        Action::Answer { status: 400, error: "TransactionCanceledException", more: Value::from(reasons) }
    }
}

/// A running proxy. It stops when it is dropped.
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

/// A request that came by.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The operation, as in `PutItem`.
    pub(crate) operation: String,
    /// What was asked.
    pub(crate) body: Value,
    raw: Vec<u8>,
}

impl Proxy {
    /// A proxy that lets everything pass until it gets a script.
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
            // The connections end with the proxy.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let state = serving.clone();
                connections.spawn(async move { state.serve(client).await });
            }
        });
        Proxy { address, state, task }
    }

    /// Where it listens.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What to do with the next requests; those after them pass.
    pub(crate) fn script(&self, actions: impl IntoIterator<Item = Action>) {
        *self.state.script.lock().expect("not poisoned") = actions.into_iter().collect();
        self.state.seen.lock().expect("not poisoned").clear();
    }

    /// The requests since the last script.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.state.seen.lock().expect("not poisoned").clone()
    }

    /// The operations of the requests since the last script.
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
    /// Serves the one request of a connection; each answer closes it, so none has to be parsed.
    async fn serve(&self, mut client: TcpStream) {
        let Some(request) = read_request(&mut client).await else { return };
        self.seen.lock().expect("not poisoned").push(request.clone());
        let action = self.script.lock().expect("not poisoned").pop_front().unwrap_or(Action::Pass);
        let answer = match action {
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
            Action::Answer { status, error, more } => {
                let body = serde_json::json!({
                    "__type": format!("com.amazonaws.dynamodb.v20120810#{error}"),
                    "message": "as the test says",
                    "CancellationReasons": more,
                });
                response(status, &body)
            }
            Action::Rewrite(change) => {
                let answer = self.forward(&request).await;
                let start = find(&answer, b"\r\n\r\n").expect("the server's answer has a head") + 4;
                let body = serde_json::from_slice(&answer[start..]).expect("the server answers JSON");
                response(200, &change(&request.body, body))
            }
        };
        // A client that has gone away does not want its answer.
        let _ = client.write_all(&answer).await;
        let _ = client.shutdown().await;
    }

    async fn forward(&self, request: &Request) -> Vec<u8> {
        let mut server = TcpStream::connect(&self.server).await.expect("the real server is up");
        server.write_all(&request.raw).await.expect("the real server reads");
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).await.expect("the real server answers");
        answer
    }
}

fn response(status: u16, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: application/x-amz-json-1.0\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Reads a request with its body, and asks the server to close the connection after its answer.
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
    let head = String::from_utf8(bytes[..end].to_vec()).expect("headers are text");
    let header = |name: &str| {
        let named =
            |line: &&str| line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name));
        let line = head.lines().find(named)?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let length: usize = header("content-length")?.parse().expect("a length is a number");
    while bytes.len() < end + 4 + length {
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let target = header("x-amz-target").expect("every call names its operation");
    let body = bytes[end + 4..].to_vec();
    let raw = [head.as_bytes(), b"\r\nconnection: close\r\n\r\n", &body].concat();
    Some(Request {
        operation: target.rsplit('.').next().unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).expect("every call is JSON"),
        raw,
    })
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
