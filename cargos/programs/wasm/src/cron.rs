//! Explains cron expressions and lists their runs.

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use island_cargo::{Error, OrInvalid, Output, run};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    expression: String,
    #[serde(default = "utc")]
    timezone: String,
    /// The runs after this moment; now where it is missing.
    from: Option<String>,
    #[serde(default = "five")]
    count: usize,
}

#[derive(Serialize)]
struct Answer {
    description: String,
    next: Vec<String>,
}

fn utc() -> String {
    "UTC".to_owned()
}

fn five() -> usize {
    5
}

fn explain(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let cron: Cron = input.expression.parse().or_invalid("expression")?;
    let zone: Tz = input.timezone.parse().or_invalid("timezone")?;
    let from = match input.from {
        Some(from) => DateTime::parse_from_rfc3339(&from).or_invalid("from")?.with_timezone(&zone),
        None => Utc::now().with_timezone(&zone),
    };
    let next = cron.iter_after(from).take(input.count).map(|time| time.to_rfc3339()).collect();
    Ok(Answer { description: cron.describe(), next })
}

fn main() -> ExitCode {
    run(explain)
}
