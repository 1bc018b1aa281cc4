//! `island api-keys list`.

use anyhow::Result;

use island_protocol::time::Timestamp;
use island_protocol_api::key::KeyView;

use super::scopes;
use crate::{
    output::{
        Column, Output,
        text::{credits, now},
    },
    settings::Settings,
};

const COLUMNS: [Column; 8] = [
    Column::of("id").id(),
    Column::of("name").cut(),
    Column::of("prefix").drop(4),
    Column::of("scopes").drop(3),
    Column::of("created").drop(5),
    Column::of("last used").drop(2),
    Column::of("expires"),
    Column::of("spent / cap").drop(1),
];

pub(super) async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.api_keys().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    table(&answer.value, output)
}

/// Prints keys for people.
pub(in crate::commands) fn table(keys: &[KeyView], output: &Output) -> Result<()> {
    let now = now();
    let rows = keys.iter().map(|key| {
        // Uses are recorded to the minute, and would seem to come before the creation.
        let last_used = key.last_used_at.map(|used| used.max(key.created_at));
        let cap = key.spend_cap.map_or_else(|| "-".into(), credits);
        vec![
            key.id.to_string(),
            key.name.clone(),
            key.prefix.clone(),
            scopes(&key.scopes),
            output.moment(key.created_at),
            last_used.map_or_else(|| "-".into(), |used| output.moment(used)),
            expiry(key, now, output),
            format!("{} / {cap}", credits(key.spent)),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No keys.")
}

/// When a key stops working, or stopped.
fn expiry(key: &KeyView, now: Timestamp, output: &Output) -> String {
    match key.expires_at {
        None => "-".into(),
        Some(moment) if moment <= now => format!("expired {}", output.moment(moment)),
        Some(moment) => output.moment(moment),
    }
}
