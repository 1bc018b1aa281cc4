//! What a worker is launched with, written before it applies its sandbox.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType, SandboxTier},
    egress::Egress,
    host::{Device, SandboxReport},
    ids::{AttemptKey, InstanceId},
};
use serde::{Deserialize, Serialize};

/// Name of the launch file in a worker's directory.
pub const LAUNCH_FILE: &str = "launch.json";
/// Name of the socket in a worker's directory. Short, because the path of a socket has at most 107 bytes.
pub const SOCKET_FILE: &str = "s";
/// Name of the log in a worker's directory.
pub const STDERR_FILE: &str = "stderr.log";
/// Exit code of a worker whose memory watchdog ended it.
pub const EXIT_OUT_OF_MEMORY: i32 = 86;
/// Exit code of a worker that could not load its model, after a `LoadFailed` frame.
pub const EXIT_LOAD_FAILED: i32 = 80;
/// Exit code of a worker that refused to start, because of its launch file or an incomplete sandbox; its log contains the reason.
pub const EXIT_REFUSED: i32 = 78;
/// Name of the folder for scratch files in a worker's directory.
pub const SCRATCH_DIR: &str = "scratch";
/// Name of the derived file in the scratch folder.
pub const DERIVED_FILE: &str = "derived";
/// Name of the file in the scratch folder that contains the failure of a derivation.
pub const FAILURE_FILE: &str = "failure.json";

/// Maximum number of containers that are started in advance.
pub const MAX_AHEAD: usize = 8;
/// Time after its last job for which a Cargo's containers are kept.
pub const KEEP_AHEAD: Duration = Duration::from_mins(3);
/// Maximum memory limit of such a container, megabytes. More is not reserved for jobs that may never arrive.
pub const MAX_AHEAD_MB: u64 = 1024;

/// `launch.json`: written by the agent, read by the worker before it applies its sandbox. Contains nothing untrusted but names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The worker.
    pub instance: InstanceId,
    /// The Cargo whose model it loads; for a shared worker, the first one that needed it.
    pub cargo: CargoSpec,
    /// Verified files by artifact name: the only files that it may read. Empty for a shared worker.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// Folders that contain the files of requests, for a shared worker.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// Folder for debug logs; absent, they are not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_dir: Option<PathBuf>,
    /// Memory limit, megabytes; beyond it the watchdog ends the worker.
    pub memory_limit_mb: u64,
    /// Processor threads for the engine.
    pub threads: u32,
    /// Jobs at once.
    pub slots: u32,
    /// The GPUs that it may use; empty restricts it to the processor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuGrant>,
    /// Additional environment variables: they restrict engines to that GPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Whether to run if this kernel does not support every part of the sandbox.
    #[serde(default)]
    pub allow_weak_sandbox: bool,
    /// Seconds without a connection after which it exits.
    pub orphan_timeout_s: u64,
    /// Limit of processor time, seconds; 0 means none. For derivations, which have no stall detection.
    #[serde(default)]
    pub cpu_limit_s: u64,
    /// The owner's rules for containers.
    #[serde(default)]
    pub containers: ContainerRules,
    /// Folder that contains the egress folders of containers; absent, there is no egress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_dir: Option<PathBuf>,
}

impl Launch {
    /// Creates a launch without limits; the caller sets the rest.
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
            gpus: Vec::new(),
            environment: BTreeMap::new(),
            allow_weak_sandbox: false,
            orphan_timeout_s: 60,
            cpu_limit_s: 0,
            containers: ContainerRules::default(),
            egress_dir: None,
        }
    }
}

impl Launch {
    /// GPU memory that it may use on all its GPUs together, megabytes; 0 restricts it to the processor.
    pub fn vram_limit_mb(&self) -> u64 {
        self.gpus.iter().map(|gpu| gpu.memory_mb).sum()
    }
}

/// A GPU that a worker may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuGrant {
    /// Its number on the Island.
    pub index: u32,
    /// Its PCI address, by which engines find it; absent for the only GPU of a machine that reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Memory that the worker may use, megabytes.
    pub memory_mb: u64,
}

/// Returns the folder through which the container of one attempt connects to addresses: created by the agent, mounted into the container by
/// the worker. Its name is short, because the path of a socket has at most 107 bytes.
pub fn egress_folder(dir: &Path, key: AttemptKey) -> PathBuf {
    let job = key.job_id.0.simple().to_string();
    dir.join(format!("{}-{}-{}", &job[job.len() - 16..], key.attempt, key.epoch))
}

/// Returns the path of the debug log of one attempt.
pub fn log_file(dir: &Path, key: AttemptKey) -> PathBuf {
    dir.join(format!("{}-{}-{}.log", key.job_id, key.attempt, key.epoch))
}

/// The owner's rules for containers. They override the tier of any Cargo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerRules {
    /// Socket of Docker or Podman; absent, the usual paths are tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Highest tier that runs here.
    pub max_tier: SandboxTier,
    /// Where containers of the elevated tier may connect, of what their Cargos declare.
    pub egress: Egress,
    /// Whether containers get GPUs.
    pub gpus: bool,
    /// Prefixes of image names that may be pulled, by digest only.
    pub registries: Vec<String>,
    /// Number of containers created in advance for each Cargo in use.
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

/// The answer of a worker binary to `--probe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The kind of its engine.
    pub kind: RuntimeType,
    /// Version of the underlying library.
    pub version: String,
    /// Devices on which it can run models.
    pub devices: Vec<Device>,
    /// The back end that runs its models, if the engine has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Further facts for the owner.
    #[serde(default)]
    pub details: BTreeMap<String, String>,
    /// What it can do that earlier versions could not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Why it cannot be used here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The sandbox that this kernel supports.
    pub sandbox: SandboxReport,
}
