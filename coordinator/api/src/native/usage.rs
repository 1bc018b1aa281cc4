//! `GET /account/usage`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use island_protocol::time::Timestamp;
use island_protocol_api::{
    Data,
    problem::Code,
    usage::{AccountUsage, UsageRow},
};

use crate::{
    Api, ApiError,
    http::{auth::Caller, csv, query::Query},
    native::statement::time,
};
use island_coordinator_storage::usage::{self, Days};

const DAY_MS: i64 = 24 * 3_600_000;
/// Days of an answer if the request names no begin.
const DEFAULT_DAYS: i64 = 14;
/// Maximum days of an answer.
const MAX_DAYS: i64 = 92;

const HEAD: [&str; 8] =
    ["day", "cargo", "key", "key_name", "jobs", "prompt_tokens", "completion_tokens", "credits"];

/// What the account used, by day, Cargo and key: JSON, or CSV with a line for each row.
pub(crate) async fn own(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Response, ApiError> {
    let (from, until) = span(time(&query, "from")?, time(&query, "until")?, api.clock.now())
        .map_err(|message| ApiError::field(Code::ValidationError, "from", message))?;
    let days = Days {
        account: caller.account,
        from,
        until,
        cargo: query.parsed("workload", "the slug of a Cargo")?,
        key: query.parsed("key", "the id of a key")?,
    };
    let is_csv = csv::is_requested(&query)?;
    let rows = usage::rows(&api.store, &days).await?.ok_or_else(|| {
        let message = format!("more than {} rows: request fewer days, one Cargo or one key", usage::MAX_ROWS);
        ApiError::field(Code::ValidationError, "from", message)
    })?;
    if is_csv {
        let lines = [HEAD.map(str::to_owned)].into_iter().chain(rows.iter().map(line));
        let body = csv::lines(lines).map_err(ApiError::internal)?;
        return Ok((csv::headers(), body).into_response());
    }
    Ok(Json(Data { data: AccountUsage { from, until, rows } }).into_response())
}

/// Whole days, UTC, that contain what was requested: the last ones, up to today, by default.
fn span(
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), String> {
    // A later day has no jobs, and `until` is left out itself.
    let last = until.map_or(now, |until| until.plus_ms(-1).min(now)).day_begin();
    let first = from.map_or(last.plus_ms(-(DEFAULT_DAYS - 1) * DAY_MS), Timestamp::day_begin);
    let days = (last.unix_ms() - first.unix_ms()) / DAY_MS + 1;
    match days {
        ..1 => Err("from must be before until, and not in the future".to_owned()),
        1..=MAX_DAYS => Ok((first, last.next_day())),
        _ => Err(format!("from must be at most {MAX_DAYS} days before until")),
    }
}

fn line(row: &UsageRow) -> [String; 8] {
    [
        row.day.to_string().chars().take(10).collect(),
        row.workload_slug.to_string(),
        row.key_id.map(|id| id.to_string()).unwrap_or_default(),
        row.key_name.as_deref().map(csv::text).unwrap_or_default(),
        row.jobs.to_string(),
        row.prompt_tokens.to_string(),
        row.completion_tokens.to_string(),
        row.amount.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn day(number: i64) -> Timestamp {
        Timestamp::from_unix_ms(number * DAY_MS)
    }

    #[test]
    fn two_weeks_up_to_today_are_the_default() {
        assert_eq!(span(None, None, day(100).plus_ms(5)), Ok((day(87), day(101))));
        assert_eq!(span(Some(day(100)), None, day(100)), Ok((day(100), day(101))));
        assert_eq!(span(Some(day(9)), Some(day(10)), day(100)), Ok((day(9), day(10))));
        assert!(span(Some(day(10)), Some(day(10)), day(100)).is_err());
        assert!(span(Some(day(102)), None, day(100)).is_err());
        assert!(span(Some(day(0)), Some(day(MAX_DAYS + 1)), day(200)).is_err());
    }

    proptest! {
        #[test]
        fn a_span_has_whole_days_that_contain_what_was_requested(
            from in 0_i64..100 * DAY_MS, length in 1_i64..90 * DAY_MS, later in 0_i64..DAY_MS,
        ) {
            let (from, until) = (Timestamp::from_unix_ms(from), Timestamp::from_unix_ms(from + length));
            let (first, end) = span(Some(from), Some(until), until.plus_ms(later)).expect("a span");
            prop_assert!(first <= from && until <= end);
            prop_assert!(first.plus_ms(DAY_MS) > from && end.plus_ms(-DAY_MS) < until);
            prop_assert_eq!((first.unix_ms() % DAY_MS, end.unix_ms() % DAY_MS), (0, 0));
        }
    }
}
