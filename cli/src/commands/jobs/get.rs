//! `island jobs get`.

use std::path::Path;

use anyhow::Result;
use island_coordinator_client::Client;
use island_protocol::ids::JobId;
use island_protocol_api::JobView;
use serde_json::Value;

use crate::{
    commands::images,
    output::{Output, text::duration},
};

pub(super) async fn get(id: JobId, folder: Option<&Path>, client: &Client, output: &Output) -> Result<()> {
    let answer = client.job(id).answer().await?;
    if let (Some(folder), Some(result)) = (folder, &answer.value.output) {
        for path in images::save_all(folder, id, result)? {
            output.note(&format!("saved {}", path.display()));
        }
    }
    if output.is_json() { output.json(&answer.body) } else { show(answer.value, output) }
}

fn show(job: JobView, output: &Output) -> Result<()> {
    output.fields(&fields(&job)?)?;
    match job.output {
        Some(Value::String(text)) => output.line(&format!("\n{text}")),
        Some(other) => {
            output.line(&format!("\n{}", serde_json::to_string_pretty(&images::without_bytes(&other))?))
        }
        None => Ok(()),
    }
}

fn fields(job: &JobView) -> Result<Vec<(&'static str, String)>> {
    let mut fields = vec![
        ("Id", job.id.to_string()),
        ("Status", job.status.to_string()),
        ("Cargo", job.workload_slug.to_string()),
        ("Created", job.created_at.to_string()),
    ];
    let times =
        [("Placed", job.placed_at), ("Started", job.started_at), ("First output", job.first_output_at)];
    fields.extend(times.into_iter().filter_map(|(name, time)| Some((name, time?.to_string()))));
    if let Some(completed) = job.completed_at {
        fields.push(("Ended", completed.to_string()));
        fields.push(("Duration", duration(job.duration_ms)));
    }
    if let Some(usage) = &job.usage {
        if usage.prompt_tokens + usage.completion_tokens > 0 {
            fields.push(("Tokens", format!("{} + {}", usage.prompt_tokens, usage.completion_tokens)));
        }
        if let Some(credits) = usage.credits_used {
            fields.push(("Credits", credits.to_string()));
        }
        if let Some(device) = &usage.device {
            fields.push(("Device", device.clone()));
        }
    }
    if let Some(error) = &job.error {
        fields.push(("Error", format!("{} ({})", error.message, error.code)));
    }
    if let Some(reason) = &job.waiting_reason {
        fields.push(("Waiting", reason.clone()));
    }
    fields.push(("Input", shortened(&serde_json::to_string(&job.input)?)));
    Ok(fields)
}

/// An input with an image inside would fill the screen; `--format json` shows it whole.
fn shortened(text: &str) -> String {
    const MOST: usize = 400;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}
