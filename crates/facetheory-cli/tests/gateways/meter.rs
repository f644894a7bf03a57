//! A proxy in front of DynamoDB or S3 that counts requests and their capacity units, by the rules that AWS publishes. It can
//! also deny requests, or hold them as a server that hangs does.
//!
//! DynamoDB Local can report consumed capacity, but not as AWS charges it: some writes of a transaction count once instead
//! of twice, and a read that finds nothing counts zero. The proxy therefore reads each row before and after a write.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tabletheory::{Clock as _, SystemClock};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::wait_for;

/// The header with the operation of a request to DynamoDB.
const TARGET: &str = "x-amz-target";
/// A write unit covers this many bytes of a row.
const WRITE_UNIT: usize = 1024;
/// A read unit covers this many bytes.
const READ_UNIT: usize = 4096;

type Forwarded<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One request to DynamoDB or S3.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    /// The operation of DynamoDB, or the method of S3.
    pub(crate) operation: String,
    /// The strings in the keys of its rows, or the path of its object.
    pub(crate) names: Vec<String>,
    /// The IAM actions that DynamoDB requires for it.
    pub(crate) actions: Vec<String>,
    /// The read units that DynamoDB charges.
    pub(crate) read_units: f64,
    /// The write units that DynamoDB charges.
    pub(crate) write_units: f64,
    /// When it arrived at the proxy, in milliseconds since the Unix epoch; zero if it failed.
    pub(crate) arrived: i64,
}

/// Replaces the response to a request with this operation and body, for DynamoDB, or this method and path, for S3: status and body.
type Replacement = Box<dyn Fn(&str, &str) -> Option<(u16, String)> + Send + Sync>;

/// Selects requests by their operation and body, for DynamoDB, or by their method and path, for S3.
type Selector = Box<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// A running proxy.
pub(crate) struct Meter {
    address: SocketAddr,
    calls: Arc<Mutex<Calls>>,
    faults: Arc<Mutex<Faults>>,
    _runtime: Runtime,
}

/// The requests since the last call of [`Meter::take`].
#[derive(Default)]
struct Calls {
    done: Vec<Call>,
    /// The number of requests whose units are not known yet.
    under_way: usize,
}

/// Requests that are not forwarded as they are.
#[derive(Default)]
struct Faults {
    replacement: Option<Replacement>,
    hold: Option<Hold>,
}

/// Requests that are not forwarded before they are released.
struct Hold {
    is_held: Selector,
    released: CancellationToken,
    /// The requests that were held so far, by their operation and body or method and path.
    seen: Vec<String>,
    /// How many of them their clients gave up.
    abandoned: usize,
}

impl Meter {
    /// Starts a proxy to the server at this endpoint.
    pub(crate) fn start(endpoint: &str) -> Meter {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let (address, calls) = (listener.local_addr().expect("an address"), Arc::default());
        let faults = Arc::default();
        let server = Arc::new(Server {
            authority: endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            calls: Arc::clone(&calls),
            faults: Arc::clone(&faults),
        });
        runtime.spawn(accept(listener, server));
        Meter { address, calls, faults, _runtime: runtime }
    }

    /// Responds to some requests without forwarding them. See [`Replacement`] for the parameters.
    pub(crate) fn replace(
        &self,
        replacement: impl Fn(&str, &str) -> Option<(u16, String)> + Send + Sync + 'static,
    ) {
        self.faults.lock().expect("not poisoned").replacement = Some(Box::new(replacement));
    }

    /// Forwards all requests again that were [replaced](Meter::replace).
    pub(crate) fn replace_nothing(&self) {
        self.faults.lock().expect("not poisoned").replacement = None;
    }

    /// Accepts the requests that are selected, but does not respond before [`release`](Meter::release). See [`Selector`] for
    /// the parameters.
    pub(crate) fn hold(&self, is_held: impl Fn(&str, &str) -> bool + Send + Sync + 'static) {
        let (is_held, released) = (Box::new(is_held), CancellationToken::new());
        let hold = Hold { is_held, released, seen: Vec::new(), abandoned: 0 };
        self.faults.lock().expect("not poisoned").hold = Some(hold);
    }

    /// The requests that were held since [`hold`](Meter::hold) or [`release_held`](Meter::release_held), by their operation and
    /// body or method and path.
    pub(crate) fn held(&self) -> Vec<String> {
        let faults = self.faults.lock().expect("not poisoned");
        faults.hold.as_ref().map(|hold| hold.seen.clone()).unwrap_or_default()
    }

    /// How many of the held requests their clients gave up.
    pub(crate) fn abandoned(&self) -> usize {
        self.faults.lock().expect("not poisoned").hold.as_ref().map_or(0, |hold| hold.abandoned)
    }

    /// Forwards the requests that are held, and all further ones.
    pub(crate) fn release(&self) {
        if let Some(hold) = self.faults.lock().expect("not poisoned").hold.take() {
            hold.released.cancel();
        }
    }

    /// Forwards the requests that are held, and holds further ones.
    pub(crate) fn release_held(&self) {
        if let Some(hold) = self.faults.lock().expect("not poisoned").hold.as_mut() {
            hold.seen.clear();
            std::mem::replace(&mut hold.released, CancellationToken::new()).cancel();
        }
    }

    /// Denies these operations of DynamoDB, as a policy without their actions does.
    pub(crate) fn deny(&self, operations: &'static [&'static str]) {
        self.replace(|operation, _| {
            operations.contains(&operation).then(|| (400, dynamodb_error("AccessDeniedException")))
        });
    }

    /// The endpoint of the proxy.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests since the last call, as soon as none is under way.
    pub(crate) fn take(&self) -> Vec<Call> {
        wait_for("no request is under way", || {
            let mut calls = self.calls.lock().expect("not poisoned");
            (calls.under_way == 0).then(|| std::mem::take(&mut calls.done))
        })
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let server = server.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { server.forward(request).await }
        });
        // A broken connection is an error for the client to handle.
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// The server behind the proxy.
struct Server {
    authority: String,
    client: Client<HttpConnector, Full<Bytes>>,
    calls: Arc<Mutex<Calls>>,
    faults: Arc<Mutex<Faults>>,
}

/// A request whose units are not known yet. Dropped when they are, or when its client has disconnected.
struct UnderWay<'a>(&'a Mutex<Calls>);

impl<'a> UnderWay<'a> {
    fn new(calls: &'a Mutex<Calls>) -> Self {
        calls.lock().expect("not poisoned").under_way += 1;
        UnderWay(calls)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().expect("not poisoned").under_way -= 1;
    }
}

/// A request that is not forwarded before it is released. Dropped before that, if its client has disconnected.
struct HeldRequest<'a> {
    faults: &'a Mutex<Faults>,
    released: CancellationToken,
    is_released: bool,
}

impl Drop for HeldRequest<'_> {
    fn drop(&mut self) {
        let mut faults = self.faults.lock().expect("not poisoned");
        if let Some(hold) = faults.hold.as_mut().filter(|_| !self.is_released) {
            hold.abandoned += 1;
        }
    }
}

/// The body of an error response of DynamoDB.
pub(crate) fn dynamodb_error(code: &str) -> String {
    let body = json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "replaced" });
    body.to_string()
}

impl Server {
    /// Forwards a request and records it.
    async fn forward(&self, request: Request<Incoming>) -> Forwarded<Response<Full<Bytes>>> {
        let _under_way = UnderWay::new(&self.calls);
        let (response, call) = match self.exchange(request).await {
            Ok((response, call)) => (Ok(response), call),
            Err(error) => (Err(error), Call::default()),
        };
        self.calls.lock().expect("not poisoned").done.push(call);
        response
    }

    async fn exchange(&self, request: Request<Incoming>) -> Forwarded<(Response<Full<Bytes>>, Call)> {
        let arrived = SystemClock.now().millis();
        let (mut head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        head.uri =
            Uri::builder().scheme("http").authority(&*self.authority).path_and_query(&*path).build()?;
        head.headers.remove(TRANSFER_ENCODING);
        let target = head.headers.get(TARGET).map(|target| target.to_str()).transpose()?;
        let operation = target.and_then(|target| target.rsplit('.').next()).map(str::to_owned);
        let name = operation.clone().unwrap_or_else(|| head.method.to_string());
        let sent =
            if operation.is_some() { String::from_utf8_lossy(&body).into_owned() } else { path.clone() };
        if let Some(mut held) = self.hold(&name, &sent) {
            held.released.cancelled().await;
            held.is_released = true;
        }
        let replaced = {
            let faults = self.faults.lock().expect("not poisoned");
            faults.replacement.as_ref().and_then(|replacement| replacement(&name, &sent))
        };
        if let Some((status, body)) = replaced {
            let response = Response::builder().status(status).body(Full::new(Bytes::from(body)))?;
            return Ok((response, Call { operation: name, arrived, ..Call::default() }));
        }
        let Some(operation) = operation else {
            let operation = name;
            let response = self.send(Request::from_parts(head, Full::new(body))).await?;
            return Ok((response, Call { operation, names: vec![path], arrived, ..Call::default() }));
        };
        let sent: Value = serde_json::from_slice(&body)?;
        let writes = written(&operation, &sent);
        let headers = head.headers.clone();
        let before = self.sizes(&headers, &writes).await?;
        let response = self.send(Request::from_parts(head, Full::new(body))).await?;
        let after = self.sizes(&headers, &writes).await?;
        let factor = if operation == "TransactWriteItems" { 2.0 } else { 1.0 };
        let written_sizes = writes.iter().zip(before.into_iter().zip(after));
        let write_units: f64 = written_sizes
            .map(|(write, (before, after))| factor * units(before.max(after).max(write.put), WRITE_UNIT))
            .sum();
        let received: Value = serde_json::from_slice(&response.body().clone().collect().await?.to_bytes())?;
        let (read_units, mut names) = read(&operation, &sent, &received);
        names.extend(writes.iter().flat_map(|write| strings(&write.key)));
        let actions = actions(&operation, &sent);
        Ok((response, Call { operation, names, actions, read_units, write_units, arrived }))
    }

    /// Records a request that is held, if it is.
    fn hold(&self, name: &str, sent: &str) -> Option<HeldRequest<'_>> {
        let mut faults = self.faults.lock().expect("not poisoned");
        let hold = faults.hold.as_mut().filter(|hold| (hold.is_held)(name, sent))?;
        hold.seen.push(format!("{name} {sent}"));
        Some(HeldRequest { faults: &self.faults, released: hold.released.clone(), is_released: false })
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Forwarded<Response<Full<Bytes>>> {
        let (mut head, body) = self.client.request(request).await?.into_parts();
        head.headers.remove(TRANSFER_ENCODING);
        Ok(Response::from_parts(head, Full::new(body.collect().await?.to_bytes())))
    }

    /// The sizes of these rows; 0 for a row that does not exist.
    async fn sizes(&self, headers: &HeaderMap, writes: &[RowWrite]) -> Forwarded<Vec<usize>> {
        let mut sizes = Vec::with_capacity(writes.len());
        for write in writes {
            let body = json!({ "TableName": write.table, "Key": write.key, "ConsistentRead": true });
            let mut request = Request::post(format!("http://{}/", self.authority))
                .body(Full::new(Bytes::from(body.to_string())))?;
            // Signed for another body, which DynamoDB Local does not check.
            request.headers_mut().clone_from(headers);
            request.headers_mut().remove(CONTENT_LENGTH);
            request.headers_mut().insert(TARGET, "DynamoDB_20120810.GetItem".parse()?);
            let response = self.send(request).await?.into_body().collect().await?.to_bytes();
            sizes.push(size(&serde_json::from_slice::<Value>(&response)?["Item"]));
        }
        Ok(sizes)
    }
}

/// The IAM actions of a request: its operation, or the operations in a transaction.
fn actions(operation: &str, sent: &Value) -> Vec<String> {
    let action = |name: &str| format!("dynamodb:{name}");
    if operation != "TransactWriteItems" {
        return vec![action(operation)];
    }
    let writes = sent["TransactItems"].as_array().into_iter().flatten();
    let kinds = writes.filter_map(|write| write.as_object()?.keys().next());
    kinds.map(|kind| action(&format!("{kind}Item"))).collect()
}

/// A write to one row.
struct RowWrite {
    table: Value,
    key: Value,
    /// The size of the row that is put; 0 for other writes.
    put: usize,
}

/// The rows that a request writes or checks.
fn written(operation: &str, sent: &Value) -> Vec<RowWrite> {
    let row = |write: &Value| {
        let (item, table) = (&write["Item"], write["TableName"].clone());
        let key = if item.is_object() {
            json!({ "pk": item["pk"], "sk": item["sk"] })
        } else {
            write["Key"].clone()
        };
        RowWrite { table, key, put: size(item) }
    };
    match operation {
        "PutItem" | "UpdateItem" | "DeleteItem" => vec![row(sent)],
        "TransactWriteItems" => {
            let writes = sent["TransactItems"].as_array().into_iter().flatten();
            writes.filter_map(|write| write.as_object()?.values().next()).map(row).collect()
        }
        _ => Vec::new(),
    }
}

/// The read units of a request, and the strings in the keys that it names.
fn read(operation: &str, sent: &Value, received: &Value) -> (f64, Vec<String>) {
    let factor = |request: &Value| if request["ConsistentRead"] == true { 1.0 } else { 0.5 };
    let items = |of: &Value| of.as_array().into_iter().flatten().map(size).collect::<Vec<_>>();
    match operation {
        "GetItem" => (factor(sent) * units(size(&received["Item"]), READ_UNIT), strings(&sent["Key"])),
        "Query" | "Scan" => {
            let all = items(&received["Items"]).iter().sum();
            (factor(sent) * units(all, READ_UNIT), strings(&sent["ExpressionAttributeValues"]))
        }
        "BatchGetItem" => {
            let (mut total, mut names) = (0.0, Vec::new());
            for (table, request) in sent["RequestItems"].as_object().into_iter().flatten() {
                let keys: Vec<&Value> = request["Keys"].as_array().into_iter().flatten().collect();
                let mut found = items(&received["Responses"][table]);
                // A row that does not exist costs as much as a small one.
                found.resize(keys.len(), 0);
                total += factor(request) * found.iter().map(|size| units(*size, READ_UNIT)).sum::<f64>();
                names.extend(keys.into_iter().flat_map(strings));
            }
            (total, names)
        }
        _ => (0.0, Vec::new()),
    }
}

fn units(bytes: usize, unit: usize) -> f64 {
    let units = u32::try_from(bytes.div_ceil(unit).max(1)).expect("rows have at most 400 KB");
    f64::from(units)
}

/// The size of an item as DynamoDB counts it, in bytes.
fn size(item: &Value) -> usize {
    item.as_object().into_iter().flatten().map(|(name, value)| name.len() + size_of_value(value)).sum()
}

fn size_of_value(value: &Value) -> usize {
    let Some((kind, value)) = value.as_object().and_then(|value| value.iter().next()) else { return 0 };
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let all = || value.as_array().into_iter().flatten();
    match kind.as_str() {
        "S" => text(value),
        "N" => text(value).div_ceil(2) + 1,
        "B" => text(value) * 3 / 4,
        "SS" => all().map(text).sum(),
        "NS" => all().map(|number| text(number).div_ceil(2) + 1).sum(),
        "L" => 3 + all().map(|value| 1 + size_of_value(value)).sum::<usize>(),
        "M" => 3 + size(value) + value.as_object().map_or(0, serde_json::Map::len),
        _ => 1,
    }
}

/// The strings among these attributes.
fn strings(attributes: &Value) -> Vec<String> {
    let values = attributes.as_object().into_iter().flat_map(|attributes| attributes.values());
    values.filter_map(|value| value["S"].as_str()).map(str::to_owned).collect()
}
