//! Decides the next step of a request that memory alone could not serve: a pure function of what the lookup found.

use super::decision::ServeDecision;
use super::get_result::BypassReason;
use super::state::State;
use crate::pages::policy::Contention;
use crate::pages::reason::RegenerateReason;

/// Everything that the next step depends on.
#[derive(Clone, Debug)]
pub(super) struct Situation {
    pub(super) body: Body,
    pub(super) decision: ServeDecision,
    /// Whether another process holds the lease.
    pub(super) leased: bool,
    pub(super) contention: Contention,
    /// Whether this request has not used its render function yet.
    pub(super) can_render: bool,
    /// Whether the last render was not cacheable.
    pub(super) declined: bool,
    /// Whether the last render failed a short time ago.
    pub(super) backing_off: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Found,
    Missing,
    Unreachable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Serve the page that was found, and regenerate it in the background for this reason.
    Serve {
        state: State,
        regenerate: Option<RegenerateReason>,
    },
    /// Serve the page in memory if that is allowed while a store is unreachable.
    ServeOffline,
    Bypass(BypassReason),
    /// Wait for the process that took over the lease after this request had started to render.
    WaitForOtherProcess(RegenerateReason),
    /// Render the page, or wait for the render of another request.
    Render {
        reason: RegenerateReason,
        fallback: Fallback,
    },
}

/// When the page that was found may be served instead of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fallback {
    /// If the render fails or takes too long.
    pub(super) if_error: bool,
    /// If the origin is unreachable.
    pub(super) if_unreachable: bool,
}

pub(super) fn next_step(situation: Situation) -> Step {
    let Situation { body, decision, .. } = situation;
    let found = body == Body::Found;
    let fallback = Fallback {
        if_error: found && decision.is_servable_if_error(),
        if_unreachable: found && decision.is_servable_if_unreachable(),
    };
    // Instead of waiting for another process, if the policy prefers that.
    let serve_stale = situation.leased && situation.contention == Contention::ServeStale && fallback.if_error;
    match decision {
        _ if body == Body::Unreachable => Step::ServeOffline,
        ServeDecision::Fresh if found => Step::Serve { state: State::Hit, regenerate: None },
        ServeDecision::OtherVariant if found => Step::Bypass(BypassReason::OtherVariant),
        ServeDecision::Stale { reason, while_revalidate, .. }
            if found && (while_revalidate || serve_stale) =>
        {
            Step::Serve { state: State::Stale, regenerate: Some(reason) }
        }
        decision if !situation.can_render => Step::WaitForOtherProcess(decision.reason()),
        _ if situation.declined => Step::Bypass(BypassReason::Declined),
        _ if situation.backing_off && fallback.if_error => {
            Step::Serve { state: State::StaleError, regenerate: None }
        }
        decision => Step::Render { reason: decision.reason(), fallback },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(while_revalidate: bool, if_error: bool) -> ServeDecision {
        let reason = RegenerateReason::Stale;
        ServeDecision::Stale { reason, while_revalidate, if_error, if_unreachable: true }
    }

    fn found(decision: ServeDecision) -> Situation {
        Situation {
            body: Body::Found,
            decision,
            leased: false,
            contention: Contention::Wait,
            can_render: true,
            declined: false,
            backing_off: false,
        }
    }

    fn missing() -> Situation {
        let decision = ServeDecision::Unusable(RegenerateReason::Stale);
        Situation { body: Body::Missing, ..found(decision) }
    }

    fn render(if_error: bool, if_unreachable: bool) -> Step {
        let fallback = Fallback { if_error, if_unreachable };
        Step::Render { reason: RegenerateReason::Stale, fallback }
    }

    fn serve(state: State) -> Step {
        let regenerate = (state == State::Stale).then_some(RegenerateReason::Stale);
        Step::Serve { state, regenerate }
    }

    #[test]
    fn a_page_that_was_found_is_served_if_its_decision_allows_it() {
        assert_eq!(next_step(found(ServeDecision::Fresh)), serve(State::Hit));
        assert_eq!(next_step(found(stale(true, true))), serve(State::Stale));
        assert_eq!(next_step(found(stale(false, true))), render(true, true));
        assert_eq!(next_step(found(stale(false, false))), render(false, true));
        let other = next_step(found(ServeDecision::OtherVariant));
        assert_eq!(other, Step::Bypass(BypassReason::OtherVariant));
        assert_eq!(
            next_step(found(ServeDecision::Unusable(RegenerateReason::OtherPolicy(1)))),
            Step::Render {
                reason: RegenerateReason::OtherPolicy(1),
                fallback: Fallback { if_error: false, if_unreachable: false },
            }
        );
    }

    #[test]
    fn a_missing_page_is_rendered_without_a_fallback() {
        assert_eq!(next_step(missing()), render(false, false));
    }

    #[test]
    fn memory_is_used_while_the_body_is_unreachable() {
        for decision in [ServeDecision::Fresh, stale(true, true), stale(false, false)] {
            let situation = Situation { body: Body::Unreachable, ..found(decision) };
            assert_eq!(next_step(situation), Step::ServeOffline);
        }
    }

    #[test]
    fn a_page_that_another_process_renders_is_served_stale_only_if_the_policy_prefers_that() {
        let leased = |contention, if_error| {
            next_step(Situation { leased: true, contention, ..found(stale(false, if_error)) })
        };
        assert_eq!(leased(Contention::ServeStale, true), serve(State::Stale));
        assert_eq!(leased(Contention::ServeStale, false), render(false, true));
        assert_eq!(leased(Contention::Wait, true), render(true, true));
        let free = Situation { contention: Contention::ServeStale, ..found(stale(false, true)) };
        assert_eq!(next_step(free), render(true, true));
    }

    #[test]
    fn a_request_that_has_rendered_already_waits_for_the_process_that_took_over() {
        let used = |situation| next_step(Situation { can_render: false, declined: true, ..situation });
        let wait = Step::WaitForOtherProcess(RegenerateReason::Stale);
        assert_eq!(used(missing()), wait);
        assert_eq!(used(found(stale(false, true))), wait);
        assert_eq!(used(found(ServeDecision::Fresh)), serve(State::Hit));
    }

    #[test]
    fn an_uncacheable_page_is_not_waited_for() {
        let declined = Situation { declined: true, ..missing() };
        assert_eq!(next_step(declined), Step::Bypass(BypassReason::Declined));
        let stale = Situation { declined: true, backing_off: true, ..found(stale(false, true)) };
        assert_eq!(next_step(stale), Step::Bypass(BypassReason::Declined));
    }

    #[test]
    fn during_the_backoff_a_stale_page_is_served_and_a_missing_one_is_rendered() {
        let backing_off = |situation| next_step(Situation { backing_off: true, ..situation });
        assert_eq!(backing_off(found(stale(false, true))), serve(State::StaleError));
        assert_eq!(backing_off(found(stale(false, false))), render(false, true));
        assert_eq!(backing_off(missing()), render(false, false));
    }
}
