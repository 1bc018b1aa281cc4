//! `island workloads`.

use anyhow::Result;

use crate::{args::Workloads, output::Output, settings::Settings};

pub(crate) async fn run(command: Workloads, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Workloads::List => list(settings, output).await,
        Workloads::Get { slug } => get(&slug, settings, output).await,
    }
}

async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let workloads = settings.client()?.workloads().await?;
    if output.is_json() {
        return output.json(&workloads);
    }
    let rows = workloads.iter().map(|workload| {
        let entry = &workload.entry;
        let enabled = if workload.is_enabled { "yes" } else { "no" };
        vec![
            entry.slug.to_string(),
            entry.name.clone(),
            entry.runtime_type.to_string(),
            format!("{:.4}", entry.price_per_job.0 as f64 / 1e6),
            enabled.into(),
        ]
    });
    output.table(&["slug", "name", "runtime", "price", "enabled"], rows.collect(), "No Cargos.");
    Ok(())
}

async fn get(slug: &str, settings: &Settings, output: &Output) -> Result<()> {
    let workload = settings.client()?.workload(slug).await?;
    if output.is_json() {
        return output.json(&workload);
    }
    let entry = workload.entry;
    output.fields(&[
        ("Slug", entry.slug.to_string()),
        ("Name", entry.name),
        ("Runtime", entry.runtime_type.to_string()),
        ("Price", format!("{:.4}", entry.price_per_job.0 as f64 / 1e6)),
        ("VRAM", format!("{} MB", entry.required_vram_mb)),
        ("RAM", format!("{} MB", entry.required_ram_mb)),
        ("Enabled", if workload.is_enabled { "yes" } else { "no" }.into()),
        ("About", entry.description),
    ]);
    output.line(&format!("\nInput schema:\n{}", serde_json::to_string_pretty(&workload.input_schema)?));
    if let Some(example) = workload.example {
        output.line(&format!("\nExample:\n{}", serde_json::to_string_pretty(&example)?));
    }
    Ok(())
}
