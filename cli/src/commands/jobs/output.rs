//! `island jobs output`.

use anyhow::Result;
use island_coordinator_client::Client;
use island_protocol::ids::JobId;
use serde_json::Value;

use crate::output::Output;

/// Prints text as it is, and any other output as JSON.
pub(super) async fn output(id: JobId, client: &Client, output: &Output) -> Result<()> {
    let answer = client.job_output(id).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    match answer.value.output {
        Value::String(text) => output.line(&text),
        other => output.json(&other),
    }
}
