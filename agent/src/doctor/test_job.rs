//! A test job, from the coordinator to an engine on this machine and back.

use island_protocol_api::IslandCheck;

use super::{Finding, finding};
use crate::control::{
    check::Checked,
    client::{Control, ControlError},
};

pub(super) const WHAT: &str = "test job";

/// Makes the running agent request a test job.
pub(super) async fn run(control: &Control) -> Finding {
    match control.check().await {
        Ok(Checked { check, ago_s }) => {
            let finding = described(&check);
            let Some(ago_s) = ago_s else { return finding };
            Finding { detail: format!("{} ({ago_s} s ago)", finding.detail), ..finding }
        }
        // Not a fault of the machine.
        Err(ControlError::TooSoon(reason)) => finding(WHAT, None, reason),
        Err(error) => finding(WHAT, Some(false), island_daemon::chain::Chain(&error).to_string()),
    }
}

fn described(check: &IslandCheck) -> Finding {
    let steps: Vec<String> =
        check.steps.iter().map(|step| format!("{} after {} ms", step.name, step.after_ms)).collect();
    let mut detail = match &check.workload_slug {
        Some(slug) => format!("{slug}: {}", steps.join(", ")),
        None => "no job could be placed here".to_owned(),
    };
    if let Some(speed) = check.tokens_per_second {
        detail = format!("{detail}; {speed:.0} tokens/s");
    }
    if let Some(device) = &check.device {
        detail = format!("{detail}; on {device}");
    }
    if let Some(error) = &check.error {
        let reason = explained(&error.message).unwrap_or(&error.message);
        detail = format!("{}: {reason}", detail.trim_end_matches(": "));
    }
    if let Some(job) = check.job_id.filter(|_| !check.passed) {
        detail = format!("{detail} (job {job})");
    }
    finding(WHAT, Some(check.passed), detail)
}

/// Returns what the coordinator's reason means for an owner, with the next step.
fn explained(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "offline" => {
            "the coordinator receives no heartbeats of this Island; check whether the fabric can be reached"
        }
        "draining" => {
            "this Island is paused or draining: `island-agent resume`, or see the rules in `status`"
        }
        "no_runtime" => "no engine that the catalogue needs works here; see the engines above",
        "no_ram" => "less memory is free than the smallest job needs; see [memory] and other programs",
        "no_vram" => "less GPU memory is free than the smallest job needs",
        "no_slot" => "all slots are in use by jobs",
        "no_tier" | "no_egress" => "the rules in [containers] exclude every job that its engines could run",
        "price" => "its minimum price exceeds that of every job; see [policy] asking",
        "model_unreachable" => "no model is on disk, and the model hub cannot be reached",
        "no_model_near" => {
            "every job that it could run needs a model that is not on disk yet, and a test downloads none"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use island_protocol_api::{CheckStep, JobError};

    use super::*;

    fn check(error: Option<&str>, steps: &[(&str, u64)]) -> IslandCheck {
        IslandCheck {
            passed: error.is_none(),
            workload_slug: (!steps.is_empty()).then(|| "llm-chat".parse().expect("a slug")),
            job_id: None,
            steps: steps
                .iter()
                .map(|(name, after_ms)| CheckStep { name: (*name).to_owned(), after_ms: *after_ms })
                .collect(),
            tokens_per_second: error.is_none().then_some(41.6),
            device: error.is_none().then(|| "vulkan: Some GPU".to_owned()),
            error: error.map(|message| JobError {
                code: "no_island_available".to_owned(),
                message: message.to_owned(),
            }),
        }
    }

    #[test]
    fn a_result_is_one_line() {
        let lines: Vec<String> = [
            check(None, &[("queued", 1), ("running", 60), ("output", 90), ("completed", 700)]),
            check(Some("no_ram"), &[]),
            check(
                Some("the Island did not take the job: not enough memory"),
                &[("queued", 1), ("failed", 9)],
            ),
        ]
        .iter()
        .map(|check| described(check).to_string())
        .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
