//! Purges on the listener for clients, and the responses to them.

use std::net::IpAddr;

use facetheory::IsrService;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, PRAGMA};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use metrics::counter;
use tabletheory::{Random as _, SystemRandom};

use super::dialect::{Rules, is_purge_method};
use super::tenants::TenantRoutes;
use super::{Access, Executor, Parsed, Purge, Refusal};
use crate::config::{Config, Dialect};
use crate::gateway::{Origin, local_response};
use crate::wire::rejection::Rejection;

/// A method of a client that may not purge.
const NOT_ALLOWED: Rejection = Rejection::new(StatusCode::METHOD_NOT_ALLOWED, "the method is not supported");

/// The purges of one configuration.
#[derive(Clone, Debug)]
pub(crate) struct Purges {
    pub(crate) access: Access,
    pub(crate) rules: Rules,
    knows_hosts: bool,
    tenants: TenantRoutes,
}

/// A request to purge or to refresh.
#[derive(Debug)]
pub(crate) enum PurgeRequest {
    /// A purge, which the client may not do, or which is switched off.
    Denied,
    Purge(Parsed),
    /// A new page.
    Refresh,
}

impl Purges {
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        Ok(Purges {
            access: Access::new(&config.purge)?,
            rules: Rules::from(config),
            knows_hosts: config.site.is_some() || !config.hosts.is_empty(),
            tenants: TenantRoutes::from(&config.rules),
        })
    }

    /// Returns the purge or refresh that a client requests; `None` for an ordinary request. Without addresses in `from`, purge
    /// methods are ordinary, too.
    pub(crate) fn parse(&self, peer: IpAddr, request: &Parts) -> Option<PurgeRequest> {
        if !self.concerns(peer, request) {
            return None;
        }
        if is_purge_method(request.method.as_str()) {
            let is_allowed = self.access.allows(peer, &request.headers);
            let parsed = is_allowed.then(|| self.rules.parse(request)).flatten();
            return Some(parsed.map_or(PurgeRequest::Denied, PurgeRequest::Purge));
        }
        Some(self.rules.parse_nginx_helper(request).map_or(PurgeRequest::Refresh, PurgeRequest::Purge))
    }

    /// Whether a request is a purge or a refresh.
    pub(crate) fn concerns(&self, peer: IpAddr, request: &Parts) -> bool {
        if !self.access.is_open() {
            return false;
        }
        let is_get = || {
            let dialects = &self.rules.dialects;
            let is_refresh = dialects.contains(&Dialect::Refresh) && has_no_cache(&request.headers);
            (is_refresh || self.rules.parse_nginx_helper(request).is_some())
                && self.access.allows_get(peer, &request.headers)
        };
        is_purge_method(request.method.as_str()) || (request.method == Method::GET && is_get())
    }

    /// Performs the purges of pages of this cache.
    pub(crate) fn executor(&self, isr: facetheory::Isr, service: IsrService<Origin>) -> Executor {
        Executor { isr, service, knows_hosts: self.knows_hosts, tenants: self.tenants.clone() }
    }
}

/// The response to a client that may not purge: that of a server which does not know the method.
pub(crate) fn denied() -> Response<String> {
    counter!("facetheory_purges_denied_total").increment(1);
    let mut response = local_response(NOT_ALLOWED);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// A purge that was performed.
pub(crate) struct Purged;

impl Executor {
    /// Performs a purge, counts and logs it. It goes on if the client leaves: some products do not wait for the response.
    pub(crate) async fn perform(
        self,
        parsed: Parsed,
        peer: IpAddr,
        host: Option<String>,
    ) -> Result<Purged, Failed> {
        let Parsed { dialect, purge, is_widened } = parsed;
        let dialect = dialect.name();
        let count = |outcome: &'static str| {
            counter!("facetheory_purges_total", "dialect" => dialect, "outcome" => outcome).increment(1);
        };
        let purge = match purge {
            Ok(purge) => purge,
            Err(refusal) => {
                count("refused");
                tracing::warn!(%peer, dialect, reason = refusal.as_str(), "a purge was refused");
                return Err(Failed::Refused(refusal));
            }
        };
        if is_widened {
            counter!("facetheory_purges_widened_total", "dialect" => dialect).increment(1);
            tracing::warn!(%peer, dialect, "a purge was not understood, or is too long: everything is invalidated");
        }
        let work = async move {
            let outcome = self.execute(&purge, host.as_deref()).await;
            (purge, outcome)
        };
        let Ok((Purge { scope, mode }, outcome)) = tokio::spawn(work).await else {
            count("failed");
            return Err(Failed::Stopped);
        };
        match outcome {
            Ok(()) => {
                count("done");
                let text = scope.text();
                tracing::info!(%peer, dialect, scope = scope.name(), ?mode, pages = text, "purged");
                Ok(Purged)
            }
            Err(Failed::Refused(refusal)) => {
                count("refused");
                tracing::warn!(%peer, dialect, scope = scope.name(), reason = refusal.as_str(), "a purge was refused");
                Err(Failed::Refused(refusal))
            }
            Err(Failed::Store(error)) => {
                count("failed");
                tracing::warn!(%peer, dialect, scope = scope.name(), %error, "a purge failed");
                Err(Failed::Store(error))
            }
            Err(Failed::Stopped) => {
                count("failed");
                Err(Failed::Stopped)
            }
        }
    }
}

/// Why a purge was not performed.
#[derive(Debug)]
pub(crate) enum Failed {
    Refused(Refusal),
    Store(facetheory::Error),
    Stopped,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Failed::Refused(refusal)
    }
}

impl From<facetheory::Error> for Failed {
    fn from(error: facetheory::Error) -> Self {
        Failed::Store(error)
    }
}

impl Failed {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Failed::Refused(_) => StatusCode::BAD_REQUEST,
            Failed::Store(_) | Failed::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(crate) fn text(&self) -> &'static str {
        match self {
            Failed::Refused(refusal) => refusal.as_str(),
            Failed::Store(_) => "the purge could not be stored; send it again",
            Failed::Stopped => "the purge was stopped by a shutdown; send it again",
        }
    }
}

/// The response to a purge, as products expect it: 200, also if nothing was cached.
pub(crate) fn respond(outcome: &Result<Purged, Failed>, request: &Parts) -> Response<String> {
    let accepts_json = request
        .headers
        .get_all(ACCEPT)
        .iter()
        .any(|line| line.to_str().is_ok_and(|line| line.contains("json")));
    let (status, content_type, body) = match outcome {
        Ok(Purged) if accepts_json => (StatusCode::OK, "application/json", ok_json()),
        Ok(Purged) => {
            let word = if request.method.as_str() == "BAN" { "Banned" } else { "Purged" };
            (StatusCode::OK, "text/plain; charset=utf-8", word.to_owned())
        }
        Err(failed) => (failed.status(), "text/plain; charset=utf-8", format!("{}\n", failed.text())),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The response of Fastly to a purge.
fn ok_json() -> String {
    serde_json::json!({ "status": "ok", "id": new_id() }).to_string()
}

/// An identifier of a purge.
pub(crate) fn new_id() -> String {
    format!("{:016x}{:016x}", SystemRandom.next_u64(), SystemRandom.next_u64())
}

/// Whether a request demands a response that is not from a cache.
fn has_no_cache(headers: &HeaderMap) -> bool {
    [CACHE_CONTROL, PRAGMA].iter().flat_map(|name| headers.get_all(name)).any(|line| {
        let line = line.to_str().unwrap_or_default();
        line.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("no-cache"))
    })
}
