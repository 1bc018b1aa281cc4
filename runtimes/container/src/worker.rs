//! The loader for the worker binary: the only worker that may open a container daemon's socket.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use island_protocol::{
    cargo::RuntimeType,
    ids::InstanceId,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Probe, Unavailable};
use island_runtimes_worker::{
    host::Orphans,
    inside::{EngineLoader, LoadProgress, Loaded},
    launch::Launch,
    lockdown::Profile,
};

use crate::{
    daemon::{self, Daemon},
    labels::{Maker, short_hash},
    orphans::{self, OrphanError},
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
}

impl EngineLoader for ContainerEngine {
    type Runtime = Containers;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Container
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        let (socket, runtime) = (probed_socket()?, runtime()?);
        runtime.block_on(async { Ok(probed(&Daemon::connect(&socket).await?, toolkit::problem())) })
    }

    fn prepare(&mut self, launch: &Launch) -> Result<(), Failure> {
        let unusable = |reason: String| Failure::of_host(FailureCode::RuntimeCrashed, reason);
        let socket = launch.containers.socket.as_deref();
        self.socket = daemon::socket(socket).map_err(|missing| unusable(missing.reason))?;
        let own = std::env::current_dir().and_then(|own| island(own.parent().unwrap_or(&own)));
        self.island = own.map_err(|error| unusable(format!("look at the worker's folder: {error}")))?;
        Ok(())
    }

    fn profile(&self, _launch: &Launch) -> Profile {
        Profile { read: vec![self.socket.clone()], local_sockets: true, ..Profile::default() }
    }

    fn reap(&mut self, workers: &Path, orphans: &Orphans) -> Result<(), Unavailable> {
        reaped(workers, async |daemon, island| orphans::remove(&daemon, &island, orphans).await)
    }

    fn reap_expired(&mut self, workers: &Path, worker: InstanceId) -> Result<(), Unavailable> {
        reaped(workers, async |daemon, island| orphans::remove_expired(&daemon, &island, worker).await)
    }

    async fn load(self, launch: Launch, _progress: LoadProgress) -> Result<Loaded<Containers>, Failure> {
        let daemon = Daemon::connect(&self.socket).await;
        let daemon =
            daemon.map_err(|missing| Failure::of_host(FailureCode::RuntimeCrashed, missing.reason))?;
        let slots = launch.slots.max(1);
        let maker = Maker { island: self.island, worker: launch.instance };
        let settings = Settings {
            rules: launch.containers,
            maker,
            slots,
            egress_dir: launch.egress_dir,
            gpus: gpus(&launch.environment),
        };
        let runtime = Containers::start(daemon, settings);
        Ok(Loaded { version: runtime.version(), runtime, slots, vram_mb: 0 })
    }
}

/// Removes containers of the Island whose workers have their folders in `workers`.
fn reaped(
    workers: &Path,
    remove: impl AsyncFnOnce(Daemon, String) -> Result<usize, OrphanError>,
) -> Result<(), Unavailable> {
    let failed = |what: &str, error: &dyn std::error::Error| Unavailable {
        reason: format!("{what}: {}", daemon::chain(error)),
    };
    let island = island(workers).map_err(|error| failed("look at the folder of the workers", &error))?;
    let (socket, runtime) = (probed_socket()?, runtime()?);
    runtime.block_on(async {
        let daemon = Daemon::connect(&socket).await?;
        let count = remove(daemon, island).await;
        let count = count.map_err(|error| failed("remove what workers left behind", &error))?;
        tracing::info!(count, "removed containers that workers left behind");
        Ok(())
    })
}

/// The GPUs that the agent lets containers use.
fn gpus(environment: &BTreeMap<String, String>) -> Vec<String> {
    let names = environment.get(GPUS_VARIABLE).map(String::as_str).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The socket in the environment, otherwise the usual one.
fn probed_socket() -> Result<PathBuf, Unavailable> {
    let named = std::env::var(SOCKET_VARIABLE).ok();
    daemon::socket(named.as_deref().and_then(|address| address.strip_prefix("unix://")).map(Path::new))
}

fn runtime() -> Result<tokio::runtime::Runtime, Unavailable> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Unavailable { reason: format!("start the async runtime: {error}") })
}

/// Identifies the Island by the folder that contains its workers' folders: by path, device and inode, because several Islands in
/// containers may share one daemon and use the same paths.
fn island(workers: &Path) -> std::io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let about = std::fs::metadata(workers)?;
    let numbers = [about.dev().to_be_bytes(), about.ino().to_be_bytes()].concat();
    Ok(short_hash(&[workers.as_os_str().as_encoded_bytes(), &numbers]))
}
