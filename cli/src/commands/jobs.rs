//! `island jobs`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use island_coordinator_client::Client;
use island_protocol::{api::JobView, ids::JobId};
use serde_json::Value;

use super::follow::{Follow, follow};
use crate::{
    args::Jobs,
    output::{Output, duration},
    settings::Settings,
};

pub(crate) async fn run(command: Jobs, settings: &Settings, output: &Output) -> Result<ExitCode> {
    let client = settings.client()?;
    match command {
        Jobs::Submit { workload, input, priority, stream } => {
            let job = client.submit_job(&workload, read_input(&input)?, priority).await?;
            if stream {
                let how = Follow { whole: false, cancel_on_interrupt: false };
                return follow(&client, job.id, None, how, output).await;
            }
            if output.is_json() { output.json(&job)? } else { output.line(&job.id.to_string()) }
        }
        Jobs::List { limit, offset } => list(&client, limit, offset, output).await?,
        Jobs::Get { id } => {
            let job = client.job(parse_id(&id)?).await?;
            if output.is_json() { output.json(&job)? } else { show(job, output)? }
        }
        Jobs::Stream { id, after } => {
            let how = Follow { whole: false, cancel_on_interrupt: false };
            return follow(&client, parse_id(&id)?, after, how, output).await;
        }
        Jobs::Cancel { id } => {
            let job = client.cancel_job(parse_id(&id)?).await?;
            if output.is_json() {
                output.json(&job)?
            } else {
                output.line(&format!("{} {}", job.id, job.status))
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, limit: u64, offset: u64, output: &Output) -> Result<()> {
    let page = client.jobs(limit, offset).await?;
    if output.is_json() {
        return output.json(&page);
    }
    let rows = page.data.iter().map(|job| {
        vec![
            job.id.to_string(),
            job.status.to_string(),
            job.workload_slug.to_string(),
            duration(job.duration_ms),
            job.created_at.to_string(),
        ]
    });
    output.table(&["id", "status", "workload", "duration", "created"], rows.collect(), "No jobs yet.");
    Ok(())
}

fn show(job: JobView, output: &Output) -> Result<()> {
    let mut fields = vec![
        ("Id", job.id.to_string()),
        ("Status", job.status.to_string()),
        ("Workload", job.workload_slug.to_string()),
        ("Created", job.created_at.to_string()),
    ];
    if let Some(completed) = job.completed_at {
        fields.push(("Ended", completed.to_string()));
        fields.push(("Duration", duration(job.duration_ms)));
    }
    if let Some(usage) = job.usage {
        fields.push(("Tokens", format!("{} + {}", usage.prompt_tokens, usage.completion_tokens)));
        if let Some(credits) = usage.credits_used {
            fields.push(("Credits", credits.to_string()));
        }
    }
    if let Some(error) = job.error {
        fields.push(("Error", format!("{} ({})", error.message, error.code)));
    }
    if let Some(waiting) = job.waiting {
        fields.push(("Waiting", serde_json::to_string(&waiting)?));
    }
    fields.push(("Input", serde_json::to_string(&job.input)?));
    output.fields(&fields);
    match job.output {
        Some(Value::String(text)) => output.line(&format!("\n{text}")),
        Some(other) => output.line(&format!("\n{}", serde_json::to_string_pretty(&other)?)),
        None => {}
    }
    Ok(())
}

fn parse_id(text: &str) -> Result<JobId> {
    text.parse().with_context(|| format!("'{text}' cannot name a job"))
}

/// JSON, or the JSON in the file after an `@`.
fn read_input(text: &str) -> Result<Value> {
    let json = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("read {path}"))?,
        None => text.to_owned(),
    };
    serde_json::from_str(&json).context("--input is not JSON")
}
