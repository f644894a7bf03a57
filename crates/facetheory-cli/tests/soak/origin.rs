//! An origin with pages, echoed forms and echoing sockets that fails sometimes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, LINK, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tabletheory::{Random as _, SystemRandom};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// One of this many requests fails, half of them with an error and half with a closed connection.
const FAILS_ONE_OF: u64 = 20;
/// The render time of a page.
const RENDER: Duration = Duration::from_millis(20);
/// The length of a page, besides its path and number.
const PAGE_BYTES: usize = 4096;
/// The number of preload links of a cold page: enough that its rows soon fill the cache of the table.
const LINKS: usize = 1_000;

/// The origin.
pub(crate) struct Origin {
    /// The address on which it listens.
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    served: AtomicU64,
    failed: AtomicU64,
}

/// The connection is closed without a response.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the origin closes the connection")
    }
}

impl std::error::Error for Closed {}

impl Origin {
    /// Starts it.
    pub(crate) fn start(runtime: &Runtime) -> Origin {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let (address, counts) = (listener.local_addr().expect("an address"), Arc::<Counts>::default());
        let counted = counts.clone();
        runtime.spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                tokio::spawn(serve(stream, counted.clone()));
            }
        });
        Origin { address, counts }
    }

    /// The number of failed requests, and of all requests.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let failed = self.counts.failed.load(Ordering::Relaxed);
        (failed, self.counts.served.load(Ordering::Relaxed) + failed)
    }
}

async fn serve(stream: TcpStream, counts: Arc<Counts>) {
    let service = service_fn(move |request| {
        let counts = counts.clone();
        async move {
            let chance = SystemRandom.next_u64() % (2 * FAILS_ONE_OF);
            if chance < 2 {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                return if chance == 0 { Err(Closed) } else { Ok(failure()) };
            }
            let number = counts.served.fetch_add(1, Ordering::Relaxed);
            let Ok(response) = respond(request, number).await;
            Ok(response)
        }
    });
    // The gateway may close the connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn respond(request: Request<Incoming>, number: u64) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.headers().contains_key(UPGRADE) {
        return Ok(switch(request));
    }
    if request.method() == Method::POST {
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        return Ok(Response::new(Full::new(body)));
    }
    tokio::time::sleep(RENDER).await;
    let path = request.uri().path();
    let text = format!("<p>{path}, render {number}</p>{}", ".".repeat(PAGE_BYTES));
    let mut response = Response::new(Full::new(text.into()));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/html"));
    if path.starts_with("/cold/") {
        let preloaded = vec!["</style.css>; rel=preload"; LINKS].join(", ");
        response.headers_mut().insert(LINK, preloaded.parse().expect("links"));
    }
    Ok(response)
}

/// Echoes everything on the connection from now on.
fn switch(request: Request<Incoming>) -> Response<Full<Bytes>> {
    tokio::spawn(async move {
        let Ok(socket) = hyper::upgrade::on(request).await else { return };
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(socket));
        // Ends when the client disconnects.
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, http::HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, http::HeaderValue::from_static("echo"));
    response
}

fn failure() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"internal error")));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
