//! `island workloads list`.

use std::collections::HashMap;

use anyhow::Result;
use island_protocol::ids::Slug;
use island_protocol_api::WorkloadView;
use serde_json::Value;

use crate::{
    args::CargoFilter,
    output::{Column, Output, text::prices},
    settings::Settings,
};

const COLUMNS: [Column; 5] = [
    Column::of("slug"),
    Column::of("name").cut().drop(1),
    Column::of("runtime").drop(3),
    Column::of("price").drop(2),
    Column::of("islands"),
];

pub(super) async fn list(filter: &CargoFilter, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let (mut answer, rates) =
        tokio::try_join!(client.workloads().answer(), client.market_rates().into_future())?;
    let islands: HashMap<Slug, u64> =
        rates.into_iter().map(|rate| (rate.workload_slug, rate.num_hosts)).collect();
    let is_shown = |workload: &WorkloadView| {
        let islands = islands.get(&workload.entry.slug).copied().unwrap_or(0);
        filter.runtime.as_ref().is_none_or(|runtime| workload.entry.runtime_type == *runtime)
            && filter.category.is_none_or(|category| workload.entry.category == Some(category))
            && (!filter.runnable || (workload.is_enabled && islands > 0))
    };
    if output.is_json() {
        let mut shown = answer.value.iter().map(is_shown);
        if let Some(Value::Array(entries)) = answer.body.get_mut("data") {
            entries.retain(|_| shown.next().unwrap_or(true));
        }
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().filter(|workload| is_shown(workload)).map(|workload| {
        let entry = &workload.entry;
        let islands = islands.get(&entry.slug).copied().unwrap_or(0);
        vec![
            entry.slug.to_string(),
            entry.name.clone(),
            entry.runtime_type.to_string(),
            prices(entry),
            if workload.is_enabled { islands.to_string() } else { "disabled".into() },
        ]
    });
    let empty = if answer.value.is_empty() { "No Cargos." } else { "No Cargo matches." };
    output.table(&COLUMNS, rows.collect(), empty)
}
