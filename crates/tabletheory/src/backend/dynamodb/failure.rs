//! What a failed attempt means: whether it was applied, and what to do about it.

use std::error::Error as StdError;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use hyper_util::client::legacy::Error as ClientError;

use super::wire::Place;
use crate::error::{Error, Kind};

/// What one failed attempt says about the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was not applied, and the same call would fail in the same way.
    Final(Kind),
    /// It was not applied, and may be tried again.
    NotApplied,
    /// It may or may not have been applied.
    Ambiguous,
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) verdict: Verdict,
    message: String,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl Failure {
    pub(super) fn new(verdict: Verdict, message: impl Into<String>) -> Self {
        Failure { verdict, message: message.into(), cause: None }
    }

    /// Reads what the SDK reports.
    pub(super) fn of<E>(error: SdkError<E>, place: &Place) -> Self
    where
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let (verdict, message) = match &error {
            SdkError::ConstructionFailure(_) => {
                (Verdict::Final(Kind::Invalid), format!("the request to {place} could not be made"))
            }
            SdkError::TimeoutError(_) => (Verdict::Ambiguous, format!("no answer in time from {place}")),
            SdkError::DispatchFailure(dispatch) => match of_chain(&error) {
                Some(found) => (found.0, format!("{} {place}; {}", found.1, found.2)),
                None if dispatch.is_user() => {
                    (Verdict::Final(Kind::Invalid), format!("the request to {place} could not be made"))
                }
                None => (Verdict::Ambiguous, format!("no answer came from {place}")),
            },
            SdkError::ResponseError(response) => {
                let status = response.raw().status().as_u16();
                (of_status(status), format!("an answer of {place} with status {status} could not be read"))
            }
            SdkError::ServiceError(service) => {
                let status = service.raw().status().as_u16();
                let verdict = of_answer(error.code(), status);
                (verdict, of_service(error.code(), error.message(), status, place))
            }
            // The SDK may add to its enumeration; what is not known may have happened.
            _ => (Verdict::Ambiguous, format!("a failure that this version does not know, of {place}")),
        };
        Failure { verdict, message, cause: Some(Box::new(error)) }
    }

    /// The same failure of an attempt in which nothing was sent, so that nothing can be in doubt.
    pub(super) fn unsent(mut self) -> Self {
        if self.verdict == Verdict::Ambiguous {
            self.verdict = Verdict::NotApplied;
        }
        self
    }

    /// The error that the caller sees.
    pub(super) fn into_error(self, kind: Kind) -> Error {
        let Failure { verdict, message, cause } = self;
        let message = match kind {
            Kind::Unknown if verdict != Verdict::Final(Kind::Unknown) => {
                format!("{message}; the write may or may not have happened: read the rows back")
            }
            _ => message,
        };
        let error = Error::new(kind, message);
        match cause {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

/// Answers that say for certain that nothing was applied and that a later try may be.
const NOT_APPLIED: &[&str] = &[
    "LimitExceededException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "RequestLimitExceededException",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionConflictException",
];

/// Answers that leave open whether the call was, or is just being, applied.
///
/// A transaction in progress is among them: another call under its client token, perhaps one of ours that
/// timed out, is at work and may still succeed.
const AMBIGUOUS: &[&str] = &[
    "InternalServerError",
    "InternalServerErrorException",
    "InternalFailure",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "TransactionInProgressException",
];

/// Answers about who is calling.
const CREDENTIALS: &[&str] = &[
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// What an answer with this error code means; without a known code its status decides.
fn of_answer(code: Option<&str>, status: u16) -> Verdict {
    match code {
        Some(code) if NOT_APPLIED.contains(&code) => Verdict::NotApplied,
        Some(code) if AMBIGUOUS.contains(&code) => Verdict::Ambiguous,
        // DynamoDB Local has been seen to answer this to a repeat of the same writes.
        Some("IdempotentParameterMismatchException") => Verdict::Final(Kind::Unknown),
        _ => of_status(status),
    }
}

fn of_status(status: u16) -> Verdict {
    match status {
        408 => Verdict::Ambiguous,
        429 => Verdict::NotApplied,
        400..=499 => Verdict::Final(Kind::Invalid),
        // A success that cannot be read is a success of which nobody knows.
        _ => Verdict::Ambiguous,
    }
}

fn of_service(code: Option<&str>, message: Option<&str>, status: u16, place: &Place) -> String {
    let code = code.map_or_else(|| format!("status {status}"), str::to_owned);
    let said = message.map_or_else(|| code.clone(), |message| format!("{code}: {message}"));
    match code.as_str() {
        "ResourceNotFoundException" => format!(
            "{place} does not exist; check its name, the region and the endpoint, \
             or make it with `create_table_if_missing` ({said})"
        ),
        "AccessDeniedException" => {
            format!("access to {place} is denied; allow this identity the actions on the table ({said})")
        }
        code if CREDENTIALS.contains(&code) => format!(
            "{place} did not accept the credentials; check the access key, the session token, the region \
             and this machine's clock ({said})"
        ),
        code if NOT_APPLIED.contains(&code) => {
            format!("{place} is busy; try again later, or raise its limits ({said})")
        }
        _ => format!("{place} answered {said}"),
    }
}

/// Failures before anything was sent, found in the chain of causes: verdict, what happened, what to do.
fn of_chain(error: &(dyn StdError + 'static)) -> Option<(Verdict, &'static str, &'static str)> {
    let mut next = Some(error);
    while let Some(error) = next {
        // Only the HTTP client itself knows whether there was a connection. Were its type to change under
        // our feet, this would no longer match and the failure would count as ambiguous, which is safe.
        if let Some(client) = error.downcast_ref::<ClientError>() {
            return client.is_connect().then_some((
                Verdict::NotApplied,
                "cannot connect to",
                "check that it is up and that the endpoint and the region are right",
            ));
        }
        if let Some(credentials) = error.downcast_ref::<CredentialsError>() {
            let passing = matches!(
                credentials,
                CredentialsError::ProviderTimedOut(_) | CredentialsError::ProviderError(_)
            );
            let verdict = if passing { Verdict::NotApplied } else { Verdict::Final(Kind::Invalid) };
            return Some((
                verdict,
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

    fn place() -> Place {
        Place { table: "pages".into(), address: super::super::wire::Address::default() }
    }

    #[test]
    fn what_was_not_applied_is_told_from_what_may_have_been() {
        for (code, status, verdict) in [
            (Some("ThrottlingException"), 400, Verdict::NotApplied),
            (Some("ProvisionedThroughputExceededException"), 400, Verdict::NotApplied),
            (Some("RequestLimitExceeded"), 400, Verdict::NotApplied),
            (Some("LimitExceededException"), 400, Verdict::NotApplied),
            (Some("TransactionConflictException"), 400, Verdict::NotApplied),
            // A throttle that a proxy answers with a server's status is still a throttle.
            (Some("ThrottlingException"), 503, Verdict::NotApplied),
            (None, 429, Verdict::NotApplied),
            (Some("TransactionInProgressException"), 400, Verdict::Ambiguous),
            (Some("InternalServerError"), 500, Verdict::Ambiguous),
            (Some("ServiceUnavailable"), 503, Verdict::Ambiguous),
            (None, 502, Verdict::Ambiguous),
            (None, 408, Verdict::Ambiguous),
            (None, 200, Verdict::Ambiguous),
            (Some("IdempotentParameterMismatchException"), 400, Verdict::Final(Kind::Unknown)),
            (Some("ValidationException"), 400, Verdict::Final(Kind::Invalid)),
            (Some("ResourceNotFoundException"), 400, Verdict::Final(Kind::Invalid)),
            (Some("AccessDeniedException"), 400, Verdict::Final(Kind::Invalid)),
            (Some("UnrecognizedClientException"), 400, Verdict::Final(Kind::Invalid)),
            (Some("NeverHeardOf"), 400, Verdict::Final(Kind::Invalid)),
            (Some("NeverHeardOf"), 500, Verdict::Ambiguous),
        ] {
            assert_eq!(of_answer(code, status), verdict, "{code:?} {status}");
        }
    }

    #[test]
    fn a_message_says_what_to_do() {
        let missing = of_service(Some("ResourceNotFoundException"), None, 400, &place());
        assert!(
            missing.contains("table `pages`") && missing.contains("create_table_if_missing"),
            "{missing}"
        );
        let skewed = of_service(Some("InvalidSignatureException"), Some("too old"), 400, &place());
        assert!(skewed.contains("clock") && skewed.contains("too old"), "{skewed}");
        let odd = of_service(None, None, 502, &place());
        assert_eq!(odd, "table `pages` at DynamoDB answered status 502");
    }

    #[test]
    fn an_unknown_outcome_says_so() {
        let error = Failure::new(Verdict::Ambiguous, "no answer").into_error(Kind::Unknown);
        assert_eq!(
            error.to_string(),
            "no answer; the write may or may not have happened: read the rows back"
        );
        assert_eq!(
            Failure::new(Verdict::NotApplied, "busy").into_error(Kind::Unavailable).to_string(),
            "busy"
        );
    }
}
