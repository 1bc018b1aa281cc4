//! What a worker is told before it locks itself in.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType, SandboxTier},
    egress::Egress,
    host::SandboxReport,
    ids::{AttemptKey, InstanceId},
};
use serde::{Deserialize, Serialize};

/// Name of the launch file in a worker's directory.
pub const LAUNCH_FILE: &str = "launch.json";
/// Name of the socket in a worker's directory. Short, because a socket's path may have only 107 bytes.
pub const SOCKET_FILE: &str = "s";
/// Name of the log in a worker's directory.
pub const STDERR_FILE: &str = "stderr.log";
/// Exit code of a worker whose memory watchdog ended it.
pub const EXIT_OUT_OF_MEMORY: i32 = 86;
/// Exit code of a worker that could not load its model; a `LoadFailed` frame said why.
pub const EXIT_LOAD_FAILED: i32 = 80;
/// Exit code of a worker that refused to start, because of its launch file or for want of walls; its log says why.
pub const EXIT_REFUSED: i32 = 78;
/// Name of the folder for scratch files in a worker's directory.
pub const SCRATCH_DIR: &str = "scratch";
/// Name of the file, in the scratch folder, that a derivation makes.
pub const DERIVED_FILE: &str = "derived";
/// Name of the file, in the scratch folder, in which a failed derivation says why.
pub const FAILURE_FILE: &str = "failure.json";

/// `launch.json`: written by the agent, read by the worker before lock-down. Holds nothing from strangers but names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// This worker.
    pub instance: InstanceId,
    /// The Cargo whose model it loads; where the worker is shared, the first one that wanted it.
    pub cargo: CargoSpec,
    /// Verified files by artifact name: the only files it may read. Empty where the worker is shared.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// Folders in which the files of requests lie, where the worker is shared.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// Folder for the debug logs of runs; absent, they are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_dir: Option<PathBuf>,
    /// Most memory it may use, megabytes; past it the watchdog ends the worker.
    pub memory_limit_mb: u64,
    /// Processor threads for the engine.
    pub threads: u32,
    /// Jobs at once.
    pub slots: u32,
    /// GPU memory it may use, megabytes; 0 keeps it on the processor.
    #[serde(default)]
    pub vram_limit_mb: u64,
    /// The GPU that it is kept to, by its number on the Island; absent, it may use any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Variables that its process gets besides: they keep engines to that GPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Whether to go on where this kernel cannot build every wall.
    #[serde(default)]
    pub allow_weak_sandbox: bool,
    /// Seconds without a connection after which it exits.
    pub orphan_timeout_s: u64,
    /// Seconds of processor time it may use; 0 is no limit. For derivations, which have no stall detection.
    #[serde(default)]
    pub cpu_limit_s: u64,
    /// What the owner allows containers.
    #[serde(default)]
    pub containers: ContainerRules,
    /// Folder of the folders through which containers reach the outside; absent, none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_dir: Option<PathBuf>,
}

impl Launch {
    /// A launch with room for nothing yet: the rest is up to whoever starts the worker.
    pub fn new(instance: InstanceId, cargo: CargoSpec) -> Self {
        Self {
            instance,
            cargo,
            artifacts: BTreeMap::new(),
            folders: Vec::new(),
            log_dir: None,
            memory_limit_mb: 0,
            threads: 1,
            slots: 1,
            vram_limit_mb: 0,
            gpu: None,
            environment: BTreeMap::new(),
            allow_weak_sandbox: false,
            orphan_timeout_s: 60,
            cpu_limit_s: 0,
            containers: ContainerRules::default(),
            egress_dir: None,
        }
    }
}

/// The folder through which the container of one attempt reaches the outside: made by the agent, shown to the container by the
/// worker. Its name is short, because a socket's path may have only 107 bytes.
pub fn egress_folder(dir: &Path, key: AttemptKey) -> PathBuf {
    let job = key.job_id.0.simple().to_string();
    dir.join(format!("{}-{}-{}", &job[job.len() - 16..], key.attempt, key.epoch))
}

/// The debug log of one attempt.
pub fn log_file(dir: &Path, key: AttemptKey) -> PathBuf {
    dir.join(format!("{}-{}-{}.log", key.job_id, key.attempt, key.epoch))
}

/// What the owner allows containers. No Cargo's tier goes beyond it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerRules {
    /// Socket of Docker or Podman; absent, the usual ones are tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Highest tier that runs here.
    pub max_tier: SandboxTier,
    /// Where containers of the elevated tier may connect to, of what their Cargos declare.
    pub egress: Egress,
    /// Whether containers get GPUs.
    pub gpus: bool,
    /// Prefixes of image names that may be pulled, by digest only.
    pub registries: Vec<String>,
    /// Containers created ahead for each Cargo in use.
    pub ahead: u32,
}

impl Default for ContainerRules {
    fn default() -> Self {
        Self {
            socket: None,
            max_tier: SandboxTier::Standard,
            egress: Egress::None,
            gpus: false,
            registries: Vec::new(),
            ahead: 1,
        }
    }
}

/// What a worker binary says to `--probe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Which engine it is.
    pub kind: RuntimeType,
    /// Version of the engine underneath.
    pub version: String,
    /// Devices it can use.
    pub devices: Vec<String>,
    /// What runs its models, where the engine has a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Anything else worth showing to the owner.
    #[serde(default)]
    pub details: BTreeMap<String, String>,
    /// Why it cannot be used here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Walls this kernel gives a worker.
    pub sandbox: SandboxReport,
}
