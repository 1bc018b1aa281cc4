//! Which engines work on this machine: one program per engine in one folder, each probed at the start and when GPUs change.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    host::{Device, RuntimeReport, SandboxReport},
};
use island_runtimes_worker::launch::{ContainerRules, ProbeReport};
use parking_lot::RwLock;

use super::{
    devices,
    engine_devices::EngineDevices,
    gpu::{Card, Vendor, own::OwnProcesses},
};
use crate::derived;

/// Time a program has to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// Detail of the containers' probe: why they get no GPU.
const GPU_PROBLEM: &str = "gpu";
/// Name of the scripted engine.
const SIMULATED: &str = "simulated";

/// The engines' programs and their answers.
#[derive(Debug)]
pub struct Runtimes {
    bin_dir: PathBuf,
    simulated: bool,
    containers: ContainerRules,
    engines: RwLock<Engines>,
    own: OwnProcesses,
}

type Engines = BTreeMap<String, Result<Engine, String>>;

#[derive(Debug, Clone)]
struct Engine {
    binary: PathBuf,
    report: ProbeReport,
}

impl Runtimes {
    /// Probes the programs in `bin_dir`. `simulated` includes the scripted engine; `containers` contains the socket of Docker.
    pub async fn probe(bin_dir: &Path, simulated: bool, containers: &ContainerRules) -> Self {
        let own = OwnProcesses::default();
        let engines = RwLock::new(probe_all(bin_dir, simulated, containers, &own).await);
        Self { bin_dir: bin_dir.to_owned(), simulated, containers: containers.clone(), engines, own }
    }

    /// Probes them again: their devices change with the machine's GPUs and drivers.
    pub async fn probe_again(&self) {
        let engines = probe_all(&self.bin_dir, self.simulated, &self.containers, &self.own).await;
        *self.engines.write() = engines;
    }

    /// The processes of this Island: its probes, to which the pool adds its workers.
    pub fn own_processes(&self) -> OwnProcesses {
        self.own.clone()
    }

    /// Returns the program that runs a Cargo, or the reason why none can.
    pub fn binary(&self, cargo: &CargoSpec) -> Result<PathBuf, String> {
        let name = name_for(cargo);
        match self.engines.read().get(name) {
            Some(Ok(engine)) => Ok(engine.binary.clone()),
            Some(Err(reason)) => Err(reason.clone()),
            None if name == SIMULATED => {
                Err("the scripted engine is not offered (setting `simulated`)".to_owned())
            }
            None => Err(format!("this version knows no engine '{name}'")),
        }
    }

    /// Returns the program that runs containers, whether or not it worked when it was probed: what it left must be removed in any case.
    pub fn container_program(&self) -> Option<PathBuf> {
        Some(self.bin_dir.join(program_name(RuntimeType::Container.as_str()))).filter(|path| path.is_file())
    }

    /// Whether containers could be run when their program was probed last.
    pub fn offers_containers(&self) -> bool {
        self.engines.read().get(RuntimeType::Container.as_str()).is_some_and(Result::is_ok)
    }

    /// Returns the program that derives files for a Cargo, with its engine's version.
    pub fn deriver(&self, cargo: &CargoSpec) -> Result<derived::Engine, String> {
        let binary = self.binary(cargo)?;
        let version = match self.engines.read().get(cargo.runtime_type.as_str()) {
            Some(Ok(engine)) => engine.report.version.clone(),
            _ => String::new(),
        };
        Ok(derived::Engine { binary, version })
    }

    /// The GPUs of `cards` on which the engine of a Cargo runs models.
    pub fn gpus_for(&self, cargo: &CargoSpec, cards: &[Card]) -> BTreeSet<u32> {
        let name = name_for(cargo);
        let engines = self.engines.read();
        engines.get(name).map_or_else(BTreeSet::new, |engine| self.gpus_of(name, engine, cards))
    }

    /// The GPUs of an engine: its devices, and for containers those that NVIDIA's toolkit can give to them.
    fn gpus_of(&self, name: &str, engine: &Result<Engine, String>, cards: &[Card]) -> BTreeSet<u32> {
        let Ok(engine) = engine else { return BTreeSet::new() };
        if name != RuntimeType::Container.as_str() {
            return devices::cards_of(&engine.report.devices, cards);
        }
        let is_able = self.containers.gpus && !engine.report.details.contains_key(GPU_PROBLEM);
        let has_name = |card: &&Card| card.seen.vendor == Vendor::Nvidia && card.seen.handle.is_some();
        cards.iter().filter(|_| is_able).filter(has_name).map(|card| card.index).collect()
    }

    /// Why containers get no GPU, although the engine works and the owner allows it.
    pub fn container_gpu_problem(&self) -> Option<String> {
        let engines = self.engines.read();
        let engine = engines.get(RuntimeType::Container.as_str())?.as_ref().ok()?;
        engine.report.details.get(GPU_PROBLEM).cloned().filter(|_| self.containers.gpus)
    }

    /// The devices of all engines.
    pub fn devices(&self) -> Vec<Device> {
        let engines = self.engines.read();
        engines.values().flatten().flat_map(|engine| engine.report.devices.iter().cloned()).collect()
    }

    /// All engines; those that do not work have a reason. `cards` are the GPUs that were found.
    pub fn report(&self, cards: &[Card]) -> Vec<RuntimeReport> {
        let report = |(name, engine): (&String, &Result<Engine, String>)| RuntimeReport {
            kind: if name == SIMULATED { RuntimeType::Llmcpp } else { name.clone().into() },
            available: engine.is_ok(),
            reason: engine.as_ref().err().cloned(),
            version: engine.as_ref().ok().map(|engine| engine.report.version.clone()),
            simulated: name == SIMULATED,
            backend: engine.as_ref().ok().and_then(|engine| engine.report.backend.clone()),
            devices: Some(
                engine.as_ref().map_or_else(|_| Vec::new(), |engine| engine.report.devices.clone()),
            ),
            gpus: Some(self.gpus_of(name, engine, cards).into_iter().collect()),
        };
        self.engines.read().iter().map(report).collect()
    }

    /// The devices of each engine that can use a GPU and works here.
    pub fn engine_devices(&self, cards: &[Card]) -> Vec<EngineDevices> {
        let engines = self.engines.read();
        let uses_gpus = |name: &str| {
            match RuntimeType::from(name.to_owned()) {
                RuntimeType::Llmcpp | RuntimeType::Onnx | RuntimeType::Diffusers => true,
                // Elsewhere its models run on the processor.
                RuntimeType::Coreml => cfg!(target_os = "macos"),
                _ => false,
            }
        };
        let described = |(name, engine): (&String, &Result<Engine, String>)| {
            let engine = engine.as_ref().ok().filter(|_| uses_gpus(name))?;
            Some(EngineDevices::of(name, &engine.report, cards))
        };
        engines.iter().filter_map(described).collect()
    }

    /// The lowest sandbox level that any engine reported.
    pub fn sandbox(&self) -> SandboxReport {
        let engines = self.engines.read();
        let reports = engines.values().flatten().map(|engine| &engine.report.sandbox);
        reports.min_by_key(|report| report.level).cloned().unwrap_or_default()
    }
}

async fn probe_all(
    bin_dir: &Path,
    simulated: bool,
    containers: &ContainerRules,
    own: &OwnProcesses,
) -> Engines {
    let real = RuntimeType::ALL.into_iter().map(|kind| kind.as_str().to_owned());
    let names = real.chain(simulated.then(|| SIMULATED.to_owned()));
    let probes = names.map(|name| async {
        let engine = probe(bin_dir, &name, containers, own).await;
        (name, engine)
    });
    futures::future::join_all(probes).await.into_iter().collect()
}

fn program_name(engine: &str) -> String {
    format!("island-worker-{engine}")
}

fn name_for(cargo: &CargoSpec) -> &str {
    if cargo.is_simulated() { SIMULATED } else { cargo.runtime_type.as_str() }
}

async fn probe(
    bin_dir: &Path,
    name: &str,
    containers: &ContainerRules,
    own: &OwnProcesses,
) -> Result<Engine, String> {
    let program = program_name(name);
    let binary = bin_dir.join(&program);
    if !binary.is_file() {
        return Err(format!("{program} is not in {}", bin_dir.display()));
    }
    let mut command = tokio::process::Command::new(&binary);
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
    let child = command.spawn().map_err(|error| format!("{program} cannot be started: {error}"))?;
    // It may use a GPU meanwhile.
    let pid = child.id().unwrap_or_default();
    own.add(pid);
    let output = tokio::time::timeout(PROBE_TIMEOUT, child.wait_with_output()).await;
    own.remove(pid);
    let output = output
        .map_err(|_| format!("{program} did not answer the probe in time"))?
        .map_err(|error| format!("{program} cannot be read: {error}"))?;
    let report: ProbeReport = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("{program} ended with {} instead of answering the probe", output.status))?;
    match report.unavailable {
        Some(reason) => Err(reason),
        None => Ok(Engine { binary, report }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use island_protocol::host::PORTABLE;
    use std::os::unix::fs::PermissionsExt;

    fn program(folder: &Path, name: &str, script: &str) {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    }

    #[tokio::test]
    async fn each_engine_is_available_or_has_a_reason() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let full = r#"{"kind":"llmcpp","version":"b1","devices":[],"sandbox":{"level":"full"}}"#;
        program(folder.path(), "island-worker-llmcpp", &format!("echo '{full}'"));
        let portable =
            r#"{"kind":"coreml","version":"1","devices":[],"backend":"portable","sandbox":{"level":"full"}}"#;
        program(folder.path(), "island-worker-coreml", &format!("echo '{portable}'"));
        program(folder.path(), "island-worker-onnx", "exit 3");
        let runtimes = Runtimes::probe(folder.path(), false, &ContainerRules::default()).await;
        let reports = runtimes.report(&[]);
        assert_eq!(reports.len(), 6);
        for report in &reports {
            let is_coreml = report.kind == RuntimeType::Coreml;
            assert_eq!(report.available, is_coreml || report.kind == RuntimeType::Llmcpp, "{report:?}");
            assert_eq!(report.backend.as_deref(), is_coreml.then_some(PORTABLE));
            assert_eq!(report.available, report.reason.is_none());
        }
        let mut cargo = testing::assignment(1, 1).cargo;
        assert!(runtimes.binary(&cargo).is_err(), "the scripted engine is not offered");
        cargo.engine = serde_json::Value::Null;
        assert!(runtimes.binary(&cargo).is_ok());
    }
}
