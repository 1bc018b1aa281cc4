//! `island network notices`, and the notices beside other commands.

use anyhow::Result;
use island_coordinator_client::Client;
use island_protocol_api::network::{NetworkMaintenance, NetworkNotices};

use crate::{output::Output, settings::Settings};

pub(super) async fn notices(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.network_notices().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let NetworkNotices { maintenance, notices } = &answer.value;
    match maintenance {
        Some(maintenance) => output.line(&refusal(maintenance, output))?,
        None => output.line("New jobs are accepted.")?,
    }
    // A table would shorten them on a terminal.
    for notice in notices {
        output.line(&format!("{}  {}", output.moment(notice.created_at), notice.text))?;
    }
    if notices.is_empty() { output.line("No notices.") } else { Ok(()) }
}

/// What a person who reads about the network should know. Nothing for programs, or if it cannot be read: it is not part of
/// the result, and older coordinators do not have it.
pub(in crate::commands) async fn announcements(client: &Client, output: &Output) -> NetworkNotices {
    if output.is_json() {
        return NetworkNotices::default();
    }
    client.network_notices().await.unwrap_or_default()
}

/// Prints announcements beside the result.
pub(in crate::commands) fn announce(announced: &NetworkNotices, output: &Output) {
    if let Some(maintenance) = &announced.maintenance {
        output.warn(&refusal(maintenance, output));
    }
    for notice in &announced.notices {
        output.note(&format!("notice ({}): {}", output.moment(notice.created_at), notice.text));
    }
}

fn refusal(maintenance: &NetworkMaintenance, output: &Output) -> String {
    let NetworkMaintenance { since, reason } = maintenance;
    format!("maintenance, no new jobs are accepted ({}): {reason}", output.moment(*since))
}
