//! Exit codes that scripts can use, and what to try next.

use std::{io, path::PathBuf, process::ExitCode};

use island_coordinator_client::{ClientError, error::Refusal};
use island_protocol::ids::Slug;
use serde_json::json;

use crate::output::Output;

/// The job did not complete, or something on this machine failed.
pub(crate) const FAILED: u8 = 1;
/// A flag, an argument or an input is invalid.
const USAGE: u8 = 2;
/// The key is missing or not accepted.
const AUTHENTICATION: u8 = 3;
/// No such job, Cargo, key or Island.
const NOT_FOUND: u8 = 4;
/// Input that does not fit, credits, limits.
const REFUSED: u8 = 5;
/// The coordinator or the fabric was not reached, or fails.
const UNREACHABLE: u8 = 6;
/// Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;
/// Standard output is closed: the status of a program that SIGPIPE ended.
const NO_READER: u8 = 141;

/// What a person typed cannot be meant.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Nothing is selected by what a person typed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoMatch(pub(crate) String);

/// A Cargo that no prompt can be sent to.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a language model: it has no chat")]
pub(crate) struct NotAChat(pub(crate) Slug);

/// The settings file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("read {}", path.display())]
pub(crate) struct BadSettings {
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: toml::de::Error,
}

/// An error for a person, before it is printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) message: String,
    pub(crate) code: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) details: serde_json::Value,
    exit: u8,
}

/// Prints an error, its causes and a hint; returns the exit code. Silent if standard output is closed.
pub(crate) fn report(error: &anyhow::Error, output: &Output) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::from(NO_READER);
    }
    let report = Report::of(error);
    output.error(&report);
    ExitCode::from(report.exit)
}

/// Returns whether standard output is closed.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // Only what we print ourselves: a broken connection to a server is not the reader's doing.
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

impl Report {
    fn of(error: &anyhow::Error) -> Self {
        let client = error.downcast_ref::<ClientError>();
        let refusal = client.and_then(ClientError::refusal);
        Self {
            message: format!("{error:#}"),
            code: refusal.map(|refusal| refusal.code.clone()),
            hint: client.and_then(hint).or_else(|| own_hint(error)),
            details: refusal.map_or(json!({}), details),
            exit: exit_code(error, client, refusal),
        }
    }
}

fn exit_code(error: &anyhow::Error, client: Option<&ClientError>, refusal: Option<&Refusal>) -> u8 {
    match (client, refusal) {
        (_, Some(refusal)) => match refusal.status {
            // What an operator has disabled, and an invalid code: no other key would help.
            403 if ["workload_disabled", "invalid_invitation"].contains(&refusal.code.as_str()) => REFUSED,
            401 | 403 => AUTHENTICATION,
            404 => NOT_FOUND,
            400..=499 => REFUSED,
            _ => UNREACHABLE,
        },
        (Some(ClientError::BadUrl(_) | ClientError::PlainText(_) | ClientError::BadKey), _) => USAGE,
        (Some(_), None) => UNREACHABLE,
        (None, None) if error.is::<Usage>() => USAGE,
        (None, None) if error.is::<NoMatch>() => NOT_FOUND,
        (None, None) if error.is::<NotAChat>() => REFUSED,
        (None, None) => FAILED,
    }
}

/// Further fields of the coordinator's error, for programs.
fn details(refusal: &Refusal) -> serde_json::Value {
    json!({
        "status": refusal.status,
        "param": refusal.param,
        "retry_after": refusal.retry_after.map(|wait| wait.as_secs()),
        "required": refusal.required,
        "available": refusal.available,
        "request_id": refusal.request_id,
        "details": Some(&refusal.details).filter(|details| !details.is_empty()),
    })
}

/// What to try next after an error of this program.
fn own_hint(error: &anyhow::Error) -> Option<String> {
    if let Some(NotAChat(slug)) = error.downcast_ref() {
        return Some(format!("`island workloads get {slug}` shows its input, `island jobs submit` runs it"));
    }
    let BadSettings { path, .. } = error.downcast_ref()?;
    let path = path.display();
    Some(format!("correct {path}, or remove it and save the key again with `island auth login`"))
}

/// What to try next: a command where there is one, else what the client advises.
fn hint(error: &ClientError) -> Option<String> {
    let command = match error {
        ClientError::Transport { source, .. } if source.is_connect() => {
            "no coordinator answers there: start one with `island dev`, or set --api-url or SERVICE_API_URL"
        }
        ClientError::StreamLost { job, last, .. } => {
            return Some(format!("the job goes on: island jobs stream {job} --after {last}"));
        }
        ClientError::PlainText(_) => {
            "use an encrypted address (https://, tls://), or --allow-plaintext if you trust the network"
        }
        ClientError::BadKey => "save the key again with `island auth login`",
        ClientError::Refused(refusal) => match refusal.code.as_str() {
            "missing_api_key" | "invalid_api_key" => {
                "save a key with `island auth login`, or set --api-key or SERVICE_API_KEY"
            }
            "forbidden" => "this key lacks the scope: `island api-keys list` shows what each may do",
            "workload_not_found" | "model_not_found" => "`island workloads list` shows every Cargo",
            "job_not_found" => "`island jobs list` shows your jobs",
            "host_not_found" => "`island hosts list` shows every Island",
            "api_key_not_found" => "`island api-keys list` shows your keys",
            "insufficient_credits" => "`island account` shows what is left, `island jobs list` what runs",
            "invalid_input" => "`island workloads get SLUG` shows what the Cargo takes",
            "concurrent_jobs_exceeded" => {
                "`island jobs list` shows what runs, `island jobs cancel ID` ends it"
            }
            "concurrent_streams_exceeded" => {
                "end another `island chat`, `island jobs stream` or `--stream` of this account first"
            }
            "quota_exceeded" => "`island account quotas` shows what is used, and when it resets",
            "maintenance" => "`island network notices` shows why; try again when the maintenance has ended",
            "workload_disabled" => "`island workloads list` shows the others",
            "login_failed" => "`island auth login --browser` begins again",
            "invalid_invitation" => "check the code, or ask an operator of the network for another",
            "account_not_found" => "`island admin accounts list` shows every account",
            "invitation_not_found" => "`island admin invitations list` shows every invitation",
            "notice_not_found" => "`island admin notices list` shows every notice",
            "payout_not_found" => "`island admin payouts list` shows every payout",
            "account_in_use" => {
                "deduct its credits with `island admin accounts deduct`, let its jobs end and its Islands leave"
            }
            "publication_not_found" => "`island cargos published` shows the Cargos that you submitted",
            "publication_already_final" => "submit it again as another version with `island cargos publish`",
            "slug_taken" => "choose another slug: `island workloads list` shows every Cargo",
            "too_many_publications" => "withdraw one with `island cargos withdraw`, or wait for the review",
            "invalid_manifest" => "correct these lines of the manifest, and publish it again",
            "payout_already_final" => "`island admin payouts list` shows the state of each",
            "no_island_available" => "`island hosts list` shows who is online",
            _ => return error.advice(),
        },
        _ => return error.advice(),
    };
    Some(command.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn only_our_own_broken_pipe_is_silent() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::new(pipe())));
        assert!(is_broken_pipe(&anyhow::Error::new(pipe()).context("print")));
        assert!(!is_broken_pipe(&anyhow!("else")));
    }

    #[test]
    fn usage_is_usage_in_any_context() {
        let error = Err::<(), _>(Usage("no".into())).context("read the input").expect_err("an error");
        assert_eq!(Report::of(&error).exit, USAGE);
        assert_eq!(Report::of(&anyhow!("else")).exit, FAILED);
    }
}
