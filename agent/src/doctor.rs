//! What works here, and why the rest does not: `island-agent doctor`.

use std::fmt;

use island_coordinator_client::Client;
use island_daemon::chain::Chain;
use island_protocol::{egress::Egress, host::SandboxLevel};

use crate::{
    config::Config,
    egress,
    inventory::{self, gpu::Gpus, runtimes::Runtimes},
};

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// Whether it is as it should be; `None` where it need not be.
    pub good: Option<bool>,
    /// What was found.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.good {
            Some(true) => "ok",
            Some(false) => "PROBLEM",
            None => "-",
        };
        write!(f, "{mark:<8} {:<22} {}", self.what, self.detail)
    }
}

/// Looks at everything.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let runtimes = Runtimes::probe(&config.bin_dir(), config.simulated, &config.containers).await;
    let gpus = Gpus::open();
    let found = inventory::discover(&gpus, runtimes.report(), runtimes.sandbox());
    let machine =
        format!("{}, {} x {}, {} MB memory", found.platform, found.cpu_cores, found.cpu_model, found.ram_mb);
    let mut findings = vec![finding("machine", None, machine)];
    match found.no_gpu_reason {
        Some(reason) => findings.push(finding("GPU", None, reason)),
        None => findings.extend(found.gpus.iter().map(|gpu| {
            finding(&format!("GPU {}", gpu.index), Some(true), format!("{}, {} MB", gpu.name, gpu.vram_mb))
        })),
    }
    for runtime in &found.runtimes {
        let name = if runtime.simulated { "simulated".to_owned() } else { runtime.kind.to_string() };
        let detail = runtime.reason.clone().or_else(|| runtime.engine()).unwrap_or_default();
        findings.push(finding(&format!("engine {name}"), runtime.available.then_some(true), detail));
    }
    if !found.runtimes.iter().any(|runtime| runtime.available) {
        findings.push(finding("engines", Some(false), "no engine works here, so no job can run".into()));
    }
    findings.push(sandbox(&found.sandbox, config.allow_weak_sandbox));
    findings.push(way_out(config));
    findings.push(disk(config));
    findings.push(coordinator(config).await);
    findings
}

fn sandbox(report: &island_protocol::host::SandboxReport, allow_weak: bool) -> Finding {
    let good = report.level == SandboxLevel::Full || allow_weak;
    let mut detail = format!("{:?}: {}", report.level, report.walls.join(", ")).to_lowercase();
    if !report.missing.is_empty() {
        detail = format!("{detail}; missing: {}", report.missing.join(", "));
    }
    finding("walls around workers", Some(good), detail)
}

/// What containers may connect to, and whether they can.
fn way_out(config: &Config) -> Finding {
    let wanted = config.containers.egress != Egress::None;
    match egress::forwarder(&config.bin_dir()) {
        _ if !wanted => finding("containers' way out", None, "none: [containers] egress = \"none\"".into()),
        Ok(forwarder) => {
            let allowed = serde_json::to_string(&config.containers.egress).unwrap_or_default();
            finding("containers' way out", Some(true), format!("to {allowed}, by {}", forwarder.display()))
        }
        Err(reason) => finding("containers' way out", Some(false), reason),
    }
}

fn disk(config: &Config) -> Finding {
    let dir = config.cache_dir();
    // Before the first start the folder is not there yet: its nearest parent lies on the same disk.
    let place = dir.ancestors().find(|place| place.exists());
    match place.and_then(inventory::disk_mb) {
        Some((free, total)) => {
            let detail =
                format!("{} GB of {} GB free for models in {}", free >> 10, total >> 10, dir.display());
            finding("disk", Some(free > 1024), detail)
        }
        None => finding("disk", Some(false), format!("{} cannot be looked at", dir.display())),
    }
}

async fn coordinator(config: &Config) -> Finding {
    let health = match Client::new(&config.api_url, None) {
        Ok(client) => client.health().await,
        Err(error) => Err(error),
    };
    match health {
        Ok(health) => {
            let good = health.status == "ok";
            finding(
                "coordinator",
                Some(good),
                format!("{} {} ({})", config.api_url, health.status, health.version),
            )
        }
        Err(error) => finding("coordinator", Some(false), Chain(&error).to_string()),
    }
}

fn finding(what: &str, good: Option<bool>, detail: String) -> Finding {
    Finding { what: what.to_owned(), good, detail }
}
