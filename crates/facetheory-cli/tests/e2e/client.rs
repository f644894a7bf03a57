//! A browser-like client: sends cookies back, and does not follow redirects.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderName, ORIGIN, REFERER, SET_COOKIE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::in_time;

#[derive(Clone)]
pub(crate) struct Client {
    host: String,
    client: legacy::Client<HttpConnector, Full<Bytes>>,
    pub(crate) cookies: BTreeMap<String, String>,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A response whose body is still arriving.
pub(crate) struct StreamingResponse {
    pub(crate) status: StatusCode,
    body: Incoming,
    received: String,
}

impl Client {
    /// A client of the site at this address.
    pub(crate) fn of(address: &str) -> Self {
        let client = legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Client { host: address.to_owned(), client, cookies: BTreeMap::new() }
    }

    pub(crate) async fn get(&mut self, target: &str) -> Response {
        self.get_with(target, &[]).await
    }

    pub(crate) async fn get_with(&mut self, target: &str, headers: &[(HeaderName, &str)]) -> Response {
        self.request(Method::GET, target, headers, Bytes::new()).await
    }

    pub(crate) async fn head(&mut self, target: &str) -> Response {
        self.request(Method::HEAD, target, &[], Bytes::new()).await
    }

    /// Sends a form as a browser does.
    pub(crate) async fn post(&mut self, target: &str, kind: &str, body: impl Into<Bytes>) -> Response {
        let origin = format!("http://{}", self.host);
        self.post_from(&origin, target, kind, body).await
    }

    /// Sends a form with the Origin and Referer of a page of this site.
    pub(crate) async fn post_from(
        &mut self,
        site: &str,
        target: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> Response {
        let referer = format!("{site}{target}");
        let headers = [(CONTENT_TYPE, kind), (ORIGIN, site), (REFERER, &*referer)];
        self.request(Method::POST, target, &headers, body.into()).await
    }

    async fn request(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(HeaderName, &str)],
        body: Bytes,
    ) -> Response {
        let what = format!("{method} {target}");
        let response = self.send(method, target, headers, body).await;
        let (parts, body) = response.into_parts();
        let body = in_time(&what, body.collect()).await.expect("a complete body").to_bytes();
        self.remember(&parts.headers);
        Response { status: parts.status, headers: parts.headers, body }
    }

    /// Sends a GET, and returns before the body is complete.
    pub(crate) async fn stream(&mut self, target: &str) -> StreamingResponse {
        let response = self.send(Method::GET, target, &[], Bytes::new()).await;
        StreamingResponse { status: response.status(), body: response.into_body(), received: String::new() }
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(HeaderName, &str)],
        body: Bytes,
    ) -> http::Response<Incoming> {
        let what = format!("{method} {target}");
        let uri = format!("http://{}{target}", self.host);
        let mut request = Request::builder().method(method).uri(uri).header(HOST, &self.host);
        if !self.cookies.is_empty() {
            let cookies: Vec<_> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            request = request.header(COOKIE, cookies.join("; "));
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        in_time(&what, self.client.request(request)).await.expect("a response")
    }

    fn remember(&mut self, headers: &HeaderMap) {
        for line in headers.get_all(SET_COOKIE) {
            let line = line.to_str().expect("text");
            let (name, value) =
                line.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
    }
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text from this prefix to the next quotation mark.
    pub(crate) fn quoted_after(&self, prefix: &str) -> String {
        let text = self.text();
        let (_, rest) = text.split_once(prefix).unwrap_or_else(|| panic!("no {prefix:?} in {text}"));
        rest.split('"').next().unwrap_or_default().to_owned()
    }

    /// A header as text; "" if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// The cache state.
    pub(crate) fn state(&self) -> &str {
        self.header("x-facetheory-isr")
    }
}

impl StreamingResponse {
    /// Reads until the body contains these words, and returns everything so far.
    pub(crate) async fn read_until(&mut self, words: &str) -> &str {
        while !self.received.contains(words) {
            let frame = in_time(words, self.body.frame()).await;
            let frame =
                frame.unwrap_or_else(|| panic!("no {words:?} in {:?}", self.received)).expect("a piece");
            if let Some(piece) = frame.data_ref() {
                self.received.push_str(&String::from_utf8_lossy(piece));
            }
        }
        &self.received
    }
}
