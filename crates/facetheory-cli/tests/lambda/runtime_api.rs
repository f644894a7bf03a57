//! A local runtime API: plays Lambda for one function.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tabletheory::{Clock as _, SystemClock};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::support::{TIMEOUT, wait_for};

/// The time of an invocation, unless a test sets another one.
const INVOCATION: Duration = Duration::from_secs(300);

/// The pause after each part of a response, as of a client that is not on this machine.
const PACE: Duration = Duration::from_millis(1);

/// The runtime API. Its server ends when this is dropped.
pub(crate) struct RuntimeApi {
    pub(crate) address: SocketAddr,
    events: tokio::sync::mpsc::UnboundedSender<Event>,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Event {
    id: usize,
    deadline: i64,
    json: Vec<u8>,
}

struct Shared {
    events: tokio::sync::Mutex<tokio::sync::mpsc::UnboundedReceiver<Event>>,
    /// How often the function has requested the next event.
    next_requests: AtomicUsize,
    invocations: AtomicUsize,
    /// Where the parts of each response are sent.
    calls: Mutex<Vec<mpsc::Sender<Part>>>,
    init_errors: Mutex<Vec<Value>>,
    /// Whether the clients read their responses.
    is_reading: AtomicBool,
}

/// A part of a response of the function.
#[derive(Debug)]
pub(crate) enum Part {
    Head(HeaderMap),
    Data(Bytes),
    /// The end, with trailers if there are any.
    End(Option<HeaderMap>),
    /// The function has closed the connection before the end.
    Aborted,
    /// The function has reported an error.
    Error(Value),
}

/// Sends [`Part::Aborted`] if the request that it belongs to is dropped.
struct Receiving(Option<mpsc::Sender<Part>>);

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            let _ = call.send(Part::Aborted);
        }
    }
}

/// An invocation.
pub(crate) struct Call {
    parts: mpsc::Receiver<Part>,
}

/// A response that was received to its end.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) head: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl RuntimeApi {
    pub(crate) fn start() -> RuntimeApi {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            events: tokio::sync::Mutex::new(receiver),
            next_requests: AtomicUsize::new(0),
            invocations: AtomicUsize::new(0),
            calls: Mutex::default(),
            init_errors: Mutex::default(),
            is_reading: AtomicBool::new(true),
        });
        let of_server = shared.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = of_server.clone();
                let service = service_fn(move |request| handle(shared.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        RuntimeApi { address, events: sender, shared, _runtime: runtime }
    }

    /// Sends an event to the function as soon as it requests one.
    pub(crate) fn invoke(&self, event: impl AsRef<[u8]>) -> Call {
        self.invoke_within(INVOCATION, event)
    }

    /// Sends an event with this time limit.
    pub(crate) fn invoke_within(&self, limit: Duration, event: impl AsRef<[u8]>) -> Call {
        let (sender, parts) = mpsc::channel();
        let id = {
            let mut calls = self.shared.calls.lock().expect("not poisoned");
            calls.push(sender);
            calls.len() - 1
        };
        let deadline = SystemClock.now().millis() + i64::try_from(limit.as_millis()).expect("a short time");
        self.shared.invocations.fetch_add(1, Ordering::SeqCst);
        let event = Event { id, deadline, json: event.as_ref().to_vec() };
        self.events.send(event).unwrap_or_else(|_| panic!("the server has ended"));
        Call { parts }
    }

    /// Whether all invocations have ended: the function has requested another event.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.next_requests.load(Ordering::SeqCst) > self.shared.invocations.load(Ordering::SeqCst)
    }

    /// Waits until all invocations have ended. From now on Lambda may freeze the process.
    pub(crate) fn wait_until_idle(&self) {
        wait_for("the function requests the next event", || self.is_idle().then_some(()));
    }

    /// Sets whether the clients of later invocations read their responses.
    pub(crate) fn set_reading(&self, is_reading: bool) {
        self.shared.is_reading.store(is_reading, Ordering::SeqCst);
    }

    /// The errors at the start of the function.
    pub(crate) fn init_errors(&self) -> Vec<Value> {
        self.shared.init_errors.lock().expect("not poisoned").clone()
    }
}

impl Call {
    /// The next part of the response.
    pub(crate) fn next(&self) -> Part {
        self.parts.recv_timeout(TIMEOUT).expect("the function responds in time")
    }

    /// Reads until the body contains this text, and returns everything of the body so far.
    pub(crate) fn read_until(&self, text: &str) -> Vec<u8> {
        let mut body = Vec::new();
        while !String::from_utf8_lossy(&body).contains(text) {
            match self.next() {
                Part::Head(_) => {}
                Part::Data(data) => body.extend_from_slice(&data),
                other => panic!("{other:?} before {text}"),
            }
        }
        body
    }

    /// The whole response.
    pub(crate) fn receive(&self) -> Received {
        let Part::Head(head) = self.next() else { panic!("no response") };
        let mut body = Vec::new();
        loop {
            match self.next() {
                Part::Data(data) => body.extend_from_slice(&data),
                Part::End(trailers) => return Received { head, body, trailers },
                other => panic!("{other:?}"),
            }
        }
    }

    /// Reads the response to its end, and returns whether Lambda can tell that it is incomplete.
    pub(crate) fn is_cut_off(&self) -> bool {
        loop {
            match self.next() {
                Part::Head(_) | Part::Data(_) => {}
                Part::End(trailers) => return trailers.is_some(),
                Part::Aborted => return true,
                other @ Part::Error(_) => panic!("{other:?}"),
            }
        }
    }

    /// The response as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.receive().body).expect("JSON")
    }

    /// The error that the function has reported.
    pub(crate) fn error(&self) -> Value {
        match self.next() {
            Part::Error(error) => error,
            other => panic!("{other:?}"),
        }
    }
}

async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, mut body) = request.into_parts();
    let path = head.uri.path().strip_prefix("/2018-06-01/runtime").expect("the path of the API").to_owned();
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::ACCEPTED;
    match (&head.method, &words[..]) {
        (&Method::GET, ["invocation", "next"]) => {
            shared.next_requests.fetch_add(1, Ordering::SeqCst);
            // Without another event the request stays open.
            let event = shared.events.lock().await.recv().await;
            let Some(event) = event else { std::future::pending().await };
            *response.status_mut() = StatusCode::OK;
            let headers = response.headers_mut();
            headers.insert("lambda-runtime-aws-request-id", event.id.into());
            headers.insert("lambda-runtime-deadline-ms", event.deadline.into());
            *response.body_mut() = Full::from(event.json);
        }
        (&Method::POST, ["invocation", id, "response"]) => {
            let call = call(&shared, id);
            let _ = call.send(Part::Head(head.headers));
            let mut receiving = Receiving(Some(call.clone()));
            if !shared.is_reading.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let mut trailers = None;
            while let Some(frame) = body.frame().await {
                // A broken connection ends this request.
                let Ok(frame) = frame else { return Ok(response) };
                match frame.into_data() {
                    Ok(data) => {
                        let _ = call.send(Part::Data(data));
                        tokio::time::sleep(PACE).await;
                    }
                    Err(frame) => trailers = frame.into_trailers().ok(),
                }
            }
            receiving.0 = None;
            let _ = call.send(Part::End(trailers));
        }
        (&Method::POST, ["invocation", id, "error"]) => {
            let _ = call(&shared, id).send(Part::Error(json(body).await));
        }
        (&Method::POST, ["init", "error"]) => {
            let error = json(body).await;
            shared.init_errors.lock().expect("not poisoned").push(error);
        }
        other => panic!("not a request of the runtime API: {other:?}"),
    }
    Ok(response)
}

fn call(shared: &Shared, id: &str) -> mpsc::Sender<Part> {
    let id: usize = id.parse().expect("the id of an invocation");
    shared.calls.lock().expect("not poisoned")[id].clone()
}

async fn json(body: Incoming) -> Value {
    let body = body.collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}
