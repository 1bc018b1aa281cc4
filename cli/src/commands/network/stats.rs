//! `island network stats`.

use anyhow::Result;

use crate::{output::Output, settings::Settings};

pub(super) async fn stats(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.network_stats().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.fields(&[
        ("Islands online", answer.value.online_islands.to_string()),
        ("Regions", answer.value.regions.to_string()),
        ("Jobs completed", answer.value.jobs_completed.to_string()),
    ])
}
