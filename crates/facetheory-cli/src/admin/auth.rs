//! Who may ask: nobody without the token, and no page of somebody else in an operator's browser.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::uri::Authority;
use http::{HeaderMap, Method};

use super::Admin;
use super::problem::Problem;

/// How long an answer may take. A render that takes longer goes on, but nobody waits for it here.
const LONGEST: Duration = Duration::from_secs(120);

/// What says where a browser's request comes from.
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets a request through, or says why not.
pub(super) async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let answer = match check(&admin, &request) {
        Ok(()) => match tokio::time::timeout(LONGEST, next.run(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                let detail =
                    format!("this took longer than {LONGEST:?}; a render goes on, look at the page later");
                Problem::late(detail).into_response()
            }
        },
        Err(problem) => problem.into_response(),
    };
    protected(answer)
}

fn check(admin: &Admin, request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let is_open = matches!(request.uri().path(), "/healthz" | "/readyz");
    match &admin.terms.token {
        Some(token) if !is_open && !bearer(headers).is_some_and(|shown| token.is(shown)) => {
            return Err(Problem::unauthorized());
        }
        Some(_) => {}
        None => check_host(headers, admin.terms.address)?,
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) { Ok(()) } else { check_site(headers) }
}

/// The token that a request shows.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (line, None) = (lines.next()?.as_bytes(), lines.next()) else { return None };
    let (scheme, shown) = line.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| shown.trim_ascii())
}

/// A name of somebody else's that leads here makes a browser believe that its page may read what is here (DNS rebinding).
fn check_host(headers: &HeaderMap, own: SocketAddr) -> Result<(), Problem> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let is_ours = host.is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        let address = name.parse::<std::net::IpAddr>();
        name.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.to_canonical().is_loopback() || address == own.ip())
    });
    if is_ours {
        return Ok(());
    }
    Err(Problem::forbidden("this listener is asked as localhost or 127.0.0.1; with a token, under any name"))
}

/// A page of another site must not make an operator's browser act.
fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
    let site = headers.get(&SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    let is_own_site = site.is_none_or(|site| matches!(site, b"same-origin" | b"none"));
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    let is_own_origin = headers.get_all(ORIGIN).iter().all(|origin| {
        let origin = origin.as_bytes();
        let name = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        name.is_some() && name == host
    });
    if is_own_site && is_own_origin {
        return Ok(());
    }
    Err(Problem::forbidden("a browser sent this for a page of another site; use the console, or a program"))
}

/// Nothing that is shown here runs, is framed, or is kept by anyone.
fn protected(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}
