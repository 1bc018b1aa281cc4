//! The loader for the worker binary: the only worker that may open a container daemon's socket.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Probe, Unavailable};
use island_runtimes_worker::{
    inside::{EngineLoader, LoadProgress, Loaded},
    launch::Launch,
    lockdown::Profile,
};

use crate::{
    daemon::{self, Daemon},
    labels::{Maker, short_hash},
    process,
    runtime::{Containers, Settings, probed},
    toolkit,
};

/// The socket that a probe uses, as set for other clients of Docker.
const SOCKET_VARIABLE: &str = "DOCKER_HOST";
/// The GPUs that containers may use, by NVIDIA's names, in the environment of the launch file.
const GPUS_VARIABLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// Containers in a worker.
#[derive(Debug, Default)]
pub struct ContainerEngine {
    socket: PathBuf,
    island: String,
    process: String,
    alive: HashSet<String>,
}

impl EngineLoader for ContainerEngine {
    type Runtime = Containers;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Container
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        let named = std::env::var(SOCKET_VARIABLE).ok();
        let named = named.as_deref().and_then(|address| address.strip_prefix("unix://")).map(Path::new);
        let socket = daemon::socket(named)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Unavailable { reason: format!("start the async runtime: {error}") })?;
        runtime.block_on(async { Ok(probed(&Daemon::connect(&socket).await?, toolkit::problem())) })
    }

    fn prepare(&mut self, launch: &Launch) -> Result<(), Failure> {
        let unusable = |reason: String| Failure::of_host(FailureCode::RuntimeCrashed, reason);
        let socket = launch.containers.socket.as_deref();
        self.socket = daemon::socket(socket).map_err(|missing| unusable(missing.reason))?;
        self.island = island().map_err(|error| unusable(format!("look at the worker's folder: {error}")))?;
        self.process = process::own();
        self.alive = process::alive();
        Ok(())
    }

    fn profile(&self, _launch: &Launch) -> Profile {
        Profile { read: vec![self.socket.clone()], local_sockets: true, ..Profile::default() }
    }

    async fn load(self, launch: Launch, _progress: LoadProgress) -> Result<Loaded<Containers>, Failure> {
        let daemon = Daemon::connect(&self.socket).await;
        let daemon =
            daemon.map_err(|missing| Failure::of_host(FailureCode::RuntimeCrashed, missing.reason))?;
        let slots = launch.slots.max(1);
        let maker = Maker { island: self.island, worker: launch.instance, process: self.process };
        let settings = Settings {
            rules: launch.containers,
            maker,
            alive: self.alive,
            slots,
            egress_dir: launch.egress_dir,
            gpus: gpus(&launch.environment),
        };
        let runtime = Containers::start(daemon, settings).await;
        Ok(Loaded { version: runtime.version(), runtime, slots, vram_mb: 0 })
    }
}

/// The GPUs that the agent lets containers use.
fn gpus(environment: &BTreeMap<String, String>) -> Vec<String> {
    let names = environment.get(GPUS_VARIABLE).map(String::as_str).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Identifies the Island by the folder that contains its workers' folders: by path, device and inode, because several Islands in
/// containers may share one daemon and use the same paths.
fn island() -> std::io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let own = std::env::current_dir()?;
    let workers = own.parent().unwrap_or(&own);
    let about = std::fs::metadata(workers)?;
    let numbers = [about.dev().to_be_bytes(), about.ino().to_be_bytes()].concat();
    Ok(short_hash(&[workers.as_os_str().as_encoded_bytes(), &numbers]))
}
