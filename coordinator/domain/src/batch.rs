//! Batches: their states, windows, and the lines of their input. Pure.

pub mod line;

use island_protocol::ids::BatchId;
use island_protocol_api::{
    batch::{BatchStatus, PREFIX},
    problem::Code,
};

/// The id of a batch as clients see it.
pub fn format_id(id: BatchId) -> String {
    format!("{PREFIX}{id}")
}

/// The batch of such an id. Returns `None` if the text is not such an id.
pub fn parse_id(text: &str) -> Option<BatchId> {
    text.strip_prefix(PREFIX)?.parse().ok()
}

/// What a coordinator that runs a batch knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Whether the input file was read: `Some(false)` if it is invalid.
    pub valid: Option<bool>,
    /// Whether the key of the batch is accepted no longer.
    pub key_refused: bool,
    /// Whether the window has ended.
    pub window_over: bool,
    /// Whether requests run.
    pub running: bool,
    /// Whether every request has a result.
    pub all_ended: bool,
}

/// The state that follows, or `None` if the batch stays in its state.
pub fn next(status: BatchStatus, facts: Facts) -> Option<BatchStatus> {
    use BatchStatus::{
        Cancelled, Cancelling, Completed, Expired, Failed, Finalizing, InProgress, Validating,
    };
    match status {
        Validating => match facts.valid {
            _ if facts.window_over => Some(Expired),
            _ if facts.key_refused => Some(Failed),
            Some(true) => Some(InProgress),
            Some(false) => Some(Failed),
            None => None,
        },
        // What runs is awaited: it has begun within the window, and it is paid.
        InProgress | Cancelling if facts.running => None,
        InProgress if facts.all_ended => Some(Finalizing),
        InProgress if facts.key_refused => Some(Failed),
        InProgress if facts.window_over => Some(Expired),
        Finalizing => Some(Completed),
        Cancelling => Some(Cancelled),
        InProgress | Failed | Completed | Expired | Cancelled => None,
    }
}

/// Whether a batch in this state may be cancelled.
pub fn is_cancellable(status: BatchStatus) -> bool {
    matches!(status, BatchStatus::Validating | BatchStatus::InProgress)
}

/// What follows from an error of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the result of the request.
    Final,
    /// The request is made again later.
    Later,
    /// The batch may not cost what the request may cost.
    Capped,
}

/// What follows from an error with this code.
pub fn verdict(code: Code) -> Verdict {
    match code {
        Code::MaxCreditsExceeded => Verdict::Capped,
        // They pass without a change of the request. A key or an account that is refused is noticed by the batch itself.
        Code::IdempotencyInProgress
        | Code::RateLimited
        | Code::QuotaExceeded
        | Code::ConcurrentJobsExceeded
        | Code::ConcurrentStreamsExceeded
        | Code::ServiceUnavailable
        | Code::Maintenance
        | Code::NoIslandAvailable
        | Code::AccountSuspended
        | Code::InvalidApiKey => Verdict::Later,
        _ => Verdict::Final,
    }
}

/// The pause before a request is made again, in milliseconds: a second, then twice as long each time, up to `max_ms`.
pub fn pause_ms(tries: u32, max_ms: u32) -> u64 {
    let doubled = 1_000_u64.saturating_mul(1 << tries.min(20));
    doubled.min(max_ms.into())
}

const HOUR_MS: i64 = 3_600_000;

/// The length of a window in milliseconds: a number of hours or days, from an hour to seven days.
pub fn window_ms(text: &str) -> Option<i64> {
    let (number, unit_ms) = match text.strip_suffix('h') {
        Some(hours) => (hours, HOUR_MS),
        None => (text.strip_suffix('d')?, 24 * HOUR_MS),
    };
    let is_number =
        !number.is_empty() && number.len() <= 3 && number.bytes().all(|byte| byte.is_ascii_digit());
    let ms = is_number.then(|| number.parse::<i64>().ok()).flatten()?.checked_mul(unit_ms)?;
    (HOUR_MS..=7 * 24 * HOUR_MS).contains(&ms).then_some(ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts() -> impl Strategy<Value = Facts> {
        (any::<Option<bool>>(), any::<[bool; 4]>()).prop_map(
            |(valid, [key_refused, window_over, running, all_ended])| Facts {
                valid,
                key_refused,
                window_over,
                running,
                all_ended,
            },
        )
    }

    #[test]
    fn windows_are_hours_or_days() {
        for (text, hours) in [("1h", 1), ("24h", 24), ("168h", 168), ("1d", 24), ("7d", 168)] {
            assert_eq!(window_ms(text), Some(hours * HOUR_MS), "{text}");
        }
        for text in ["", "h", "0h", "169h", "8d", "24", "-1h", "1.5h", "24 h", "30m", "9999999999999999999h"]
        {
            assert_eq!(window_ms(text), None, "{text}");
        }
    }

    #[test]
    fn errors_that_pass_are_no_results() {
        for code in Code::ALL {
            let verdict = verdict(*code);
            // Too many requests, or a network that cannot serve now.
            let passes = matches!(code.status(), 429 | 503);
            assert!(!passes || verdict == Verdict::Later, "{code:?}");
            let is_of_body = matches!(code.status(), 400 | 404 | 413 | 415 | 422);
            assert!(!is_of_body || verdict == Verdict::Final, "{code:?}");
        }
        assert_eq!(verdict(Code::MaxCreditsExceeded), Verdict::Capped);
        assert_eq!(verdict(Code::InsufficientCredits), Verdict::Final);
    }

    proptest! {
        #[test]
        fn pauses_grow_up_to_their_maximum(tries in 0..200_u32, max_ms in 1..1_000_000_u32) {
            let pause = pause_ms(tries, max_ms);
            prop_assert!((1..=u64::from(max_ms)).contains(&pause));
            prop_assert!(pause <= pause_ms(tries + 1, max_ms));
        }

        #[test]
        fn a_batch_that_has_ended_stays_as_it_is(facts in facts(), index in 0..BatchStatus::ALL.len()) {
            let status = BatchStatus::ALL[index];
            prop_assert!(!status.is_final() || next(status, facts).is_none());
        }

        #[test]
        fn no_batch_ends_while_requests_run(facts in facts(), index in 0..BatchStatus::ALL.len()) {
            let status = BatchStatus::ALL[index];
            let runs = matches!(status, BatchStatus::InProgress | BatchStatus::Cancelling);
            prop_assert!(!(runs && facts.running && next(status, facts).is_some()));
        }

        /// Whatever happens, once its window is over and nothing runs, a batch ends after a few steps.
        #[test]
        fn every_batch_ends(facts in facts(), index in 0..BatchStatus::ALL.len()) {
            let facts = Facts { window_over: true, running: false, ..facts };
            let mut status = BatchStatus::ALL[index];
            for _ in 0..3 {
                status = next(status, facts).unwrap_or(status);
            }
            prop_assert!(status.is_final());
        }

        #[test]
        fn only_a_whole_batch_completes(facts in facts()) {
            let facts = Facts { all_ended: false, ..facts };
            let reached = next(BatchStatus::InProgress, facts);
            prop_assert!(!matches!(reached, Some(BatchStatus::Finalizing | BatchStatus::Completed)));
        }
    }
}
