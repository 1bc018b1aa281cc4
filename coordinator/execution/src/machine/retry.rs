//! Whether another attempt follows, and when an Island that refused is asked again.

use std::time::Duration;

use island_protocol::{
    fabric::RefusalReason,
    job::{Failure, FailureCode, Fault},
};

use serde_json::Value;

use island_coordinator_domain::{fleet::Conduct, job::input::JobInput};

/// Attempts that may be handed back by owners, in addition to those that may fail.
const HAND_BACKS: u32 = 8;
/// Time until an Island that refused for lack of capacity is asked again, doubled with each refusal.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(15);
/// Time until an Island that refused by its rules or its abilities is asked again: its owner may change them.
const LONG_PAUSE: Duration = Duration::from_mins(10);

/// What the consumer may have received of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivered {
    /// Nothing.
    Nothing,
    /// The beginning of a text that another Island can continue.
    Beginning,
    /// Output that can be neither continued nor repeated.
    Final,
}

/// Whether an owner handed the attempt back.
pub(super) fn is_handed_back(failure: &Failure) -> bool {
    failure.fault == Fault::Interrupted && failure.code == FailureCode::HandedBack
}

/// Whether another attempt may follow a failed one: never for the job's own fault, and never if the consumer would
/// receive output twice. Attempts that an owner handed back do not count as failures, but are limited too;
/// `hand_backs` is the number of those before this one.
pub(super) fn may_retry(
    failure: &Failure,
    delivered: Delivered,
    attempt: u32,
    hand_backs: u32,
    retries: u32,
) -> bool {
    let is_within_limit = if is_handed_back(failure) {
        attempt <= retries.saturating_add(HAND_BACKS)
    } else {
        attempt.saturating_sub(hand_backs) <= retries
    };
    failure.fault != Fault::Job && delivered != Delivered::Final && is_within_limit
}

/// Whether a grammar enforces the form of the whole reply to an input: a required format, or a call that must be made.
pub(super) fn has_enforced_form(input: &JobInput) -> bool {
    let given = |field: &str| input.get(field).filter(|value| !value.is_null());
    let is_format = |format: Value| format.get("type").is_none_or(|kind| kind != "text");
    let is_forced = |choice: Value| !matches!(choice.as_str(), Some("auto" | "none"));
    given("response_format").is_some_and(is_format) || given("tool_choice").is_some_and(is_forced)
}

/// How long an Island is not offered a job that it has refused `refusals` times, the last time for `reason`; `None` if
/// it did not reply.
pub(super) fn refusal_pause(reason: Option<RefusalReason>, refusals: u32) -> Duration {
    match reason {
        Some(reason) if is_permanent(reason) => LONG_PAUSE,
        _ => FIRST_PAUSE.saturating_mul(1 << refusals.saturating_sub(1).min(8)).min(MAX_PAUSE),
    }
}

/// What a refusal shows about an Island that placement considered able and free.
pub(super) fn refusal_conduct(reason: Option<RefusalReason>) -> Conduct {
    if reason.is_some_and(is_permanent) { Conduct::Refused } else { Conduct::Full }
}

/// Whether an Island refuses by its rules or its abilities, which change seldom.
fn is_permanent(reason: RefusalReason) -> bool {
    matches!(
        reason,
        RefusalReason::NoRuntime
            | RefusalReason::WeakSandbox
            | RefusalReason::NotAllowed
            | RefusalReason::Invalid
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn output_is_never_delivered_twice(attempt in 1_u32..9, hand_backs in 0_u32..8, retries in 0_u32..5) {
            let may_retry = |failure: &Failure, delivered, attempt, retries| {
                may_retry(failure, delivered, attempt, hand_backs, retries)
            };
            let failure = |fault, code| Failure { fault, code, message: String::new() };
            let back = failure(Fault::Interrupted, FailureCode::HandedBack);
            for fault in [Fault::Job, Fault::Host, Fault::Interrupted] {
                prop_assert!(!may_retry(&failure(fault, FailureCode::IslandLost), Delivered::Final, attempt, retries));
            }
            prop_assert!(!may_retry(&back, Delivered::Final, attempt, retries));
            for delivered in [Delivered::Nothing, Delivered::Beginning] {
                prop_assert!(!may_retry(&failure(Fault::Job, FailureCode::CargoFailed), delivered, attempt, retries));
                let lost = failure(Fault::Host, FailureCode::IslandLost);
                let failed = attempt.saturating_sub(hand_backs);
                prop_assert_eq!(may_retry(&lost, delivered, attempt, retries), failed <= retries);
                prop_assert_eq!(may_retry(&back, delivered, attempt, retries), attempt <= retries + HAND_BACKS);
            }
        }

        #[test]
        fn an_hour_has_few_offers_to_an_island_that_always_refuses(permanent in any::<bool>()) {
            let reason = Some(if permanent { RefusalReason::WeakSandbox } else { RefusalReason::NoSlot });
            let (mut passed, mut offers) = (Duration::ZERO, 0);
            while passed < Duration::from_hours(1) {
                offers += 1;
                passed += refusal_pause(reason, offers);
            }
            prop_assert!(offers <= if permanent { 6 } else { 250 }, "{offers}");
        }
    }

    #[test]
    fn only_required_formats_and_calls_are_enforced() {
        let has_form =
            |input: Value| has_enforced_form(&JobInput::new(input.as_object().expect("an object")));
        let weather = json!({"type": "function", "function": {"name": "weather"}});
        for free in [
            json!({}),
            json!({"response_format": {"type": "text"}, "tools": [weather], "tool_choice": "auto"}),
            json!({"response_format": null, "tool_choice": null}),
            json!({"tools": [weather], "tool_choice": "none"}),
        ] {
            assert!(!has_form(free.clone()), "{free}");
        }
        for enforced in [
            json!({"response_format": {"type": "json_object"}}),
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}),
            json!({"tools": [weather], "tool_choice": "required"}),
            json!({"tools": [weather], "tool_choice": weather}),
        ] {
            assert!(has_form(enforced.clone()), "{enforced}");
        }
    }

    #[test]
    fn an_island_that_had_no_slot_is_asked_again_soon() {
        assert_eq!(refusal_pause(Some(RefusalReason::NoSlot), 1), FIRST_PAUSE);
        assert_eq!(refusal_pause(None, 1), FIRST_PAUSE);
    }
}
