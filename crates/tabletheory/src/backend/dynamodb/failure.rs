//! Failed attempts: whether the request may have been applied, and the message for the caller.

use std::error::Error as StdError;
use std::fmt;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use hyper_util::client::legacy::Error as ClientError;

use super::transport::TableLabel;
use crate::error::{Error, Kind};

/// The consequence of a failed attempt for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// Not applied, and a retry would fail in the same way.
    Permanent(Kind),
    /// Not applied, and may be retried.
    NotApplied,
    /// May or may not have been applied.
    Ambiguous,
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    /// Whether the request exceeded a capacity.
    pub(super) is_throttling: bool,
    message: String,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Failure { kind, is_throttling: false, message: message.into(), cause: None }
    }

    /// A request that exceeded a capacity, and was not applied.
    pub(super) fn throttled(message: impl Into<String>) -> Self {
        Failure { is_throttling: true, ..Failure::new(FailureKind::NotApplied, message) }
    }

    /// Classifies an error of the SDK.
    pub(super) fn of<E>(error: SdkError<E>, table: &TableLabel) -> Self
    where
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let (kind, message) = match &error {
            SdkError::ConstructionFailure(_) => {
                (FailureKind::Permanent(Kind::Invalid), format!("the request to {table} could not be built"))
            }
            SdkError::TimeoutError(_) => (FailureKind::Ambiguous, format!("{table} did not respond in time")),
            SdkError::DispatchFailure(dispatch) => match of_sources(&error) {
                Some(found) => (found.0, format!("{} {table}; {}", found.1, found.2)),
                None if dispatch.is_user() => (
                    FailureKind::Permanent(Kind::Invalid),
                    format!("the request to {table} could not be built"),
                ),
                None => (FailureKind::Ambiguous, format!("{table} did not respond")),
            },
            SdkError::ResponseError(response) => {
                let status = response.raw().status().as_u16();
                (of_status(status), format!("the response of {table} with status {status} could not be read"))
            }
            SdkError::ServiceError(service) => {
                let status = service.raw().status().as_u16();
                let kind = of_response(error.code(), status);
                (kind, service_message(error.code(), error.message(), status, table))
            }
            // The SDK may add variants; a request with an unknown failure may have been applied.
            _ => (FailureKind::Ambiguous, format!("unknown failure of {table}")),
        };
        let is_throttling = match error.code() {
            Some(code) => THROTTLING.contains(&without_suffix(code)),
            None => error.raw_response().is_some_and(|response| response.status().as_u16() == 429),
        };
        let code = error.code().map(str::to_owned);
        let cause: Box<dyn StdError + Send + Sync> = match code {
            Some(code) => Box::new(Coded { code, error: Box::new(error) }),
            None => Box::new(error),
        };
        Failure { kind, is_throttling, message, cause: Some(cause) }
    }

    /// Marks the request as not sent, so that it was certainly not applied.
    pub(super) fn unsent(mut self) -> Self {
        if self.kind == FailureKind::Ambiguous {
            self.kind = FailureKind::NotApplied;
        }
        self
    }

    /// Converts to the error for the caller.
    pub(super) fn into_error(self, error_kind: Kind) -> Error {
        let Failure { kind, message, cause, .. } = self;
        let message = match error_kind {
            Kind::Unknown if kind != FailureKind::Permanent(Kind::Unknown) => {
                format!("{message}; the write may or may not have been applied: read the rows back")
            }
            _ => message,
        };
        let error = Error::new(error_kind, message);
        match cause {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

/// An error of the SDK with the code of the service.
#[derive(Debug)]
struct Coded {
    code: String,
    error: Box<dyn StdError + Send + Sync>,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for Coded {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// Returns the code of DynamoDB's response that caused this error, such as `AccessDeniedException`. `None` if another
/// failure caused it.
///
/// ```
/// let error = tabletheory::Key::new("", "").check().unwrap_err();
/// assert_eq!(tabletheory::dynamodb::error_code(&error), None);
/// ```
#[must_use]
pub fn error_code<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(coded) = error.downcast_ref::<Coded>() {
            return Some(&coded.code);
        }
        next = error.source();
    }
    None
}

/// Whether DynamoDB rejected the request of this error because of the credentials, a permission or a missing table. Each
/// request fails alike until an operator changes that.
///
/// ```
/// let error = tabletheory::Key::new("", "").check().unwrap_err();
/// assert!(!tabletheory::dynamodb::is_denied(&error));
/// ```
#[must_use]
pub fn is_denied(error: &(dyn StdError + 'static)) -> bool {
    error_code(error).is_some_and(|code| is_denial(without_suffix(code)))
}

/// Error codes of requests that exceeded a capacity and were certainly not applied. Here and below without the suffix
/// `Exception`, which some codes have and some lack, depending on the service that responds.
const THROTTLING: &[&str] = &[
    "ProvisionedThroughputExceeded",
    "RequestLimitExceeded",
    "RequestThrottled",
    "SlowDown",
    "Throttled",
    "Throttling",
    "TooManyRequests",
];

/// Error codes of other requests that were certainly not applied.
const CONFLICTS: &[&str] =
    &["LimitExceeded", "PriorRequestNotComplete", "ReplicatedWriteConflict", "TransactionConflict"];

/// Whether a request with this error code was certainly not applied, so that it may be sent again.
fn is_not_applied(code: &str) -> bool {
    THROTTLING.contains(&code) || CONFLICTS.contains(&code)
}

/// Error codes of requests that may have been applied, or may still be.
///
/// Includes a transaction in progress: another request with the same client token, perhaps one of ours that timed out, is
/// being processed and may still succeed.
const AMBIGUOUS: &[&str] = &[
    "InternalServerError",
    "InternalFailure",
    "RequestTimeout",
    "ServiceUnavailable",
    "TransactionInProgress",
];

/// Error codes of rejected credentials.
const CREDENTIALS: &[&str] = &[
    "ExpiredToken",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignature",
    "MissingAuthenticationToken",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
];

/// Whether this is the error code of a missing permission, a missing table or rejected credentials: nothing was applied, and
/// nothing is wrong with the call itself.
fn is_denial(code: &str) -> bool {
    matches!(code, "AccessDenied" | "ResourceNotFound") || CREDENTIALS.contains(&code)
}

/// Classifies an error response by its code or, if that is unknown, by its status.
fn of_response(code: Option<&str>, status: u16) -> FailureKind {
    match code.map(without_suffix) {
        Some(code) if is_not_applied(code) => FailureKind::NotApplied,
        Some(code) if AMBIGUOUS.contains(&code) => FailureKind::Ambiguous,
        Some(code) if is_denial(code) => FailureKind::Permanent(Kind::Unavailable),
        // DynamoDB Local sometimes returns this code for a retry of the same writes.
        Some("IdempotentParameterMismatch") => FailureKind::Permanent(Kind::Unknown),
        _ => of_status(status),
    }
}

fn without_suffix(code: &str) -> &str {
    code.strip_suffix("Exception").unwrap_or(code)
}

fn of_status(status: u16) -> FailureKind {
    match status {
        408 => FailureKind::Ambiguous,
        429 => FailureKind::NotApplied,
        400..=499 => FailureKind::Permanent(Kind::Invalid),
        // A success whose response cannot be read.
        _ => FailureKind::Ambiguous,
    }
}

fn service_message(code: Option<&str>, message: Option<&str>, status: u16, table: &TableLabel) -> String {
    let code = code.map_or_else(|| format!("status {status}"), str::to_owned);
    let detail = message.map_or_else(|| code.clone(), |message| format!("{code}: {message}"));
    match without_suffix(&code) {
        "ResourceNotFound" => format!(
            "{table} does not exist; check its name, the region and the endpoint, \
             or create it with `create_table_if_missing` ({detail})"
        ),
        "AccessDenied" => {
            format!("access to {table} is denied; grant this identity the actions on the table ({detail})")
        }
        code if CREDENTIALS.contains(&code) => format!(
            "{table} rejected the credentials; check the access key, the session token, the region \
             and this machine's clock ({detail})"
        ),
        code if is_not_applied(code) => {
            format!("{table} is busy; try again later, or raise its limits ({detail})")
        }
        _ => format!("{table} returned {detail}"),
    }
}

/// Finds failures before the request was sent in the chain of sources: kind, problem, remedy.
fn of_sources(error: &(dyn StdError + 'static)) -> Option<(FailureKind, &'static str, &'static str)> {
    let mut next = Some(error);
    while let Some(error) = next {
        // Only the HTTP client knows whether there was a connection. If its type ever changes, this does not match and
        // the failure counts as ambiguous, which is safe.
        if let Some(client) = error.downcast_ref::<ClientError>() {
            return client.is_connect().then_some((
                FailureKind::NotApplied,
                "cannot connect to",
                "check that it is up and that the endpoint and the region are right",
            ));
        }
        if let Some(credentials) = error.downcast_ref::<CredentialsError>() {
            let is_temporary = matches!(
                credentials,
                CredentialsError::ProviderTimedOut(_) | CredentialsError::ProviderError(_)
            );
            let kind =
                if is_temporary { FailureKind::NotApplied } else { FailureKind::Permanent(Kind::Invalid) };
            return Some((
                kind,
                "there are no AWS credentials for",
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role for this machine",
            ));
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TableLabel {
        TableLabel { table: "pages".into(), endpoint: std::sync::Arc::default() }
    }

    #[test]
    fn error_codes_and_statuses_are_classified() {
        for (code, status, kind) in [
            (Some("ThrottlingException"), 400, FailureKind::NotApplied),
            (Some("ProvisionedThroughputExceededException"), 400, FailureKind::NotApplied),
            (Some("RequestLimitExceeded"), 400, FailureKind::NotApplied),
            (Some("LimitExceededException"), 400, FailureKind::NotApplied),
            (Some("TransactionConflictException"), 400, FailureKind::NotApplied),
            // A proxy may change the status.
            (Some("ThrottlingException"), 503, FailureKind::NotApplied),
            (None, 429, FailureKind::NotApplied),
            (Some("TransactionInProgressException"), 400, FailureKind::Ambiguous),
            (Some("InternalServerError"), 500, FailureKind::Ambiguous),
            (Some("ServiceUnavailable"), 503, FailureKind::Ambiguous),
            (None, 502, FailureKind::Ambiguous),
            (None, 408, FailureKind::Ambiguous),
            (None, 200, FailureKind::Ambiguous),
            (Some("IdempotentParameterMismatchException"), 400, FailureKind::Permanent(Kind::Unknown)),
            (Some("ValidationException"), 400, FailureKind::Permanent(Kind::Invalid)),
            (Some("ResourceNotFoundException"), 400, FailureKind::Permanent(Kind::Unavailable)),
            (Some("AccessDeniedException"), 400, FailureKind::Permanent(Kind::Unavailable)),
            (Some("UnrecognizedClientException"), 400, FailureKind::Permanent(Kind::Unavailable)),
            (Some("UnknownCode"), 400, FailureKind::Permanent(Kind::Invalid)),
            (Some("UnknownCode"), 500, FailureKind::Ambiguous),
        ] {
            assert_eq!(of_response(code, status), kind, "{code:?} {status}");
        }
    }

    #[test]
    fn messages_say_what_to_do() {
        let missing = service_message(Some("ResourceNotFoundException"), None, 400, &table());
        assert!(
            missing.contains("table `pages`") && missing.contains("create_table_if_missing"),
            "{missing}"
        );
        let skewed = service_message(Some("InvalidSignatureException"), Some("too old"), 400, &table());
        assert!(skewed.contains("clock") && skewed.contains("too old"), "{skewed}");
        let other = service_message(None, None, 502, &table());
        assert_eq!(other, "table `pages` at DynamoDB returned status 502");
    }

    #[test]
    fn the_message_of_an_unknown_outcome_says_so() {
        let error = Failure::new(FailureKind::Ambiguous, "no response").into_error(Kind::Unknown);
        assert_eq!(
            error.to_string(),
            "no response; the write may or may not have been applied: read the rows back"
        );
        assert_eq!(
            Failure::new(FailureKind::NotApplied, "busy").into_error(Kind::Unavailable).to_string(),
            "busy"
        );
    }
}
