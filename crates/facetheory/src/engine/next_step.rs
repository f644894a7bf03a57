//! Decides the next step of a request that memory alone could not serve: a pure function of what the lookup found.

use super::{BypassReason, ServeDecision, State};
use crate::RegenerateReason;

/// The conditions besides the decision that determine the next step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Situation {
    /// Whether another process holds the lease, and the policy prefers a stale page to waiting for it.
    pub(super) avoids_wait: bool,
    /// Whether this request has used its render function.
    pub(super) has_rendered: bool,
    pub(super) last_render: LastRender,
}

/// The result of the last render of the page in this process, as far as it affects the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LastRender {
    #[default]
    Succeeded,
    /// It was not cacheable.
    Declined,
    /// It failed a short time ago.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Serve the page that was found, and regenerate it in the background for this reason.
    Serve {
        state: State,
        regenerate: Option<RegenerateReason>,
    },
    Bypass(BypassReason),
    /// Wait for the process that took over the lease after this request had started to render.
    WaitForOtherProcess(RegenerateReason),
    /// Render the page, or wait for the render of another request. The decision says for which reason, and when the page
    /// that was found is served instead.
    Render(ServeDecision),
}

/// `decision` is for the page that was found; `Unusable` if there is none.
pub(super) fn next_step(decision: ServeDecision, situation: Situation) -> Step {
    let if_error = decision.is_servable_if_error();
    match decision {
        ServeDecision::Fresh => Step::Serve { state: State::Hit, regenerate: None },
        ServeDecision::OtherVariant => Step::Bypass(BypassReason::OtherVariant),
        ServeDecision::Stale { reason, while_revalidate, .. }
            if while_revalidate || (if_error && situation.avoids_wait) =>
        {
            Step::Serve { state: State::Stale, regenerate: Some(reason) }
        }
        decision if situation.has_rendered => Step::WaitForOtherProcess(decision.reason()),
        _ if situation.last_render == LastRender::Declined => Step::Bypass(BypassReason::Declined),
        _ if situation.last_render == LastRender::Failed && if_error => {
            Step::Serve { state: State::StaleError, regenerate: None }
        }
        decision => Step::Render(decision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: ServeDecision = ServeDecision::Unusable(RegenerateReason::Stale);

    fn stale(while_revalidate: bool, if_error: bool) -> ServeDecision {
        let reason = RegenerateReason::Stale;
        ServeDecision::Stale { reason, while_revalidate, if_error, if_unreachable: true }
    }

    fn serve(state: State) -> Step {
        let regenerate = (state == State::Stale).then_some(RegenerateReason::Stale);
        Step::Serve { state, regenerate }
    }

    #[test]
    fn a_page_that_was_found_is_served_if_its_decision_allows_it() {
        let next = |decision| next_step(decision, Situation::default());
        assert_eq!(next(ServeDecision::Fresh), serve(State::Hit));
        assert_eq!(next(stale(true, true)), serve(State::Stale));
        assert_eq!(next(ServeDecision::OtherVariant), Step::Bypass(BypassReason::OtherVariant));
        let other_policy = ServeDecision::Unusable(RegenerateReason::OtherPolicy(1));
        for rendered in [stale(false, true), stale(false, false), MISSING, other_policy] {
            assert_eq!(next(rendered.clone()), Step::Render(rendered));
        }
    }

    #[test]
    fn a_page_that_another_process_renders_is_served_stale_only_if_the_policy_prefers_that() {
        let next = |avoids_wait, if_error| {
            next_step(stale(false, if_error), Situation { avoids_wait, ..Situation::default() })
        };
        assert_eq!(next(true, true), serve(State::Stale));
        assert_eq!(next(true, false), Step::Render(stale(false, false)));
        assert_eq!(next(false, true), Step::Render(stale(false, true)));
    }

    #[test]
    fn a_request_that_has_rendered_already_waits_for_the_process_that_took_over() {
        let last_render = LastRender::Declined;
        let used = Situation { has_rendered: true, last_render, ..Situation::default() };
        let wait = Step::WaitForOtherProcess(RegenerateReason::Stale);
        assert_eq!(next_step(MISSING, used), wait);
        assert_eq!(next_step(stale(false, true), used), wait);
        assert_eq!(next_step(ServeDecision::Fresh, used), serve(State::Hit));
    }

    #[test]
    fn an_uncacheable_page_is_not_waited_for() {
        let declined = Situation { last_render: LastRender::Declined, ..Situation::default() };
        for decision in [MISSING, stale(false, true)] {
            assert_eq!(next_step(decision, declined), Step::Bypass(BypassReason::Declined));
        }
    }

    #[test]
    fn during_the_backoff_a_stale_page_is_served_and_a_missing_one_is_rendered() {
        let failed = Situation { last_render: LastRender::Failed, ..Situation::default() };
        assert_eq!(next_step(stale(false, true), failed), serve(State::StaleError));
        for rendered in [stale(false, false), MISSING] {
            assert_eq!(next_step(rendered.clone(), failed), Step::Render(rendered));
        }
    }
}
