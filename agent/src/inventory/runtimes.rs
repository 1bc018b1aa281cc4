//! Which engines work on this machine: one program per engine in one folder, each probed at the start, when GPUs change, and when a worker on
//! a GPU fails.

mod probe;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    host::{Device, RuntimeReport, SandboxReport},
};
use island_runtimes_worker::launch::ContainerRules;
use parking_lot::{Mutex, RwLock};

use self::probe::{Engine, Engines, Probed, probe_all, program_name};
use super::{
    devices,
    engine_devices::EngineDevices,
    gpu::{Card, Vendor, own::OwnProcesses},
    probe_requests::ProbeRequests,
};
use crate::{
    disk::derived,
    inventory::withholding::{Place, Withholding},
};

/// Detail of a probe: why the engine gets no GPU.
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
    /// The largest number of GPUs that each engine listed since the machine has the same GPUs.
    most_gpus: Mutex<BTreeMap<String, usize>>,
    requests: Arc<ProbeRequests>,
    withholding: Arc<Withholding>,
    own: OwnProcesses,
}

impl Runtimes {
    /// Probes the programs in `bin_dir`. `simulated` includes the scripted engine; `containers` contains the socket of Docker.
    pub async fn probe(bin_dir: &Path, simulated: bool, containers: &ContainerRules) -> Self {
        let runtimes = Self {
            bin_dir: bin_dir.to_owned(),
            simulated,
            containers: containers.clone(),
            engines: RwLock::default(),
            most_gpus: Mutex::default(),
            requests: Arc::default(),
            withholding: Arc::default(),
            own: OwnProcesses::default(),
        };
        runtimes.probe_again(true).await;
        runtimes
    }

    /// Probes them again: their devices change with the machine's GPUs and drivers. `gpus_changed` is whether the machine has other GPUs than
    /// before. Requests another probe if a program broke down, or if an engine has lost a GPU that the machine still has.
    pub async fn probe_again(&self, gpus_changed: bool) {
        let Probed { engines, broke } =
            probe_all(&self.bin_dir, self.simulated, &self.containers, &self.own).await;
        let has_lost = self.have_lost_gpus(&engines, gpus_changed);
        *self.engines.write() = engines;
        if broke || has_lost {
            self.requests.request();
        }
    }

    /// Requests to probe them again.
    pub fn probe_requests(&self) -> Arc<ProbeRequests> {
        Arc::clone(&self.requests)
    }

    /// Engines, devices and Cargos that are not offered for some time after failures of this Island.
    pub fn withholding(&self) -> &Arc<Withholding> {
        &self.withholding
    }

    /// The places of a worker of this Cargo that was granted these GPUs.
    pub fn places(cargo: &CargoSpec, gpus: impl Iterator<Item = u32>) -> Vec<Place> {
        let place = |gpu| Place { engine: name_for(cargo).to_owned(), gpu };
        let on_gpus: Vec<Place> = gpus.map(|gpu| place(Some(gpu))).collect();
        if on_gpus.is_empty() { vec![place(None)] } else { on_gpus }
    }

    /// Why an engine is not used on a device.
    fn withheld(&self, engine: &str, gpu: Option<u32>, cargo: Option<&CargoSpec>) -> Option<String> {
        self.withholding.reason(&Place { engine: engine.to_owned(), gpu }, cargo.map(|cargo| &cargo.slug))
    }

    /// Why a Cargo is run on none of these GPUs nor on the processor for some time, after failures of this Island.
    pub fn withheld_for(&self, cargo: &CargoSpec, cards: &[Card]) -> Option<String> {
        let runs_on_gpus = || cargo.required_vram_mb > 0 && !self.gpus_for(cargo, cards).is_empty();
        self.withheld(name_for(cargo), None, Some(cargo)).filter(|_| !runs_on_gpus())
    }

    /// Notes how many GPUs each engine lists; returns whether one lists fewer than before, though the machine has the same ones.
    fn have_lost_gpus(&self, engines: &Engines, gpus_changed: bool) -> bool {
        let mut most = self.most_gpus.lock();
        if gpus_changed {
            most.clear();
        }
        let mut has_lost = false;
        for (name, engine) in engines {
            let now = engine.as_ref().map_or(0, Engine::gpus);
            let known = most.entry(name.clone()).or_default();
            has_lost |= now < *known;
            *known = now.max(*known);
        }
        has_lost
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
        let mut gpus =
            engines.get(name).map_or_else(BTreeSet::new, |engine| self.gpus_of(name, engine, cards));
        gpus.retain(|gpu| self.withheld(name, Some(*gpu), Some(cargo)).is_none());
        gpus
    }

    /// The GPUs of an engine: its devices, and for containers those that NVIDIA's toolkit can give to them.
    fn gpus_of(&self, name: &str, engine: &Result<Engine, String>, cards: &[Card]) -> BTreeSet<u32> {
        let Ok(engine) = engine else { return BTreeSet::new() };
        let is_offered = |gpu: &u32| self.withheld(name, Some(*gpu), None).is_none();
        if name != RuntimeType::Container.as_str() {
            return devices::cards_of(&engine.report.devices, cards).into_iter().filter(is_offered).collect();
        }
        let is_able = self.containers.gpus && !engine.report.details.contains_key(GPU_PROBLEM);
        let has_name = |card: &&Card| card.seen.vendor == Vendor::Nvidia && card.seen.handle.is_some();
        cards.iter().filter(|_| is_able).filter(has_name).map(|card| card.index).filter(is_offered).collect()
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
        let withheld = |name: &String, engine: &Result<Engine, String>| {
            self.withheld(name, None, None).filter(|_| self.gpus_of(name, engine, cards).is_empty())
        };
        let report = |(name, engine): (&String, &Result<Engine, String>)| RuntimeReport {
            kind: if name == SIMULATED { RuntimeType::Llmcpp } else { name.clone().into() },
            available: engine.is_ok() && withheld(name, engine).is_none(),
            reason: engine.as_ref().err().cloned().or_else(|| withheld(name, engine)),
            version: engine.as_ref().ok().map(|engine| engine.report.version.clone()),
            simulated: name == SIMULATED,
            backend: engine.as_ref().ok().and_then(|engine| engine.report.backend.clone()),
            devices: Some(engine.as_ref().map_or_else(
                |_| Vec::new(),
                |engine| devices::used(&engine.report.devices, cards).cloned().collect(),
            )),
            gpus: Some(self.gpus_of(name, engine, cards).into_iter().collect()),
            features: engine.as_ref().map_or_else(|_| Vec::new(), |engine| engine.report.features.clone()),
        };
        self.engines.read().iter().map(report).collect()
    }

    /// The devices of each engine that can use a GPU and works here.
    pub fn engine_devices(&self, cards: &[Card]) -> Vec<EngineDevices> {
        let engines = self.engines.read();
        let described = |(name, engine): (&String, &Result<Engine, String>)| {
            let engine = engine.as_ref().ok().filter(|_| uses_gpus(name))?;
            let withheld = |gpu| self.withheld(name, Some(gpu), None);
            Some(EngineDevices::of(name, &engine.report, cards).without(withheld))
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

/// Whether an engine runs models on GPUs where there are some.
fn uses_gpus(name: &str) -> bool {
    match RuntimeType::from(name.to_owned()) {
        RuntimeType::Llmcpp | RuntimeType::Onnx | RuntimeType::Diffusers => true,
        // Elsewhere its models run on the processor.
        RuntimeType::Coreml => cfg!(target_os = "macos"),
        _ => false,
    }
}

fn name_for(cargo: &CargoSpec) -> &str {
    if cargo.is_simulated() { SIMULATED } else { cargo.runtime_type.as_str() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{owner::policy::gpus::tests::card, testing};
    use island_protocol::host::{CONTINUES_FORMS, PORTABLE};
    use std::os::unix::fs::PermissionsExt;

    fn program(folder: &Path, name: &str, script: &str) {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    }

    fn gpu(number: u32) -> Card {
        card(number, Vendor::Nvidia, 8000, Ok(0), None)
    }

    /// The GPUs on which llama.cpp runs models, whether it works, and whether another probe was requested.
    fn state(runtimes: &Runtimes) -> (Vec<u32>, bool, bool) {
        let report = runtimes.report(&[gpu(0)]).into_iter().find(|report| report.kind == RuntimeType::Llmcpp);
        let report = report.expect("a report");
        let requests = runtimes.probe_requests();
        // A request is there at once or not at all.
        let requested = futures::FutureExt::now_or_never(requests.requested()).is_some();
        (report.gpus.unwrap_or_default(), report.available, requested)
    }

    /// A probe's answer that names the processor and GPU 0.
    const BOTH: &str = r#"{"kind":"llmcpp","version":"1","sandbox":{"level":"full"},"devices":[
        {"api":"vulkan","name":"A","address":"0000:00:00.0"},{"api":"cpu","name":"CPU"}]}"#;

    #[tokio::test]
    async fn a_driver_that_ends_the_probe_costs_the_gpu_and_not_the_engine() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let ends = r#"[ "$VK_DRIVER_FILES" = /nonexistent ] || kill -KILL $$"#;
        program(folder.path(), "island-worker-llmcpp", &format!("{ends}\ncat <<'END'\n{BOTH}\nEND"));
        let runtimes = Runtimes::probe(folder.path(), false, &ContainerRules::default()).await;
        assert_eq!(state(&runtimes), (vec![], true, true), "and it is tried again");
        let engines = runtimes.engine_devices(&[gpu(0)]);
        let notes: Vec<_> = engines.iter().flat_map(EngineDevices::notes).map(|(_, note)| note).collect();
        assert!(notes.iter().any(|note| note.contains("signal: 9")), "{notes:?}");
    }

    #[tokio::test]
    async fn a_lost_gpu_is_looked_for_until_the_machine_has_others() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let alone = r#"{"kind":"llmcpp","version":"1","sandbox":{"level":"full"},"devices":[]}"#;
        let answer = |text: &str| {
            program(folder.path(), "island-worker-llmcpp", &format!("cat <<'END'\n{text}\nEND"));
        };
        answer(BOTH);
        let runtimes = Runtimes::probe(folder.path(), false, &ContainerRules::default()).await;
        assert_eq!(state(&runtimes), (vec![0], true, false));
        answer(alone);
        runtimes.probe_again(false).await;
        assert_eq!(state(&runtimes), (vec![], true, true));
        runtimes.probe_again(false).await;
        assert_eq!(state(&runtimes), (vec![], true, true), "it is still missing");
        answer(BOTH);
        runtimes.probe_again(false).await;
        assert_eq!(state(&runtimes), (vec![0], true, false));
        answer(alone);
        runtimes.probe_again(true).await;
        assert_eq!(state(&runtimes), (vec![], true, false), "the machine has other GPUs");
    }

    #[tokio::test]
    async fn containers_get_no_gpu_while_their_probe_names_a_problem() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let rules = ContainerRules { gpus: true, ..ContainerRules::default() };
        let mut cargo = testing::assignment(1, 1).cargo;
        (cargo.runtime_type, cargo.engine) = (RuntimeType::Container, serde_json::Value::Null);
        let problem = r#""gpu":"the toolkit is too old""#;
        for (details, gpus, stated) in
            [("", vec![0_u32], None), (problem, vec![], Some("the toolkit is too old"))]
        {
            let report = format!(
                r#"{{"kind":"container","version":"1","devices":[],"details":{{{details}}},"sandbox":{{"level":"full"}}}}"#
            );
            program(folder.path(), "island-worker-container", &format!("echo '{report}'"));
            let runtimes = Runtimes::probe(folder.path(), false, &rules).await;
            assert!(runtimes.offers_containers());
            let offered = runtimes.gpus_for(&cargo, &[gpu(0)]);
            assert_eq!(offered.into_iter().collect::<Vec<_>>(), gpus, "{stated:?}");
            assert_eq!(runtimes.container_gpu_problem().as_deref(), stated);
        }
    }

    #[tokio::test]
    async fn each_engine_is_available_or_has_a_reason() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let full = r#"{"kind":"llmcpp","version":"b1","devices":[],"features":["continues_forms"],"sandbox":{"level":"full"}}"#;
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
            assert_eq!(
                report.has(CONTINUES_FORMS),
                report.kind == RuntimeType::Llmcpp,
                "as its engine reports"
            );
        }
        let mut cargo = testing::assignment(1, 1).cargo;
        assert!(runtimes.binary(&cargo).is_err(), "the scripted engine is not offered");
        cargo.engine = serde_json::Value::Null;
        assert!(runtimes.binary(&cargo).is_ok());
    }
}
