//! `island-agent doctor`: checks what works on this machine, and reports why the rest does not.

mod hub;
pub mod settings;
mod test_job;

use std::{fmt, time::Instant};

use island_daemon::chain::Chain;
use island_protocol::{
    egress::Egress,
    host::{Capabilities, SandboxLevel, SandboxReport},
};

use crate::{
    agent::coordinator_url,
    config::{Config, permission_hint},
    control::{
        client::{Control, ControlError},
        screen::wrap,
        status::Status,
    },
    inventory::{
        self,
        cgroup::Groups,
        engine_devices::EngineDevices,
        gpu::{Card, Gpus, View},
        runtimes::Runtimes,
    },
    network::egress,
    owner::policy::gpus::{self, GpuRule},
};

/// Columns of a mark and its gap.
const MARK: usize = 9;
/// Columns of a name and its gap.
const NAME: usize = 23;
/// Columns from which details have a column of their own.
const WIDE: usize = 100;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was checked.
    pub what: String,
    /// Whether it works; `None` if it does not have to.
    pub good: Option<bool>,
    /// What was found.
    pub detail: String,
}

impl Finding {
    fn mark(&self) -> &'static str {
        match self.good {
            Some(true) => "ok",
            Some(false) => "PROBLEM",
            None => "-",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<MARK$}{:<NAME$}{}", self.mark(), self.what, self.detail)
    }
}

/// Returns the findings as text: one line each, or wrapped to `width` columns.
pub fn text(findings: &[Finding], width: Option<usize>) -> String {
    let mut text = String::new();
    for finding in findings {
        let Some(width) = width else {
            text.push_str(&finding.to_string());
            text.push('\n');
            continue;
        };
        let (first, indent, detail) = if width < WIDE {
            (finding.mark().to_owned(), MARK, format!("{}: {}", finding.what, finding.detail))
        } else {
            let first = format!("{:<MARK$}{}", finding.mark(), finding.what);
            (first, MARK + NAME, finding.detail.clone())
        };
        for (number, line) in wrap(&detail, width.saturating_sub(indent)).iter().enumerate() {
            let first = if number == 0 { first.as_str() } else { "" };
            text.push_str(format!("{first:<indent$}{line}").trim_end());
            text.push('\n');
        }
    }
    text
}

/// The settings of the agent that runs on the state folder of `config`, if there is one.
pub async fn in_force(config: &Config) -> Option<Config> {
    Control::new(&config.state_dir).ok()?.settings().await.ok()
}

/// Checks everything, with the settings and engines of the running agent if it answers. `is_named` is whether the owner named the settings
/// to check.
pub async fn examine(config: &Config, is_named: bool) -> Vec<Finding> {
    let running = if is_named { None } else { in_force(config).await };
    let config = running.as_ref().unwrap_or(config);
    let agents = match (&running, Control::new(&config.state_dir)) {
        (Some(_), Ok(control)) => control.capabilities().await.ok(),
        _ => None,
    };
    let runtimes = Runtimes::probe(&config.bin_dir(), config.simulated, &config.containers).await;
    let gpus = Gpus::here_read_only(&config.state_dir, &runtimes.devices());
    let gpus = gpus.with_consent(gpus::consent(config.policy.gpu.clone())).poll(Instant::now());
    let mut found = inventory::discover(&gpus, runtimes.report(&gpus.cards), runtimes.sandbox());
    // What the agent's workers reach may be less than what this program does, which has other rights.
    if let Some(agents) = agents {
        (found.runtimes, found.sandbox) = (agents.runtimes, agents.sandbox);
    }
    let mut findings = machine(&found);
    findings.extend(graphics(&config.policy.gpu, &gpus));
    let engines = runtimes.engine_devices(&gpus.cards);
    findings.extend(unused(&config.policy.gpu, &gpus.cards, &engines));
    for runtime in &found.runtimes {
        let name = if runtime.simulated { "simulated".to_owned() } else { runtime.kind.to_string() };
        let detail = runtime.reason.clone().or_else(|| runtime.engine()).unwrap_or_default();
        let engine = engines.iter().find(|engine| engine.engine == name);
        let detail =
            engine.map_or_else(|| detail.clone(), |engine| format!("{}; {detail}", engine.in_words()));
        findings.push(finding(&format!("engine {name}"), runtime.available.then_some(true), detail));
    }
    if !found.runtimes.iter().any(|runtime| runtime.available) {
        findings.push(finding(
            "engines",
            Some(false),
            "no engine works on this machine, so no job can run".into(),
        ));
    }
    findings.push(sandbox(&found.sandbox, config.allow_weak_sandbox));
    findings.push(container_egress(config));
    findings.extend(container_gpus(config, &runtimes));
    findings.push(disk(config));
    findings.push(encryption(config));
    let (coordinator, hub) = tokio::join!(coordinator(config), hub::check(config));
    findings.extend([coordinator, hub]);
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
        findings.push(finding("control group", None, format!("limited to {processors} processors")));
    }
    if let Some(memory) = groups.memory() {
        findings.push(finding("control group", None, format!("limited to {} MB memory", memory.limit >> 20)));
    }
    findings
}

/// GPUs with their rules and the values that are not measured, and rules without a GPU.
fn graphics(rules: &[GpuRule], gpus: &View) -> Vec<Finding> {
    let mut findings: Vec<Finding> = gpus.cards.iter().map(|card| graphic(rules, card)).collect();
    // Of a machine whose only GPU has a problem, the reason for having none contains it.
    if gpus.problems.is_empty() {
        findings.extend(gpus.none.clone().map(|reason| finding("GPU", None, reason)));
    }
    findings.extend(gpus.problems.iter().map(|problem| finding("GPU", Some(false), problem.clone())));
    let unmet = rules.iter().filter(|rule| !gpus.cards.iter().any(|card| rule.gpu.means(card)));
    findings.extend(unmet.map(|rule| {
        finding("[[policy.gpu]]", Some(false), format!("no GPU of this machine is {}", rule.gpu))
    }));
    findings
}

/// GPUs that engines do not use. It is a problem if no engine uses one that the owner offers.
fn unused(rules: &[GpuRule], cards: &[Card], engines: &[EngineDevices]) -> Vec<Finding> {
    let findings_of = |card: &Card| {
        let is_offered = !gpus::limits(rules, card).never;
        let notes: Vec<String> = engines
            .iter()
            .flat_map(EngineDevices::notes)
            .filter(|(gpu, _)| *gpu == card.index)
            .map(|(_, note)| note)
            .collect();
        let is_wasted = is_offered && !engines.is_empty() && notes.len() == engines.len();
        let good = is_wasted.then_some(false);
        notes.into_iter().map(move |note| finding("GPU", good, note)).collect::<Vec<_>>()
    };
    cards.iter().flat_map(findings_of).collect()
}

fn graphic(rules: &[GpuRule], card: &Card) -> Finding {
    let (seen, limits) = (&card.seen, gpus::limits(rules, card));
    let mut detail = format!("{}, {} MB, {}", seen.name, seen.vram_mb, seen.id);
    let rules = [
        limits.max_vram_mb.map(|limit| {
            let whatever = if card.by_limit { ", whatever other programs use" } else { "" };
            format!("at most {limit} MB for jobs{whatever}")
        }),
        limits.max_temperature_c.map(|limit| format!("paused at {limit} °C")),
        limits.max_power_w.map(|limit| format!("paused at {limit} W")),
        limits.never.then(|| "never used for jobs".to_owned()),
    ];
    let missing = seen.missing();
    let unmeasured = (!missing.is_empty()).then(|| format!("not measured: {}", missing.join("; ")));
    for further in rules.into_iter().flatten().chain(unmeasured) {
        detail = format!("{detail}; {further}");
    }
    finding(&format!("GPU {}", card.index), (!limits.never).then_some(true), detail)
}

/// The agent that runs here, and a test job through the network.
async fn agent(config: &Config) -> Vec<Finding> {
    let away = |error: ControlError| {
        let start = || "start it: sudo systemctl start island-agent, or island-agent run".to_owned();
        let next = permission_hint(&error, &config.state_dir).unwrap_or_else(start);
        vec![finding("agent", Some(false), format!("{}; {next}", Chain(&error)))]
    };
    let control = match Control::new(&config.state_dir) {
        Ok(control) => control,
        Err(error) => return away(error),
    };
    let status = match control.status().await {
        Ok(status) => status,
        Err(error) => return away(error),
    };
    let mut findings = vec![running(&status)];
    findings.push(if status.connected && status.verdict.reason().is_none() {
        test_job::run(&control).await
    } else {
        finding(test_job::WHAT, None, "not run: this Island accepts no jobs now".into())
    });
    findings.extend(status.notes.into_iter().map(|note| finding("agent", Some(false), note)));
    findings.extend(status.gpu_notes.into_iter().map(|note| finding("agent's GPUs", None, note)));
    findings
}

fn running(status: &Status) -> Finding {
    let detail = match (&status.refusal, status.verdict.reason()) {
        _ if status.left => {
            "runs, but this Island has left the network; run `island-agent enroll --coordinator URL`, or stop the agent".to_owned()
        }
        (Some(refusal), _) => format!("runs, but the coordinator refuses this Island: {refusal}"),
        _ if !status.connected => "runs, but is not registered with the coordinator".to_owned(),
        (None, Some(reason)) => format!("runs, registered, accepts no jobs: {reason}"),
        (None, None) => "runs, registered, accepts jobs".to_owned(),
    };
    finding("agent", Some(status.connected && status.refusal.is_none()), detail)
}

fn sandbox(report: &SandboxReport, allow_weak: bool) -> Finding {
    let good = report.level == SandboxLevel::Full || allow_weak;
    let mut detail = format!("{:?}", report.level).to_lowercase();
    for (name, parts) in [("", &report.layers), ("missing ", &report.missing)] {
        if !parts.is_empty() {
            detail = format!("{detail}; {name}{}", parts.join(", "));
        }
    }
    if let Some(cure) = report.missing.iter().find_map(|missing| cure(missing)) {
        detail = format!("{detail}; {cure}");
    }
    if report.layers.is_empty() && report.missing.is_empty() {
        detail = format!("{detail}; no worker program reported one");
    }
    finding("worker sandbox", Some(good), detail)
}

/// What supplies a missing layer.
fn cure(missing: &str) -> Option<&'static str> {
    let layer = missing.split(':').next().unwrap_or_default();
    Some(match layer {
        "landlock" => {
            "Landlock needs Linux 5.19 or newer, and `landlock` among the kernel's modules in /sys/kernel/security/lsm"
        }
        "seccomp" => "seccomp needs a kernel with CONFIG_SECCOMP_FILTER",
        _ => return None,
    })
}

/// Whether containers get GPUs, if the owner allows it.
fn container_gpus(config: &Config, runtimes: &Runtimes) -> Option<Finding> {
    const WHAT: &str = "container GPUs";
    if !config.containers.gpus {
        return None;
    }
    Some(match runtimes.container_gpu_problem() {
        _ if config.policy.yield_gpu => finding(WHAT, None, "disabled: [policy] yield_gpu = true".into()),
        Some(problem) => finding(WHAT, Some(false), problem),
        None => finding(WHAT, Some(true), "GPUs of NVIDIA, through the container toolkit".into()),
    })
}

/// Where containers may connect, and whether they can.
fn container_egress(config: &Config) -> Finding {
    const WHAT: &str = "container egress";
    match egress::forwarder(&config.bin_dir()) {
        _ if config.containers.egress == Egress::None => {
            finding(WHAT, None, "disabled: [containers] egress = \"none\"".into())
        }
        Ok(forwarder) => {
            let allowed = serde_json::to_string(&config.containers.egress).unwrap_or_default();
            finding(WHAT, Some(true), format!("to {allowed}, through {}", forwarder.display()))
        }
        Err(reason) => finding(WHAT, Some(false), reason),
    }
}

fn disk(config: &Config) -> Finding {
    let dir = config.cache_dir();
    // Before the first start the folder does not exist; its nearest parent is on the same disk.
    let parent = dir.ancestors().find(|parent| parent.exists());
    match parent.and_then(inventory::disk_mb) {
        Some((free, total)) => {
            let detail =
                format!("{} GB of {} GB free for models in {}", free >> 10, total >> 10, dir.display());
            finding("disk", Some(free > 1024), detail)
        }
        None => finding("disk", Some(false), format!("the disk of {} cannot be measured", dir.display())),
    }
}

fn encryption(config: &Config) -> Finding {
    let detail = if config.allow_plaintext {
        "not required (allow_plaintext): keys, prompts and replies can be read between this machine and the coordinator"
    } else {
        "required for every connection to another machine"
    };
    finding("encryption", (!config.allow_plaintext).then_some(true), detail.to_owned())
}

async fn coordinator(config: &Config) -> Finding {
    let url = coordinator_url(config);
    let health = match config.client_of(&url) {
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
    use crate::{
        inventory::{engine_devices::UnusedGpu, gpu::Vendor},
        owner::policy::gpus::tests::card,
    };

    #[test]
    fn wrapped_lines_fit_the_terminal() {
        let findings = [
            finding("coordinator", Some(true), "https://island.example.org ok (0.1.0)".into()),
            finding("worker sandbox", Some(false), "one two three four five six seven ".repeat(9)),
        ];
        for width in [40, 80, 120] {
            let text = text(&findings, Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            let marked = text.lines().filter(|line| !line.starts_with(' ')).count();
            assert_eq!(marked, findings.len(), "continued lines are indented: {text}");
        }
        assert_eq!(text(&findings, None).lines().count(), 2, "programs read one line for each finding");
    }

    #[tokio::test]
    async fn without_an_agent_the_next_step_is_to_start_one() {
        let state = tempfile::tempdir().expect("temporary folder");
        let config = Config { state_dir: state.path().to_owned(), ..Config::default() };
        let findings = agent(&config).await;
        assert!(findings[0].detail.ends_with("or island-agent run"), "{findings:?}");
        assert_eq!(findings[0].good, Some(false));
    }

    #[test]
    fn a_sandbox_that_nothing_reported_has_a_reason() {
        let report = SandboxReport { level: SandboxLevel::None, layers: Vec::new(), missing: Vec::new() };
        assert_eq!(sandbox(&report, true).detail, "none; no worker program reported one");
        let missing = vec!["landlock: not in this kernel".to_owned()];
        let old = SandboxReport { level: SandboxLevel::Partial, layers: vec!["seccomp".into()], missing };
        let detail = sandbox(&old, false).detail;
        assert!(detail.starts_with("partial; seccomp; missing landlock: not in this kernel; Landlock needs"));
    }

    #[test]
    fn gpus_are_listed_with_their_rules_and_rules_without_a_gpu_are_a_problem() {
        let mut one = card(0, Vendor::Amd, 8000, Ok(100), None);
        one.seen.power_w = Err("the driver has no power1_input".into());
        let view = View {
            cards: vec![one],
            problems: vec!["GPU 1 (Other) has disappeared".into()],
            ..View::default()
        };
        let rule = |name: &str| GpuRule {
            gpu: name.parse().expect("a name"),
            never: false,
            max_vram_mb: Some(4000),
            max_temperature_c: None,
            max_power_w: None,
        };
        let lines: Vec<_> =
            graphics(&[rule("0"), rule("1")], &view).iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(lines.join("\n"));
        let engine = |name: &str, unused: &[u32]| {
            let unused = unused.iter().map(|gpu| UnusedGpu { gpu: *gpu, reason: "no Vulkan module".into() });
            EngineDevices { engine: name.into(), devices: Vec::new(), unused: unused.collect() }
        };
        let problems = |engines: &[EngineDevices], rules: &[GpuRule]| -> Vec<Option<bool>> {
            unused(rules, &view.cards, engines).iter().map(|finding| finding.good).collect()
        };
        let (without, with) = (engine("onnx", &[0]), engine("llmcpp", &[]));
        assert_eq!(problems(&[with, without.clone()], &[]), [None], "another engine uses it");
        assert_eq!(problems(std::slice::from_ref(&without), &[]), [Some(false)]);
        assert_eq!(problems(&[without], &[GpuRule { never: true, ..rule("0") }]), [None]);
        let problem = || "the NVIDIA driver does not answer".to_owned();
        let broken = View { problems: vec![problem()], none: Some(problem()), ..View::default() };
        let marks: Vec<_> = graphics(&[], &broken).iter().map(|finding| finding.good).collect();
        assert_eq!(marks, [Some(false)], "a driver that fails is a problem without another GPU, too");
        let without = View { none: Some("no NVIDIA driver is installed".into()), ..View::default() };
        assert_eq!(graphics(&[], &without)[0].good, None, "a machine without a GPU has no problem");
        let excluded = graphics(&[GpuRule { never: true, ..rule("0") }], &view);
        assert_eq!(excluded[0].good, None, "a GPU that is not offered does not have to work");
    }

    #[test]
    fn a_gpu_whose_limit_decides_is_shown_as_such() {
        let mut card = card(0, Vendor::Intel, 16_000, Err("it is hidden".into()), None);
        let rule = GpuRule {
            gpu: "0".parse().expect("a name"),
            never: false,
            max_vram_mb: Some(12_000),
            max_temperature_c: None,
            max_power_w: None,
        };
        card.by_limit = gpus::is_by_limit(std::slice::from_ref(&rule), &card);
        let finding = graphic(&[rule], &card);
        assert_eq!(finding.good, Some(true));
        assert!(
            finding.detail.contains("at most 12000 MB for jobs, whatever other programs use"),
            "{finding}"
        );
        assert!(finding.detail.contains("memory in use: it is hidden"), "{finding}");
    }
}
