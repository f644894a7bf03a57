//! A small S3 server with the faults of some real ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use facetheory::Bodies;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// More than any request of a test.
const MAX_BYTES: usize = 1 << 20;

/// The fault of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// A conditional put overwrites an object that exists.
    IgnoresIfNoneMatch,
    /// The first puts, as many as this, get the response 409.
    Conflicts(u32),
    /// Metadata is not stored.
    ForgetsMetadata,
    /// Lists are denied.
    DeniesLists,
    /// Deletes succeed, but nothing is deleted.
    IgnoresDeletes,
    /// Reads return other bytes than were written.
    Garbles,
    /// Everything is denied.
    DeniesEverything,
}

/// An object: its headers and its bytes.
type Object = (Vec<(String, String)>, Vec<u8>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    fault: Fault,
    puts: u32,
}

/// A running store. It stops when it is dropped.
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    endpoint: String,
    task: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

struct Response {
    status: &'static str,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Fake {
    pub(crate) async fn start(fault: Fault) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound port"));
        let state = Arc::new(Mutex::new(State { fault, ..State::default() }));
        let serving = state.clone();
        let task = tokio::spawn(async move {
            // The connections are closed with the store.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, serving.clone()));
            }
        });
        Fake { state, endpoint, task }
    }

    pub(crate) fn bodies(&self) -> Bodies {
        let credentials = Credentials::new("key", "secret", None, None, "tests");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .endpoint_url(&self.endpoint)
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .build();
        Bodies::s3(&config, "bucket", "isr").expect("a store")
    }

    pub(crate) fn puts(&self) -> u32 {
        self.state.lock().expect("not poisoned").puts
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.state.lock().expect("not poisoned").objects.keys().cloned().collect()
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        let response = state.lock().expect("not poisoned").respond(request);
        let mut bytes = format!("HTTP/1.1 {}\r\ncontent-length: ", response.status).into_bytes();
        bytes.extend(format!("{}\r\n", response.body.len()).into_bytes());
        for (name, value) in response.headers {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(response.body);
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// The next request, or `None` if the client closed the connection.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).expect("headers are text");
            let mut lines = head.split("\r\n");
            let mut first = lines.next()?.split(' ').map(str::to_owned);
            let (method, target) = (first.next()?, first.next()?);
            let headers: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length: usize = length.map_or(0, |(_, value)| value.parse().expect("a length"));
            assert!(length <= MAX_BYTES, "tests send little");
            if buffer.len() >= end + 4 + length {
                let body = buffer[end + 4..end + 4 + length].to_vec();
                buffer.drain(..end + 4 + length);
                return Some(Request { method, target, headers, body });
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

impl State {
    fn respond(&mut self, request: Request) -> Response {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let key = path.trim_start_matches("/bucket").trim_start_matches('/').to_owned();
        if self.fault == Fault::DeniesEverything {
            return error("403 Forbidden", "AccessDenied");
        }
        match request.method.as_str() {
            "PUT" => self.put(key, request),
            "GET" if query.contains("list-type=2") => self.list(query),
            "GET" | "HEAD" => self.get(&key, request.method == "HEAD"),
            "DELETE" => {
                if self.fault != Fault::IgnoresDeletes {
                    self.objects.remove(&key);
                }
                Response { status: "204 No Content", headers: vec![], body: vec![] }
            }
            other => panic!("unexpected method {other}"),
        }
    }

    fn put(&mut self, key: String, request: Request) -> Response {
        self.puts += 1;
        if let Fault::Conflicts(left @ 1..) = &mut self.fault {
            *left -= 1;
            return error("409 Conflict", "ConditionalRequestConflict");
        }
        let only_create = request.headers.iter().any(|(name, value)| name == "if-none-match" && value == "*");
        if only_create && self.objects.contains_key(&key) && self.fault != Fault::IgnoresIfNoneMatch {
            return error("412 Precondition Failed", "PreconditionFailed");
        }
        let stored = |name: &str| name == "content-type" || name.starts_with("x-amz-meta-");
        let forgets = self.fault == Fault::ForgetsMetadata;
        let headers = request.headers.into_iter().filter(|(name, _)| stored(name) && !forgets).collect();
        self.objects.insert(key, (headers, request.body));
        Response { status: "200 OK", headers: vec![("etag".into(), "\"1\"".into())], body: vec![] }
    }

    fn get(&self, key: &str, only_head: bool) -> Response {
        let Some((headers, body)) = self.objects.get(key) else {
            return error("404 Not Found", "NoSuchKey");
        };
        let mut headers = headers.clone();
        headers.push(("etag".into(), "\"1\"".into()));
        headers.push(("last-modified".into(), "Tue, 14 Nov 2023 22:13:20 GMT".into()));
        let body = match (only_head, self.fault == Fault::Garbles) {
            (true, _) => vec![],
            (false, true) => vec![b'?'; body.len()],
            (false, false) => body.clone(),
        };
        Response { status: "200 OK", headers, body }
    }

    fn list(&self, query: &str) -> Response {
        if self.fault == Fault::DeniesLists {
            return error("403 Forbidden", "AccessDenied");
        }
        let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
        let prefix = prefix.replace("%2F", "/");
        let contents: String = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(key, (_, body))| {
                format!(
                    "<Contents><Key>{key}</Key><Size>{}</Size>\
                     <LastModified>2023-11-14T22:13:20Z</LastModified></Contents>",
                    body.len()
                )
            })
            .collect();
        let body = format!("<ListBucketResult>{contents}</ListBucketResult>").into_bytes();
        Response { status: "200 OK", headers: vec![], body }
    }
}

fn error(status: &'static str, code: &str) -> Response {
    Response { status, headers: vec![], body: format!("<Error><Code>{code}</Code></Error>").into_bytes() }
}
