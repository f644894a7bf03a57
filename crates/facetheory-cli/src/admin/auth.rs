//! Access control: the bearer token, and protection against DNS rebinding and cross-site requests.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::uri::Authority;
use http::{HeaderMap, Method};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::AdminSettings;
use super::problem::{FORBIDDEN, LATE, Problem, UNAUTHORIZED};

/// The timeout of a request. A render that takes longer continues in the background.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The relation between the site that caused a browser to send a request and the target.
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks a request, and adds security headers to the response.
pub(super) async fn guard(
    State(settings): State<Arc<AdminSettings>>,
    request: Request,
    next: Next,
) -> Response {
    let response = match check(&settings, &request) {
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

fn check(settings: &AdminSettings, request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
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

/// Returns the bearer token of a request, unless there are several.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (line, None) = (lines.next()?.as_bytes(), lines.next()) else { return None };
    let (scheme, shown) = line.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| shown.trim_ascii())
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

/// The required token. Only its digest is stored, so it cannot be printed or compared byte by byte.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    digest: [u8; 32],
}

impl Token {
    /// Shorter tokens are rejected.
    pub(crate) const MIN_BYTES: usize = 16;
    /// The environment variable that holds the token if no file is configured.
    pub(crate) const VARIABLE: &'static str = "FACETHEORY_ADMIN_TOKEN";

    /// Reads the token from a file or the environment.
    pub(crate) fn read(file: Option<&Path>) -> Result<Option<Self>> {
        if let Some(file) = file {
            let name = file.display();
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the admin token from {name}"))?;
            return Token::new(text.trim_end_matches(['\r', '\n']))
                .with_context(|| format!("the admin token in {name} is invalid"))
                .map(Some);
        }
        let Some(text) = std::env::var_os(Self::VARIABLE) else { return Ok(None) };
        let text = text.to_str().unwrap_or_default();
        Token::new(text)
            .with_context(|| format!("the admin token in {} is invalid", Self::VARIABLE))
            .map(Some)
    }

    fn new(text: &str) -> Result<Self> {
        ensure!(
            text.len() >= Self::MIN_BYTES,
            "it has {} characters, but at least {} are required; `openssl rand -hex 32` generates one",
            text.len(),
            Self::MIN_BYTES
        );
        ensure!(
            text.bytes().all(|byte| byte.is_ascii_graphic()),
            "it must consist of visible ASCII characters"
        );
        Ok(Token { digest: Sha256::digest(text).into() })
    }

    /// Whether `candidate` is the token. Digests are compared in constant time.
    pub(crate) fn matches(&self, candidate: &[u8]) -> bool {
        let candidate: [u8; 32] = Sha256::digest(candidate).into();
        self.digest.ct_eq(&candidate).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_matches() {
        let token = Token::new("0123456789abcdef").expect("a token");
        assert!(token.matches(b"0123456789abcdef"));
        for other in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.matches(other.as_bytes()), "{other}");
        }
        assert!(!format!("{token:?}").contains("0123456789abcdef"), "the token is never printed");
    }

    #[test]
    fn short_and_unprintable_tokens_are_rejected() {
        let error = Token::new("short").expect_err("too short");
        assert!(
            error.to_string().starts_with("it has 5 characters, but at least 16 are required"),
            "{error}"
        );
        assert!(Token::new("0123456789 abcdef").is_err());
    }
}
