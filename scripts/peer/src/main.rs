//! The bare hyper server of `scripts/bench-http`, and the origin of all other servers there.
//!
//! It responds to every request with a page of 8 KiB. Segments of the path change that:
//!
//! | segment | effect |
//! |---|---|
//! | `size=65536` | a page of this many bytes |
//! | `delay=300` | the response is sent after this many milliseconds |
//! | `cache=no-store` | this `Cache-Control` |
//! | `etag=1` | with `ETag` and `Last-Modified` |
//! | `noise=1` | a page that no compression makes smaller |
//! | `own=1` | a page of its own: it begins with its path |
//!
//! `GET /-/requests` returns how many pages were requested so far.
//!
//! `cargo run --release --manifest-path scripts/peer/Cargo.toml -- 127.0.0.1:3000`

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, LAST_MODIFIED};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

const PAGE_BYTES: usize = 8 * 1024;
const MAX_BYTES: usize = 1024 * 1024;
const WORDS: [&str; 16] = [
    "<p>",
    "</p>\n",
    "<a href=\"/",
    "\">",
    "</a> ",
    "page ",
    "cache ",
    "origin ",
    "request ",
    "response ",
    "fresh ",
    "stale ",
    "of ",
    "the ",
    "a ",
    "is ",
];

/// Text that compresses about as well as HTML.
static TEXT: LazyLock<Bytes> = LazyLock::new(|| {
    let mut random = random_numbers();
    let mut text = Vec::with_capacity(MAX_BYTES + 16);
    while text.len() < MAX_BYTES {
        let number = random();
        text.extend_from_slice(WORDS[number as usize % WORDS.len()].as_bytes());
        if number >> 8 & 3 == 0 {
            text.extend_from_slice(&[b'a' + (number >> 16) as u8 % 26, b'a' + (number >> 24) as u8 % 26]);
        }
    }
    text.truncate(MAX_BYTES);
    text.into()
});
/// Bytes that do not compress.
static NOISE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut random = random_numbers();
    (0..MAX_BYTES).map(|_| (random() >> 24) as u8).collect::<Vec<u8>>().into()
});
static REQUESTS: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: SocketAddr = std::env::args().nth(1).unwrap_or("127.0.0.1:0".to_owned()).parse()?;
    let listener = tokio::net::TcpListener::bind(address).await?;
    writeln!(std::io::stdout(), "listening on http://{}/", listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // A broken connection is an error for the client to handle.
            let _ = stream.set_nodelay(true);
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(respond)).await;
        });
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    if path == "/-/requests" {
        return Ok(Response::new(Full::new(REQUESTS.load(Relaxed).to_string().into())));
    }
    REQUESTS.fetch_add(1, Relaxed);
    let (mut size, mut source, mut own) = (PAGE_BYTES, &TEXT, false);
    let mut cache_control = HeaderValue::from_static("public, max-age=3600");
    let mut response = Response::new(Full::default());
    for (name, value) in path.split('/').filter_map(|segment| segment.split_once('=')) {
        match name {
            "size" => size = value.parse().unwrap_or(PAGE_BYTES).min(MAX_BYTES),
            "delay" => tokio::time::sleep(Duration::from_millis(value.parse().unwrap_or(0))).await,
            "cache" => cache_control = HeaderValue::from_str(value).unwrap_or(cache_control),
            "noise" => source = &NOISE,
            "own" => own = true,
            "etag" => {
                let date = HeaderValue::from_static("Mon, 02 Nov 2026 08:00:00 GMT");
                response.headers_mut().insert(ETAG, HeaderValue::from_static("\"0123456789abcdef\""));
                response.headers_mut().insert(LAST_MODIFIED, date);
            }
            _ => {}
        }
    }
    let mut body = source.slice(..size);
    if own && path.len() <= size {
        let mut page = BytesMut::with_capacity(size);
        page.extend_from_slice(path.as_bytes());
        page.extend_from_slice(&source[path.len()..size]);
        body = page.freeze();
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, cache_control);
    *response.body_mut() = Full::new(body);
    Ok(response)
}

/// Xorshift: the same numbers in each run.
fn random_numbers() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
