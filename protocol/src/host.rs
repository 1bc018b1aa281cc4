//! What an Island has, and how loaded it is.

use serde::{Deserialize, Serialize};

use crate::{
    asking::Asking,
    cargo::{RuntimeType, SandboxTier},
    digest::Digest,
    egress::Egress,
    ids::{AttemptKey, Slug},
    time::Timestamp,
};

/// What an Island has. Sent at registration, and again when it changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Capabilities {
    /// Operating system and processor, such as `linux-x86_64`.
    pub platform: String,
    /// Marketing name of the processor.
    #[serde(default)]
    pub cpu_model: String,
    /// Logical processors that the Island may use: what its container or unit is held to counts.
    pub cpu_cores: u32,
    /// What the processor can do beyond the ordinary, as Linux names it, such as `avx2`, `amx_tile` or `sve2`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_features: Vec<String>,
    /// NUMA nodes. `None`: not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<u32>,
    /// Main memory, megabytes.
    pub ram_mb: u64,
    /// GPUs the owner offers.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Why there are no GPUs, when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_gpu_reason: Option<String>,
    /// Engines and whether they work here.
    #[serde(default)]
    pub runtimes: Vec<RuntimeReport>,
    /// Walls around strangers' jobs.
    #[serde(default)]
    pub sandbox: SandboxReport,
    /// Whether the hub can be reached for models that are not cached. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_reachable: Option<bool>,
    /// What its owner allows containers. `None`: not told, as by older Islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<ContainerOffer>,
    /// What its owner wants for jobs. `None`: takes any price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<Asking>,
    /// What the machine did when the agent tried it out. `None`: not tried yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What a machine did when its agent tried it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Measured {
    /// Main memory read by all processors together, megabytes a second.
    pub memory_mb_s: u64,
    /// Reading from the models' disk, megabytes a second. `None`: could not be tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb_s: Option<u64>,
    /// Fetching large models, megabytes a second. `None`: none was preloaded since the agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_mb_s: Option<u64>,
    /// When.
    pub at: Timestamp,
}

/// What an Island's owner allows containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ContainerOffer {
    /// Highest tier that runs there.
    pub max_tier: SandboxTier,
    /// Where their programs may connect to, of what their Cargos declare.
    #[serde(default)]
    pub egress: Egress,
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// Its number on this Island, which stays with it.
    pub index: u32,
    /// Marketing name.
    pub name: String,
    /// Memory that the owner offers, megabytes.
    pub vram_mb: u64,
    /// Which one it is: the UUID that its driver tells, or its PCI address. `None`: not told, as by older Islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its maker: `nvidia`, `amd` or `intel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// What is not measured of it, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Whether one engine works on this Island, or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RuntimeReport {
    /// Which engine.
    pub kind: RuntimeType,
    /// Whether jobs for it are taken.
    pub available: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Version of the engine underneath.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether this is the scripted stand-in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// What runs its models, where an engine has a choice: `native`, the system's own library, or `portable`, what runs anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
}

impl RuntimeReport {
    /// What runs models there, in a few words: the back end where there is a choice, and the version.
    pub fn engine(&self) -> Option<String> {
        let parts: Vec<&str> =
            [&self.backend, &self.version].into_iter().flatten().map(String::as_str).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// [`RuntimeReport::backend`] where the system's own library runs models.
pub const NATIVE: &str = "native";
/// [`RuntimeReport::backend`] where what runs anywhere runs them.
pub const PORTABLE: &str = "portable";

/// How strong the walls around a worker are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SandboxLevel {
    /// No walls.
    #[default]
    None,
    /// Some of them; `missing` says which not.
    Partial,
    /// File system, system calls, network and memory are all confined.
    Full,
}

/// Walls reached and walls missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SandboxReport {
    /// Overall level.
    pub level: SandboxLevel,
    /// Walls in force, such as `landlock-abi-7`, `seccomp`, `no-network`, `memory-watchdog`.
    #[serde(default)]
    pub walls: Vec<String>,
    /// Walls this kernel or build lacks, with the reason.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// Load of the whole machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemLoad {
    /// Busy share of all processors, 0 to 100.
    pub cpu_percent: f32,
    /// Memory in use, megabytes.
    pub memory_used_mb: u64,
    /// All memory, megabytes.
    pub memory_total_mb: u64,
    /// Disk in use where the cache lies, gigabytes.
    pub disk_used_gb: f64,
    /// Size of that disk, gigabytes.
    pub disk_total_gb: f64,
}

/// Load of one GPU. A field its driver does not report is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuLoad {
    /// Its number on this Island.
    pub index: u32,
    /// Busy share, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// Memory in use, megabytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_mb: Option<u64>,
    /// All memory, megabytes.
    pub memory_total_mb: u64,
    /// Degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_draw_w: Option<f32>,
}

/// A job on an Island, as its heartbeat lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningJob {
    /// Which attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// The Cargo.
    pub slug: Slug,
    /// Where it stands: `preparing`, `running`, `ended`.
    pub phase: String,
    /// Milliseconds since it was accepted.
    pub duration_ms: u64,
    /// Number of the last event emitted.
    pub last_event: u64,
}

/// A model on an Island.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostModel {
    /// Address it was fetched from: how catalogue entries are matched when no digest is known.
    pub url: String,
    /// Digest of the verified file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    /// Size on disk, megabytes.
    pub size_mb: u64,
    /// Loaded in a worker right now.
    pub warm: bool,
    /// Free places in that worker.
    #[serde(default)]
    pub free_slots: u32,
}

/// What may still be started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// More jobs this Island would take.
    pub job_slots: u32,
    /// Main memory jobs may still use, measured, megabytes; memory of evictable idle workers is included.
    pub ram_mb: u64,
    /// GPU memory jobs may still use, measured, megabytes.
    pub vram_mb: u64,
}
