//! `island workloads get`.

use anyhow::Result;
use island_protocol::ids::Slug;

use crate::{
    output::{
        Output,
        text::{prices, yes_no},
    },
    settings::Settings,
};

pub(super) async fn get(slug: &Slug, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.workload(slug.as_str()).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let workload = answer.value;
    let entry = workload.entry;
    let price = prices(&entry);
    output.fields(&[
        ("Slug", entry.slug.to_string()),
        ("Name", entry.name),
        ("Runtime", entry.runtime_type.to_string()),
        ("Price", price),
        ("VRAM", format!("{} MB", entry.required_vram_mb)),
        ("RAM", format!("{} MB", entry.required_ram_mb)),
        ("Enabled", yes_no(workload.is_enabled)),
        ("About", entry.description),
    ])?;
    output.line(&format!("\nInput schema:\n{}", serde_json::to_string_pretty(&workload.input_schema)?))?;
    match workload.example {
        Some(example) => output.line(&format!("\nExample:\n{}", serde_json::to_string_pretty(&example)?)),
        None => Ok(()),
    }
}
