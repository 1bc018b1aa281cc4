//! `island hosts list`.

use anyhow::Result;

use super::get::karma;
use crate::{
    commands::network,
    output::{Column, Output, text::or_dash},
    settings::Settings,
};

const COLUMNS: [Column; 5] = [
    Column::of("id").id(),
    Column::of("name"),
    Column::of("status"),
    Column::of("region").drop(2),
    Column::of("karma").drop(1),
];

pub(super) async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let (answer, announced) = tokio::join!(client.hosts().answer(), network::announcements(&client, output));
    let answer = answer?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|host| {
        vec![
            host.id.to_string(),
            host.name.clone(),
            host.status.clone(),
            or_dash(host.region.as_ref()),
            karma(host.karma),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No Islands yet.")?;
    network::announce(&announced, output);
    Ok(())
}
