//! `island hosts`.

use anyhow::{Context, Result};

use crate::{args::Hosts, output::Output, settings::Settings};

pub(crate) async fn run(command: Hosts, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Hosts::List => list(settings, output).await,
        Hosts::Get { id } => get(&id, settings, output).await,
    }
}

async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let hosts = settings.client()?.hosts().await?;
    if output.is_json() {
        return output.json(&hosts);
    }
    let rows = hosts.iter().map(|host| {
        vec![
            host.id.to_string(),
            host.name.clone(),
            host.status.clone(),
            host.region.clone().unwrap_or_else(|| "-".into()),
            format!("{:.2}", host.karma),
        ]
    });
    output.table(&["id", "name", "status", "region", "karma"], rows.collect(), "No Islands yet.");
    Ok(())
}

async fn get(id: &str, settings: &Settings, output: &Output) -> Result<()> {
    let id = id.parse().with_context(|| format!("'{id}' cannot name an Island"))?;
    let host = settings.client()?.host(id).await?;
    if output.is_json() {
        return output.json(&host);
    }
    let mut fields = vec![
        ("Id", host.id.to_string()),
        ("Name", host.name),
        ("Status", host.status),
        ("Region", host.region.unwrap_or_else(|| "-".into())),
        ("Karma", format!("{:.2}", host.karma)),
        ("Heartbeat", host.last_heartbeat_at.map_or_else(|| "-".into(), |at| at.to_string())),
    ];
    if let Some(has) = host.capabilities {
        fields.push(("Processor", format!("{} x {}", has.cpu_cores, has.cpu_model)));
        fields.push(("Memory", format!("{} MB", has.ram_mb)));
        for gpu in &has.gpus {
            fields.push(("GPU", format!("{} ({} MB)", gpu.name, gpu.vram_mb)));
        }
        if let Some(reason) = &has.no_gpu_reason {
            fields.push(("GPU", format!("none: {reason}")));
        }
        for runtime in &has.runtimes {
            let state = match (&runtime.reason, &runtime.version) {
                (Some(reason), _) if !runtime.available => format!("unavailable: {reason}"),
                (_, Some(version)) => version.clone(),
                _ => "available".into(),
            };
            fields.push(("Runtime", format!("{} ({state})", runtime.kind)));
        }
        fields.push(("Sandbox", format!("{:?}: {}", has.sandbox.level, has.sandbox.walls.join(", "))));
    }
    output.fields(&fields);
    Ok(())
}
