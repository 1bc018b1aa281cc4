//! Probes of the engines' programs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use island_protocol::{cargo::RuntimeType, host::Device};
use island_runtimes_worker::launch::{ContainerRules, ProbeReport};

use super::{GPU_PROBLEM, SIMULATED, uses_gpus};
use crate::inventory::gpu::own::OwnProcesses;

/// Time a program has to answer a probe: drivers that nothing keeps loaded start each of several GPUs for seconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same without drivers. Both together end before systemd gives up on the start of the agent.
const DRIVERLESS_TIMEOUT: Duration = Duration::from_secs(15);

/// Variables with which a program finds no driver of a GPU: Vulkan's loader is given a list of files that do not exist.
const WITHOUT_DRIVERS: [(&str, &str); 4] = [
    ("VK_DRIVER_FILES", "/nonexistent"),
    ("VK_ICD_FILENAMES", "/nonexistent"),
    ("VK_LOADER_LAYERS_DISABLE", "~implicit~"),
    ("CUDA_VISIBLE_DEVICES", ""),
];
/// A variable that selects GPUs which then are not there.
const SELECTION: &str = "GGML_VK_VISIBLE_DEVICES";

/// The engines by name; those that do not work have a reason.
pub(super) type Engines = BTreeMap<String, Result<Engine, String>>;

/// An engine that works.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) binary: PathBuf,
    pub(super) report: ProbeReport,
}

impl Engine {
    /// Number of GPUs that it lists.
    pub(super) fn gpus(&self) -> usize {
        self.report.devices.iter().filter(|device| !device.is_cpu()).count()
    }
}

/// All engines.
#[derive(Debug, Default)]
pub(super) struct Probed {
    pub(super) engines: Engines,
    /// Whether a program broke down or did not answer in time.
    pub(super) broke: bool,
}

/// Why a program answers no probe.
#[derive(Debug)]
enum NoAnswer {
    /// It is not there, or it reports that it cannot be used.
    Unavailable(String),
    /// It broke down, or took too long.
    Broke(String),
}

/// Probes the programs in `bin_dir`; with the scripted engine, if `simulated`.
pub(super) async fn probe_all(
    bin_dir: &Path,
    simulated: bool,
    containers: &ContainerRules,
    own: &OwnProcesses,
) -> Probed {
    let real = RuntimeType::ALL.into_iter().map(|kind| kind.as_str().to_owned());
    let names = real.chain(simulated.then(|| SIMULATED.to_owned()));
    let probes = names.map(|name| async {
        let (engine, broke) = probe(bin_dir, &name, containers, own).await;
        (name, engine, broke)
    });
    let mut all = Probed::default();
    for (name, engine, broke) in futures::future::join_all(probes).await {
        all.broke |= broke;
        all.engines.insert(name, engine);
    }
    all
}

/// File name of an engine's program.
pub(super) fn program_name(engine: &str) -> String {
    format!("island-worker-{engine}")
}

/// Probes an engine, and returns whether its program broke down. A driver that breaks it down costs the GPUs, not the engine.
async fn probe(
    bin_dir: &Path,
    name: &str,
    containers: &ContainerRules,
    own: &OwnProcesses,
) -> (Result<Engine, String>, bool) {
    let problem = match ask(command(bin_dir, name, containers), bin_dir, name, own, PROBE_TIMEOUT).await {
        Ok(engine) => return (Ok(engine), false),
        Err(NoAnswer::Unavailable(reason)) => return (Err(reason), false),
        Err(NoAnswer::Broke(problem)) => problem,
    };
    if !uses_gpus(name) {
        return (Err(problem), true);
    }
    let mut driverless = command(bin_dir, name, containers);
    driverless.envs(WITHOUT_DRIVERS).env_remove(SELECTION);
    match ask(driverless, bin_dir, name, own, DRIVERLESS_TIMEOUT).await {
        Ok(mut engine) => {
            engine.report.devices.retain(Device::is_cpu);
            let reason =
                format!("{problem}; it answers without the drivers of GPUs, so one of them is at fault");
            engine.report.details = BTreeMap::from([(GPU_PROBLEM.to_owned(), reason)]);
            (Ok(engine), true)
        }
        Err(_) => (Err(problem), true),
    }
}

fn command(bin_dir: &Path, name: &str, containers: &ContainerRules) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(bin_dir.join(program_name(name)));
    command
        .arg("--probe")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    // The probe must use the daemon that jobs will use, which may differ from that of the agent's environment.
    match &containers.socket {
        Some(socket) => command.env("DOCKER_HOST", format!("unix://{}", socket.display())),
        None => command.env_remove("DOCKER_HOST"),
    };
    command
}

/// Runs a probe.
async fn ask(
    mut command: tokio::process::Command,
    bin_dir: &Path,
    name: &str,
    own: &OwnProcesses,
    limit: Duration,
) -> Result<Engine, NoAnswer> {
    let program = program_name(name);
    let binary = bin_dir.join(&program);
    if !binary.is_file() {
        return Err(NoAnswer::Unavailable(format!("{program} is not in {}", bin_dir.display())));
    }
    let unstartable =
        |error: std::io::Error| NoAnswer::Unavailable(format!("{program} cannot be started: {error}"));
    let child = command.spawn().map_err(unstartable)?;
    // It may use a GPU meanwhile.
    let pid = child.id().unwrap_or_default();
    own.add(pid);
    let output = tokio::time::timeout(limit, child.wait_with_output()).await;
    own.remove(pid);
    let output = output
        .map_err(|_| NoAnswer::Broke(format!("{program} did not answer the probe in time")))?
        .map_err(|error| NoAnswer::Broke(format!("{program} cannot be read: {error}")))?;
    let report: ProbeReport = serde_json::from_slice(&output.stdout).map_err(|_| {
        NoAnswer::Broke(format!("{program} ended with {} instead of answering the probe", output.status))
    })?;
    match report.unavailable {
        Some(reason) => Err(NoAnswer::Unavailable(reason)),
        None => Ok(Engine { binary, report }),
    }
}
