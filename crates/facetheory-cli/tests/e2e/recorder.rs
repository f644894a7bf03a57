//! A proxy between the gateway and an application, which records requests and responses.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A request that reached the application.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: Method,
    /// The path and the query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) status: StatusCode,
}

pub(crate) struct Recorder {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Starts a proxy to the application at this address. Bodies are streamed unchanged.
    pub(crate) async fn in_front_of(application: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        // A new connection for each request, since applications close idle connections.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let proxy =
            RecordingProxy { application: application.to_owned(), client, requests: requests.clone() };
        let task = tokio::spawn(async move {
            // Connections end with the task.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(proxy.clone().serve(stream));
            }
        });
        Recorder { address, requests, task }
    }

    /// The requests for this target that reached the application, in order.
    pub(crate) fn requests_for(&self, target: &str) -> Vec<RecordedRequest> {
        self.all().into_iter().filter(|request_record| request_record.target == target).collect()
    }

    /// All requests that reached the application.
    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.requests.lock().expect("not poisoned").clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The connection to the application.
#[derive(Clone)]
struct RecordingProxy {
    application: String,
    client: Client<HttpConnector, Incoming>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl RecordingProxy {
    async fn serve(self, stream: TcpStream) {
        let service = service_fn(|request| self.clone().respond(request));
        // The gateway may close the connection.
        let _ =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn respond(
        self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let target = request.uri().to_string();
        let (method, headers) = (request.method().clone(), request.headers().clone());
        *request.uri_mut() = Uri::builder()
            .scheme("http")
            .authority(self.application)
            .path_and_query(target.clone())
            .build()
            .expect("a target");
        let response = self.client.request(request).await?;
        let request_record = RecordedRequest { method, target, headers, status: response.status() };
        self.requests.lock().expect("not poisoned").push(request_record);
        Ok(response)
    }
}
