//! A real job, from the coordinator to an engine here and back: what no look at the parts can promise.

use island_protocol::api::IslandCheck;

use super::{Finding, finding};
use crate::control::{
    check::Checked,
    client::{Control, ControlError},
};

pub(super) const WHAT: &str = "test job";

/// Has the running agent ask for one.
pub(super) async fn run(control: &Control) -> Finding {
    match control.check().await {
        Ok(Checked { check, ago_s }) => {
            let finding = told(&check);
            let Some(ago_s) = ago_s else { return finding };
            Finding { detail: format!("{} ({ago_s} s ago)", finding.detail), ..finding }
        }
        // No fault of the machine.
        Err(ControlError::TooSoon(why)) => finding(WHAT, None, why),
        Err(error) => finding(WHAT, Some(false), island_daemon::chain::Chain(&error).to_string()),
    }
}

fn told(check: &IslandCheck) -> Finding {
    let steps: Vec<String> =
        check.steps.iter().map(|step| format!("{} after {} ms", step.name, step.after_ms)).collect();
    let mut detail = match &check.workload_slug {
        Some(slug) => format!("{slug}: {}", steps.join(", ")),
        None => "none could be placed here".to_owned(),
    };
    if let Some(speed) = check.tokens_per_second {
        detail = format!("{detail}; {speed:.0} tokens/s");
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

/// What the coordinator's reason means to an owner, and what to do.
fn explained(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "offline" => "the coordinator does not hear this Island's heartbeats; is the way to the fabric open?",
        "draining" => {
            "this Island is paused or draining: `island-agent resume`, or see the rules in `status`"
        }
        "no_runtime" => "no engine that the catalogue asks for works here; see the engines above",
        "no_ram" => "less memory is free than the smallest job needs; see [memory] and what else runs",
        "no_vram" => "less GPU memory is free than the smallest job needs",
        "no_slot" => "all its slots are taken: it is at work",
        "no_tier" | "no_egress" => {
            "its rules for containers allow none of the jobs that its engines could run"
        }
        "price" => "it asks more for jobs than any of them pays; see [policy] asking",
        "model_unreachable" => "no model is on disk, and the place they come from cannot be reached",
        "no_model_near" => {
            "every job it could run needs a model that is not here yet, and none is fetched for a test"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use island_protocol::api::{CheckStep, JobError};

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
            error: error.map(|message| JobError {
                code: "no_island_available".to_owned(),
                message: message.to_owned(),
            }),
        }
    }

    #[test]
    fn what_came_of_it_is_told_in_one_line() {
        let told: Vec<String> = [
            check(None, &[("queued", 1), ("running", 60), ("output", 90), ("completed", 700)]),
            check(Some("no_ram"), &[]),
            check(
                Some("the Island did not take the job: not enough memory"),
                &[("queued", 1), ("failed", 9)],
            ),
        ]
        .iter()
        .map(|check| told(check).to_string())
        .collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
