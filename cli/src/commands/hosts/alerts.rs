//! `island hosts alerts`.

use anyhow::Result;
use island_protocol_api::alert::Alert;

use crate::{
    output::{Column, Output},
    settings::Settings,
};

const COLUMNS: [Column; 3] = [Column::of("id").id(), Column::of("name"), Column::of("alert").cut()];

pub(super) async fn alerts(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.host_alerts().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows =
        answer.value.iter().map(|one| vec![one.host_id.to_string(), one.name.clone(), in_words(one.alert)]);
    output.table(&COLUMNS, rows.collect(), "No alerts.")
}

fn in_words(alert: Alert) -> String {
    match alert {
        Alert::Offline => "offline".to_owned(),
        Alert::Suspended => "suspended by an operator".to_owned(),
        Alert::Hot { degrees } => format!("a GPU has {degrees} °C"),
        Alert::DiskFull { free_gb } => format!("the disk is almost full: {free_gb:.0} GB are free"),
    }
}
