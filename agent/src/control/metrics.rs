//! The status for Prometheus, in its text format.

use std::fmt::Write as _;

use island_protocol::host::GpuLoad;

use super::status::Status;

/// Content type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All of it.
pub fn text(status: &Status) -> String {
    let mut page = Page(String::new());
    let gauge = "gauge";
    page.one("island_up_seconds", gauge, "Seconds since the agent started.", status.up_s as f64);
    page.one(
        "island_connected",
        gauge,
        "1 while registered with the coordinator.",
        f64::from(u8::from(status.connected)),
    );
    let works = status.verdict.cause().is_none();
    page.one("island_working", gauge, "1 while the owner's rules allow work.", f64::from(u8::from(works)));
    page.one("island_jobs", gauge, "Jobs here.", status.jobs.len() as f64);
    page.one("island_workers", gauge, "Processes of engines.", status.workers.len() as f64);
    page.one("island_cpu_percent", gauge, "Load of the processors.", f64::from(status.system.cpu_percent));
    let mb = |megabytes: u64| megabytes as f64 * f64::from(1 << 20);
    page.one("island_memory_used_bytes", gauge, "Main memory in use.", mb(status.system.memory_used_mb));
    page.one("island_memory_total_bytes", gauge, "Main memory.", mb(status.system.memory_total_mb));
    page.one("island_models_bytes", gauge, "Models on disk.", status.models_gb * f64::from(1 << 30));
    page.one("island_paid_jobs_total", "counter", "Jobs that were paid.", status.earned.jobs as f64);
    let credits = status.earned.total.0 as f64 / 1e6;
    page.one("island_earned_credits_total", "counter", "Credits earned.", credits);
    gpus(&mut page, status);
    page.head("island_worker_memory_bytes", gauge, "Main memory of an engine's process.");
    for worker in &status.workers {
        let labels = [("cargo", worker.cargo.as_str()), ("pid", &worker.pid.to_string())];
        page.labelled("island_worker_memory_bytes", &labels, mb(worker.ram_mb));
    }
    page.head("island_refusals_total", "counter", "Jobs that were offered and not taken.");
    for (reason, count) in &status.refusals {
        let reason = serde_json::to_value(reason).unwrap_or_default();
        let labels = [("reason", reason.as_str().unwrap_or("other"))];
        page.labelled("island_refusals_total", &labels, count.times as f64);
    }
    page.0
}

/// What a GPU does not report has no line.
fn gpus(page: &mut Page, status: &Status) {
    type Value = fn(&GpuLoad) -> Option<f64>;
    let mb = f64::from(1 << 20);
    let series: [(&str, &str, Value, f64); 4] = [
        ("island_gpu_memory_used_bytes", "GPU memory in use.", |gpu| Some(gpu.memory_used_mb? as f64), mb),
        ("island_gpu_busy_percent", "Load of a GPU.", |gpu| gpu.utilization_percent.map(f64::from), 1.0),
        (
            "island_gpu_temperature_celsius",
            "Temperature of a GPU.",
            |gpu| gpu.temperature_c.map(f64::from),
            1.0,
        ),
        ("island_gpu_power_watts", "Power that a GPU draws.", |gpu| gpu.power_draw_w.map(f64::from), 1.0),
    ];
    for (name, help, value, unit) in series {
        page.head(name, "gauge", help);
        for gpu in &status.gpus {
            if let Some(value) = value(gpu) {
                page.labelled(name, &[("gpu", &gpu.index.to_string())], value * unit);
            }
        }
    }
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        self.labelled(name, &[], value);
    }

    fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let label = |(name, value): &(&str, &str)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        };
        let labels: Vec<_> = labels.iter().map(label).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}
