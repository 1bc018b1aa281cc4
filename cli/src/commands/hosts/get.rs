//! `island hosts get`.

use anyhow::Result;
use island_protocol::host::{Capabilities, Device};
use island_protocol_api::HostView;

use crate::{
    commands::select,
    output::{Output, text::or_dash},
    settings::Settings,
};

pub(super) async fn get(host: &str, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let id = select::host(&client, host).await?;
    let answer = client.host(id).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.fields(&fields(answer.value))
}

fn fields(host: HostView) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("Id", host.id.to_string()),
        ("Name", host.name),
        ("Status", host.status),
        ("Region", or_dash(host.region)),
        ("Karma", karma(host.karma)),
        ("Heartbeat", or_dash(host.last_heartbeat_at)),
    ];
    if let Some(has) = host.capabilities {
        add(&mut fields, &has);
    }
    fields
}

/// Hours of computation with their unit: small jobs add up to less than a hundredth of an hour.
pub(super) fn karma(hours: f64) -> String {
    match hours * 3600.0 {
        seconds if seconds >= 3600.0 => format!("{hours:.2} h"),
        seconds if seconds >= 60.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{seconds:.0} s"),
    }
}

fn add(fields: &mut Vec<(&'static str, String)>, has: &Capabilities) {
    fields.push(("Processor", format!("{} x {}", has.cpu_cores, has.cpu_model)));
    fields.push(("Memory", format!("{} MB", has.ram_mb)));
    for gpu in &has.gpus {
        fields.push(("GPU", format!("{} ({} MB)", gpu.name, gpu.vram_mb)));
    }
    if let Some(reason) = &has.no_gpu_reason {
        fields.push(("GPU", format!("none: {reason}")));
    }
    for runtime in &has.runtimes {
        let state = match (&runtime.reason, runtime.engine()) {
            (Some(reason), _) if !runtime.available => format!("unavailable: {reason}"),
            (_, Some(engine)) => engine,
            _ => "available".into(),
        };
        let gpus = runtime.devices.iter().flatten().filter(|device| !device.is_cpu());
        let on = |device: &Device| format!("{} on {}", Device::api_name(&device.api), device.name);
        let facts: Vec<String> = std::iter::once(state).chain(gpus.map(on)).collect();
        fields.push(("Runtime", format!("{} ({})", runtime.kind, facts.join("; "))));
    }
    fields.push(("Sandbox", format!("{:?}: {}", has.sandbox.level, has.sandbox.layers.join(", "))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn karma_has_a_unit_and_is_not_rounded_to_zero() {
        let shown = [0.0, 0.002, 0.5, 3.25].map(karma);
        assert_eq!(shown, ["0 s", "7 s", "30 min", "3.25 h"]);
    }
}
