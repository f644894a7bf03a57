//! Access control: the bearer token, and protection against DNS rebinding and cross-site requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::uri::Authority;
use http::{HeaderMap, Method};

use super::AdminSettings;
use super::problem::{FORBIDDEN, LATE, Problem, UNAUTHORIZED};
use super::purge::{Peer, is_purge};
use crate::gateway::Gateway;
use crate::purge::is_of_program;
use crate::token::bearer;

/// The timeout of a request. A render that takes longer continues in the background.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The relation between the site that caused a browser to send a request and the target.
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The settings of access to the admin listener.
pub(super) struct Guard {
    pub(super) settings: AdminSettings,
    /// Its configuration says who may purge.
    pub(super) gateway: Arc<Gateway>,
}

/// Checks a request, and adds security headers to the response.
pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let response = match check(&guard, &request) {
        Ok(()) => match tokio::time::timeout(TIMEOUT, next.run(request)).await {
            Ok(response) => response,
            Err(_) => {
                let detail = format!("timeout after {TIMEOUT:?}; a render continues, check the page later");
                Problem::new(&LATE, detail).into_response()
            }
        },
        Err(problem) => problem.into_response(),
    };
    protected(response)
}

fn check(Guard { settings, gateway }: &Guard, request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    if is_purge(request.method(), request.uri().path()) {
        let (access, peer) = (gateway.purges().access, Peer::of(request.extensions()));
        // Products send their own headers and any host, and a browser is not one of them.
        let is_admin = match &settings.token {
            Some(token) => access.shows(headers, token),
            None => is_of_program(headers),
        };
        if is_admin || access.allows(peer, headers) {
            return Ok(());
        }
        let detail = "a purge needs the admin token, or an address and a token that [purge] allows";
        return Err(Problem::new(&UNAUTHORIZED, detail));
    }
    let is_open = matches!(request.uri().path(), "/healthz" | "/readyz");
    match &settings.token {
        Some(token) if !is_open && !bearer(headers).is_some_and(|shown| token.matches(shown)) => {
            let detail = "the admin token is required: send it as `Authorization: Bearer TOKEN`";
            return Err(Problem::new(&UNAUTHORIZED, detail));
        }
        Some(_) => {}
        None => check_host(headers, settings.address)?,
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) { Ok(()) } else { check_same_site(headers) }
}

/// Prevents DNS rebinding: another site's name that resolves to this address would let its pages read responses.
fn check_host(headers: &HeaderMap, own: SocketAddr) -> Result<(), Problem> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let is_ours = host.is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        let address = name.parse::<IpAddr>();
        name.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.to_canonical().is_loopback() || address == own.ip())
    });
    if is_ours {
        return Ok(());
    }
    let detail = "without a token, the host must be localhost or a loopback address";
    Err(Problem::new(&FORBIDDEN, detail))
}

/// Prevents cross-site request forgery: another site's page must not send commands through an operator's browser.
fn check_same_site(headers: &HeaderMap) -> Result<(), Problem> {
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
    let detail = "a browser sent this request for a page of another site; use the console or a program";
    Err(Problem::new(&FORBIDDEN, detail))
}

/// Adds headers that forbid caching, framing and scripts.
fn protected(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
