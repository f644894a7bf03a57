//! Retries of failed attempts, and the error once they are exhausted.

use super::failure::{Failure, FailureKind};
use super::settings::DynamoSettings;
use crate::error::{Kind, Result};
use crate::random::Random;

/// The effect of sending a request twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idempotency {
    /// The request writes nothing, or nothing whose outcome matters: a failure is never ambiguous.
    Read,
    /// A client token prevents a second application.
    Idempotent,
    /// A second application could overwrite later writes of others, or be refused because of the first.
    NotIdempotent,
}

/// The result of an operation after retries.
#[derive(Debug)]
pub(super) struct Retried<T> {
    pub(super) result: T,
    /// Whether an earlier attempt may have been applied, or may still be.
    pub(super) in_doubt: bool,
}

/// Makes attempts until one succeeds or fails permanently, or until the limits of the settings are reached.
///
/// An attempt that ends in a refused condition counts as a success: it is never repeated.
pub(super) async fn retry<T, A>(
    settings: &DynamoSettings,
    random: &dyn Random,
    idempotency: Idempotency,
    attempt: impl Fn() -> A + Send,
) -> Result<Retried<T>>
where
    A: Future<Output = Result<T, Failure>> + Send,
{
    let deadline = tokio::time::sleep(settings.operation_timeout).deadline();
    let timed_out = |kind, failed_attempts: u32, in_doubt| {
        let message = format!(
            "the operation on DynamoDB timed out after {:?} and {failed_attempts} failed attempts",
            settings.operation_timeout
        );
        Err(Failure::new(kind, message).into_error(final_kind(kind, idempotency, in_doubt)))
    };
    let (mut failed_attempts, mut in_doubt) = (0, false);
    loop {
        let failure = match tokio::time::timeout_at(deadline, attempt()).await {
            Ok(Ok(result)) => return Ok(Retried { result, in_doubt }),
            Ok(Err(failure)) => failure,
            Err(_) => return timed_out(FailureKind::Ambiguous, failed_attempts, in_doubt),
        };
        failed_attempts += 1;
        let may_retry = match failure.kind {
            FailureKind::Permanent(_) => false,
            FailureKind::NotApplied => true,
            FailureKind::Ambiguous => idempotency != Idempotency::NotIdempotent,
        };
        if !may_retry || failed_attempts >= settings.attempts {
            let kind = final_kind(failure.kind, idempotency, in_doubt);
            return Err(failure.into_error(kind));
        }
        in_doubt |= failure.kind == FailureKind::Ambiguous;
        let delay = settings.backoff.delay(failed_attempts - 1, random);
        tracing::debug!(attempt = failed_attempts, ?delay, cause = failure.message(), "retrying");
        if tokio::time::timeout_at(deadline, tokio::time::sleep(delay)).await.is_err() {
            return timed_out(FailureKind::NotApplied, failed_attempts, in_doubt);
        }
    }
}

/// The kind of the error for the caller after the last failure.
///
/// Once an attempt may have been applied, no later failure proves that it was not, not even a permanent one: a throttled or
/// denied retry says nothing about the first attempt.
fn final_kind(failure: FailureKind, idempotency: Idempotency, in_doubt: bool) -> Kind {
    match failure {
        FailureKind::Permanent(kind) if idempotency == Idempotency::Read || !in_doubt => kind,
        _ if idempotency == Idempotency::Read => Kind::Unavailable,
        FailureKind::NotApplied if !in_doubt => Kind::Unavailable,
        _ => Kind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Backoff;
    use crate::random::SeededRandom;
    use parking_lot::Mutex;
    use std::collections::VecDeque;
    use std::time::Duration;

    fn settings() -> DynamoSettings {
        DynamoSettings::default().attempts(4)
    }

    /// Runs an operation whose attempts fail in this order and then succeed; returns its result and the failures used.
    async fn run(idempotency: Idempotency, failures: &[FailureKind]) -> (Result<()>, usize) {
        let script = Mutex::new(failures.iter().copied().collect::<VecDeque<_>>());
        let result = retry(&settings(), &SeededRandom::new(1), idempotency, || {
            let kind = script.lock().pop_front();
            async move { kind.map_or(Ok(()), |kind| Err(Failure::new(kind, "failure"))) }
        })
        .await
        .map(|retried| retried.result);
        let left = script.lock().len();
        (result, failures.len() - left)
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_request_is_retried_up_to_the_limit() {
        use FailureKind::NotApplied;
        for idempotency in [Idempotency::Read, Idempotency::Idempotent, Idempotency::NotIdempotent] {
            assert!(run(idempotency, &[NotApplied; 3]).await.0.is_ok());
            let (result, made) = run(idempotency, &[NotApplied; 9]).await;
            assert_eq!((result.expect_err("always throttled").kind(), made), (Kind::Unavailable, 4));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_retry_waits_for_its_backoff() {
        let started = tokio::time::Instant::now();
        let (result, made) = run(Idempotency::Idempotent, &[FailureKind::NotApplied; 3]).await;
        assert!(result.is_ok() && made == 3);
        let (random, backoff) = (SeededRandom::new(1), settings().backoff);
        let delays: Vec<Duration> = (0..3).map(|retry| backoff.delay(retry, &random)).collect();
        assert!(delays.is_sorted() && delays[0] > Duration::ZERO, "{delays:?}");
        // The timer of the runtime counts whole milliseconds, and rounds up.
        let waited = started.elapsed();
        let least: Duration = delays.iter().sum();
        assert!(
            least <= waited && waited <= least + Duration::from_millis(3),
            "{waited:?} instead of {least:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_ambiguous_failure_is_retried_only_if_idempotent() {
        use FailureKind::Ambiguous;
        assert!(run(Idempotency::Read, &[Ambiguous; 3]).await.0.is_ok());
        assert!(run(Idempotency::Idempotent, &[Ambiguous; 3]).await.0.is_ok());
        let (result, made) = run(Idempotency::NotIdempotent, &[Ambiguous]).await;
        assert_eq!((result.expect_err("ambiguous").kind(), made), (Kind::Unknown, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ambiguous_failure_keeps_the_outcome_unknown_whatever_fails_later() {
        use FailureKind::{Ambiguous, NotApplied, Permanent};
        let kind = async |idempotency, failures: &[FailureKind]| {
            run(idempotency, failures).await.0.expect_err("failure").kind()
        };
        let throttled_later = [Ambiguous, NotApplied, NotApplied, NotApplied];
        assert_eq!(kind(Idempotency::Idempotent, &throttled_later).await, Kind::Unknown);
        assert_eq!(kind(Idempotency::Read, &throttled_later).await, Kind::Unavailable);
        assert_eq!(
            kind(Idempotency::Idempotent, &[Ambiguous, Permanent(Kind::Invalid)]).await,
            Kind::Unknown
        );
        assert_eq!(kind(Idempotency::Read, &[Ambiguous, Permanent(Kind::Invalid)]).await, Kind::Invalid);
        assert_eq!(
            kind(Idempotency::Idempotent, &[NotApplied, Permanent(Kind::Invalid)]).await,
            Kind::Invalid
        );
        assert_eq!(
            kind(Idempotency::NotIdempotent, &[NotApplied, Permanent(Kind::Unknown)]).await,
            Kind::Unknown
        );
        // The first attempt was certainly not applied, the second is ambiguous.
        assert_eq!(kind(Idempotency::NotIdempotent, &[NotApplied, Ambiguous]).await, Kind::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_ambiguous_only_if_a_request_was_sent() {
        let kind = async |idempotency| {
            let forever = || std::future::pending::<Result<(), Failure>>();
            retry(&settings(), &SeededRandom::new(1), idempotency, forever).await.expect_err("timeout").kind()
        };
        assert_eq!(kind(Idempotency::NotIdempotent).await, Kind::Unknown);
        assert_eq!(kind(Idempotency::Read).await, Kind::Unavailable);

        // Timeout during a delay: the only attempt was certainly not applied.
        let hour = Duration::from_secs(3600);
        let short = settings().operation_timeout(Duration::from_millis(1)).backoff(Backoff::new(hour, hour));
        let busy = || async { Err::<(), _>(Failure::new(FailureKind::NotApplied, "busy")) };
        let error = retry(&short, &SeededRandom::new(1), Idempotency::NotIdempotent, busy)
            .await
            .expect_err("timeout");
        assert_eq!(error.kind(), Kind::Unavailable);

        // Timeout during a delay, after an attempt that may have been applied.
        let lost = || async { Err::<(), _>(Failure::new(FailureKind::Ambiguous, "no response")) };
        for (idempotency, kind) in
            [(Idempotency::Idempotent, Kind::Unknown), (Idempotency::Read, Kind::Unavailable)]
        {
            let error = retry(&short, &SeededRandom::new(1), idempotency, lost).await.expect_err("timeout");
            assert_eq!(error.kind(), kind);
        }
    }
}
