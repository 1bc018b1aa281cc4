//! `island workloads list`.

use anyhow::Result;

use crate::{
    output::{
        Output,
        text::{price, yes_no},
    },
    settings::Settings,
};

pub(super) async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.workloads().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|workload| {
        let entry = &workload.entry;
        vec![
            entry.slug.to_string(),
            entry.name.clone(),
            entry.runtime_type.to_string(),
            price(entry.price_per_job),
            yes_no(workload.is_enabled),
        ]
    });
    output.table(&["slug", "name", "runtime", "price", "enabled"], rows.collect(), "No Cargos.")
}
