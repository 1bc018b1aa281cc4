//! Exit codes that scripts can use, and what to try next.

use std::process::ExitCode;

use island_coordinator_client::ClientError;

use crate::output::Output;

/// Anything without a code of its own.
const GENERAL: u8 = 1;
/// The key is missing or not accepted.
const AUTHENTICATION: u8 = 3;
/// No such job, Cargo or Island.
const NOT_FOUND: u8 = 4;
/// Not enough credits.
const CREDITS: u8 = 5;
/// The coordinator was not reached.
const UNREACHABLE: u8 = 7;
/// The job ran and did not complete.
pub(crate) const JOB_FAILED: u8 = 6;

/// Prints an error, its causes and a hint; gives the exit code.
pub(crate) fn report(error: &anyhow::Error, output: &Output) -> ExitCode {
    let client = error.downcast_ref::<ClientError>();
    output.error(&format!("{error:#}"), client.and_then(ClientError::code), client.and_then(hint));
    ExitCode::from(client.map_or(GENERAL, exit_code))
}

fn exit_code(error: &ClientError) -> u8 {
    match error {
        ClientError::Transport { .. } | ClientError::StreamLost { .. } | ClientError::Fabric { .. } => {
            UNREACHABLE
        }
        other => match other.refusal().map(|refusal| refusal.status) {
            Some(401 | 403) => AUTHENTICATION,
            Some(402) => CREDITS,
            Some(404) => NOT_FOUND,
            _ => GENERAL,
        },
    }
}

fn hint(error: &ClientError) -> Option<&'static str> {
    Some(match error {
        ClientError::Transport { source, .. } if source.is_connect() => {
            "no coordinator answers there: start one with `island dev`, or set --api-url or SERVICE_API_URL"
        }
        ClientError::Refused(refusal) if refusal.status == 401 => {
            "save a key with `island auth login`, or set --api-key or SERVICE_API_KEY"
        }
        ClientError::Refused(refusal) => match refusal.code.as_str() {
            "workload_not_found" => "`island workloads list` shows every Cargo",
            "job_not_found" => "`island jobs list` shows your jobs",
            "host_not_found" => "`island hosts list` shows every Island",
            "insufficient_credits" => "`island account` shows what is left",
            "no_island_available" => "`island hosts list` shows who is online",
            _ => return None,
        },
        _ => return None,
    })
}
