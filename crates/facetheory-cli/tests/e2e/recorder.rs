//! Who stands between the gateway and an application and notes what the one asks and the other answers.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// One request that reached the application.
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
    notes: Arc<Mutex<Vec<RecordedRequest>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// In front of the application at this address. Bodies pass as they come; nothing is changed.
    pub(crate) async fn before(application: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let notes = Arc::new(Mutex::new(Vec::new()));
        // Applications close connections that idle; one connection for each request cannot be caught by that.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let asked = ParsedHead { application: application.to_owned(), client, notes: notes.clone() };
        let task = tokio::spawn(async move {
            // Its connections end with it.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(asked.clone().serve(stream));
            }
        });
        Recorder { address, notes, task }
    }

    /// What has reached the application of this target, in its order.
    pub(crate) fn saw(&self, target: &str) -> Vec<RecordedRequest> {
        self.all().into_iter().filter(|note| note.target == target).collect()
    }

    /// All that has reached the application.
    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.notes.lock().expect("nobody panicked").clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The application, as the witness asks it.
#[derive(Clone)]
struct ParsedHead {
    application: String,
    client: Client<HttpConnector, Incoming>,
    notes: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl ParsedHead {
    async fn serve(self, stream: TcpStream) {
        let service = service_fn(|request| self.clone().answer(request));
        // A gateway that goes away is no fault of this connection.
        let _ =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(
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
        let note = RecordedRequest { method, target, headers, status: response.status() };
        self.notes.lock().expect("nobody panicked").push(note);
        Ok(response)
    }
}
