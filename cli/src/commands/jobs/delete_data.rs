//! `island jobs delete-data`.

use anyhow::Result;
use island_coordinator_client::Client;
use island_protocol::ids::JobId;

use crate::output::Output;

pub(super) async fn delete_data(id: JobId, client: &Client, output: &Output) -> Result<()> {
    let answer = client.delete_job_data(id).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} deleted", answer.value.id))
}
