//! `island jobs cancel`.

use anyhow::Result;
use island_coordinator_client::Client;
use island_protocol::ids::JobId;

use crate::output::Output;

pub(super) async fn cancel(id: JobId, client: &Client, output: &Output) -> Result<()> {
    let answer = client.cancel_job(id).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} {}", answer.value.id, answer.value.status))
}
