//! When a failed attempt is made again, and what the caller hears when it is not.

use super::failure::{Failure, Verdict};
use super::settings::DynamoSettings;
use crate::error::{Kind, Result};
use crate::random::Random;

/// What making a call twice would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The call writes nothing that anyone could miss: a failure means only that there is no answer.
    Read,
    /// A second time changes nothing: a client token forbids it.
    Harmless,
    /// A second time could undo what others have written since, or be refused because of the first.
    Never,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Retry,
    Fail(Kind),
}

/// How far an operation has come.
#[derive(Debug, Default)]
struct Progress {
    /// The attempts that failed.
    failed: u32,
    /// Whether one of them may have been applied.
    in_doubt: bool,
    /// Whether an attempt has been sent and not answered.
    in_flight: bool,
}

/// An answer, and whether an attempt before it had none.
#[derive(Debug)]
pub(super) struct Settled<T> {
    pub(super) answer: T,
    /// Whether an earlier attempt may have been applied, or may still be.
    pub(super) in_doubt: bool,
}

/// Makes attempts until one succeeds, fails for good, or time or patience run out.
///
/// An attempt that ends in a refused condition has succeeded here: it is never repeated.
pub(super) async fn persist<T, A>(
    settings: &DynamoSettings,
    random: &dyn Random,
    repeat: Repeat,
    attempt: impl Fn() -> A + Send,
) -> Result<Settled<T>>
where
    A: Future<Output = Result<T, Failure>> + Send,
{
    let mut progress = Progress::default();
    let attempts = attempts(settings, random, repeat, &attempt, &mut progress);
    if let Ok(result) = tokio::time::timeout(settings.operation_timeout, attempts).await {
        return result.map(|answer| Settled { answer, in_doubt: progress.in_doubt });
    }
    let verdict = if progress.in_flight { Verdict::Ambiguous } else { Verdict::NotApplied };
    let late = Failure::new(
        verdict,
        format!(
            "DynamoDB did not do it within {:?}, after {} failed attempts",
            settings.operation_timeout, progress.failed
        ),
    );
    Err(late.into_error(kind_at_the_end(verdict, repeat, progress.in_doubt)))
}

async fn attempts<T, A>(
    settings: &DynamoSettings,
    random: &dyn Random,
    repeat: Repeat,
    attempt: &(impl Fn() -> A + Send),
    progress: &mut Progress,
) -> Result<T>
where
    A: Future<Output = Result<T, Failure>> + Send,
{
    loop {
        progress.in_flight = true;
        let outcome = attempt().await;
        progress.in_flight = false;
        let failure = match outcome {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        progress.failed += 1;
        match next(failure.verdict, repeat, progress.in_doubt, progress.failed >= settings.attempts) {
            Next::Fail(kind) => return Err(failure.into_error(kind)),
            Next::Retry => {}
        }
        progress.in_doubt |= failure.verdict == Verdict::Ambiguous;
        let delay = settings.backoff.delay(progress.failed - 1, random);
        tracing::debug!(attempt = progress.failed, ?delay, cause = failure.message(), "retrying");
        tokio::time::sleep(delay).await;
    }
}

fn next(verdict: Verdict, repeat: Repeat, in_doubt: bool, last: bool) -> Next {
    let again = match verdict {
        Verdict::Final(_) => false,
        Verdict::NotApplied => true,
        Verdict::Ambiguous => repeat != Repeat::Never,
    };
    if again && !last { Next::Retry } else { Next::Fail(kind_at_the_end(verdict, repeat, in_doubt)) }
}

/// What the caller hears of the last failure.
///
/// Once an attempt may have been applied, no later failure makes it certain that it was not, however
/// certain that failure is of itself: a throttled or denied repeat says nothing about the first try.
fn kind_at_the_end(verdict: Verdict, repeat: Repeat, in_doubt: bool) -> Kind {
    match verdict {
        Verdict::Final(kind) if repeat == Repeat::Read || !in_doubt => kind,
        _ if repeat == Repeat::Read => Kind::Unavailable,
        Verdict::NotApplied if !in_doubt => Kind::Unavailable,
        _ => Kind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Backoff;
    use crate::random::SeededRandom;
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::time::Duration;

    fn settings() -> DynamoSettings {
        DynamoSettings::default().attempts(4)
    }

    /// Runs an operation whose attempts fail so, one after another, and then succeed.
    async fn run(repeat: Repeat, failures: &[Verdict]) -> (Result<()>, usize) {
        let script = Mutex::new(failures.iter().copied().collect::<VecDeque<_>>());
        let result = persist(&settings(), &SeededRandom::new(1), repeat, || {
            let verdict = script.lock().expect("not poisoned").pop_front();
            async move { verdict.map_or(Ok(()), |verdict| Err(Failure::new(verdict, "no"))) }
        })
        .await
        .map(|settled| settled.answer);
        let left = script.lock().expect("not poisoned").len();
        (result, failures.len() - left)
    }

    #[tokio::test(start_paused = true)]
    async fn busy_is_tried_again_until_it_works_or_patience_ends() {
        use Verdict::NotApplied;
        for repeat in [Repeat::Read, Repeat::Harmless, Repeat::Never] {
            assert!(run(repeat, &[NotApplied; 3]).await.0.is_ok());
            let (result, made) = run(repeat, &[NotApplied; 9]).await;
            assert_eq!((result.expect_err("it is always busy").kind(), made), (Kind::Unavailable, 4));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_is_resolved_by_repeating_only_where_that_is_harmless() {
        use Verdict::Ambiguous;
        assert!(run(Repeat::Read, &[Ambiguous; 3]).await.0.is_ok());
        assert!(run(Repeat::Harmless, &[Ambiguous; 3]).await.0.is_ok());
        let (result, made) = run(Repeat::Never, &[Ambiguous]).await;
        assert_eq!((result.expect_err("nobody knows").kind(), made), (Kind::Unknown, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_remains_whatever_fails_later() {
        use Verdict::{Ambiguous, Final, NotApplied};
        let kind = async |repeat, failures: &[Verdict]| run(repeat, failures).await.0.expect_err("no").kind();
        let busy_later = [Ambiguous, NotApplied, NotApplied, NotApplied];
        assert_eq!(kind(Repeat::Harmless, &busy_later).await, Kind::Unknown);
        assert_eq!(kind(Repeat::Read, &busy_later).await, Kind::Unavailable);
        assert_eq!(kind(Repeat::Harmless, &[Ambiguous, Final(Kind::Invalid)]).await, Kind::Unknown);
        assert_eq!(kind(Repeat::Read, &[Ambiguous, Final(Kind::Invalid)]).await, Kind::Invalid);
        assert_eq!(kind(Repeat::Harmless, &[NotApplied, Final(Kind::Invalid)]).await, Kind::Invalid);
        assert_eq!(kind(Repeat::Never, &[NotApplied, Final(Kind::Unknown)]).await, Kind::Unknown);
        // The first try, busy, is not in doubt; the second is.
        assert_eq!(kind(Repeat::Never, &[NotApplied, Ambiguous]).await, Kind::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_out_of_time_is_in_doubt_only_if_something_was_sent() {
        let kind = async |repeat| {
            let forever = || std::future::pending::<Result<(), Failure>>();
            persist(&settings(), &SeededRandom::new(1), repeat, forever)
                .await
                .expect_err("out of time")
                .kind()
        };
        assert_eq!(kind(Repeat::Never).await, Kind::Unknown);
        assert_eq!(kind(Repeat::Read).await, Kind::Unavailable);

        // Out of time in a pause: the only attempt was certainly not applied.
        let hour = Duration::from_secs(3600);
        let hasty = settings().operation_timeout(Duration::from_millis(1)).backoff(Backoff::new(hour, hour));
        let busy = || async { Err::<(), _>(Failure::new(Verdict::NotApplied, "busy")) };
        let error =
            persist(&hasty, &SeededRandom::new(1), Repeat::Never, busy).await.expect_err("out of time");
        assert_eq!(error.kind(), Kind::Unavailable);

        // An attempt before the pause that may have been applied keeps the operation in doubt.
        let lost = || async { Err::<(), _>(Failure::new(Verdict::Ambiguous, "no answer")) };
        for (repeat, kind) in [(Repeat::Harmless, Kind::Unknown), (Repeat::Read, Kind::Unavailable)] {
            let error = persist(&hasty, &SeededRandom::new(1), repeat, lost).await.expect_err("out of time");
            assert_eq!(error.kind(), kind);
        }
    }
}
