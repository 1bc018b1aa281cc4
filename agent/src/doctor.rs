//! What works here, and why the rest does not: `island-agent doctor`.

mod trial;

use std::{fmt, time::Instant};

use island_coordinator_client::Client;
use island_daemon::chain::Chain;
use island_protocol::{
    egress::Egress,
    host::{Capabilities, SandboxLevel},
};

use crate::{
    agent::coordinator_url,
    config::Config,
    control::client::{Control, ControlError},
    egress,
    inventory::{
        self,
        cgroup::Groups,
        gpu::{Card, Gpus, View},
        runtimes::Runtimes,
    },
    policy::gpus::{self, GpuRule},
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
    let gpus = Gpus::here_read_only(&config.state_dir).poll(Instant::now());
    let found = inventory::discover(&gpus, runtimes.report(), runtimes.sandbox());
    let mut findings = machine(&found);
    findings.extend(graphics(&config.policy.gpu, &gpus));
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
    findings.extend(agent(config).await);
    findings
}

fn machine(found: &Capabilities) -> Vec<Finding> {
    let Capabilities { platform, cpu_cores, cpu_model, ram_mb, .. } = found;
    let mut findings =
        vec![finding("machine", None, format!("{platform}, {cpu_cores} x {cpu_model}, {ram_mb} MB memory"))];
    if !found.cpu_features.is_empty() {
        findings.push(finding("processor", None, found.cpu_features.join(" ")));
    }
    if let Some(nodes) = found.numa_nodes.filter(|nodes| *nodes > 1) {
        findings.push(finding("memory", None, format!("in {nodes} NUMA nodes")));
    }
    let groups = Groups::default();
    if let Some(processors) = groups.processors() {
        findings.push(finding("control group", None, format!("leaves {processors} processors")));
    }
    if let Some(room) = groups.memory() {
        findings.push(finding("control group", None, format!("leaves {} MB memory", room.limit >> 20)));
    }
    findings
}

/// GPUs, what holds for each, and what is not told of them.
fn graphics(rules: &[GpuRule], gpus: &View) -> Vec<Finding> {
    let mut findings: Vec<Finding> = gpus.cards.iter().map(|card| graphic(rules, card)).collect();
    findings.extend(gpus.none.clone().map(|reason| finding("GPU", None, reason)));
    if gpus.none.is_none() {
        findings.extend(gpus.problems.iter().map(|problem| finding("GPU", Some(false), problem.clone())));
    }
    let unmet = rules.iter().filter(|rule| !gpus.cards.iter().any(|card| rule.gpu.means(card)));
    findings.extend(unmet.map(|rule| {
        finding("[[policy.gpu]]", Some(false), format!("{} is none of the GPUs that are here", rule.gpu))
    }));
    findings
}

fn graphic(rules: &[GpuRule], card: &Card) -> Finding {
    let (seen, limits) = (&card.seen, gpus::limits(rules, card));
    let mut detail = format!("{}, {} MB, {}", seen.name, seen.vram_mb, seen.id);
    let said = [
        limits.max_vram_mb.map(|most| format!("at most {most} MB for jobs")),
        limits.max_temperature_c.map(|most| format!("left alone at {most} °C")),
        limits.max_power_w.map(|most| format!("left alone at {most} W")),
        limits.never.then(|| "never used for jobs".to_owned()),
    ];
    let missing = seen.missing();
    let untold = (!missing.is_empty()).then(|| format!("not told: {}", missing.join("; ")));
    for further in said.into_iter().flatten().chain(untold) {
        detail = format!("{detail}; {further}");
    }
    finding(&format!("GPU {}", card.index), (!limits.never).then_some(true), detail)
}

/// The agent that runs here: without one nothing works, however good all else is.
async fn agent(config: &Config) -> Vec<Finding> {
    let away = |error: ControlError| vec![finding("agent", Some(false), Chain(&error).to_string())];
    let control = match Control::new(&config.state_dir) {
        Ok(control) => control,
        Err(error) => return away(error),
    };
    let status = match control.status().await {
        Ok(status) => status,
        Err(error) => return away(error),
    };
    let detail = match status.verdict.reason() {
        _ if !status.connected => "runs, and the coordinator does not have it registered".to_owned(),
        Some(reason) => format!("runs, registered, and takes no work: {reason}"),
        None => "runs, registered, and takes work".to_owned(),
    };
    let mut findings = vec![finding("agent", Some(status.connected), detail)];
    findings.push(if status.connected && status.verdict.reason().is_none() {
        trial::run(&control).await
    } else {
        finding(trial::WHAT, None, "not tried: this Island takes no work now".into())
    });
    findings.extend(status.gpu_notes.into_iter().map(|note| finding("agent's GPUs", None, note)));
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
    let url = coordinator_url(config);
    let health = match Client::new(&url, None) {
        Ok(client) => client.health().await,
        Err(error) => Err(error),
    };
    match health {
        Ok(health) => {
            let good = health.status == "ok";
            finding("coordinator", Some(good), format!("{url} {} ({})", health.status, health.version))
        }
        Err(error) => finding("coordinator", Some(false), Chain(&error).to_string()),
    }
}

fn finding(what: &str, good: Option<bool>, detail: String) -> Finding {
    Finding { what: what.to_owned(), good, detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{inventory::gpu::Vendor, policy::gpus::tests::card};

    #[test]
    fn gpus_are_told_with_their_rules_and_rules_without_a_gpu_are_a_problem() {
        let mut one = card(0, Vendor::Amd, 8000, Ok(100), None);
        one.seen.power_w = Err("the driver has no power1_input".into());
        let view = View {
            cards: vec![one],
            problems: vec!["GPU 1 (Other) was here and is gone".into()],
            none: None,
        };
        let rule = |name: &str| GpuRule {
            gpu: name.parse().expect("a name"),
            never: false,
            max_vram_mb: Some(4000),
            max_temperature_c: None,
            max_power_w: None,
        };
        let told: Vec<_> = graphics(&[rule("0"), rule("1")], &view).iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(told.join("\n"));
        let kept = graphics(&[GpuRule { never: true, ..rule("0") }], &view);
        assert_eq!(kept[0].good, None, "what is not offered is neither good nor bad");
    }
}
