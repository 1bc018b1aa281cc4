//! The hardware, engines and load of an Island.

use serde::{Deserialize, Serialize};

use crate::{
    asking::Asking,
    cargo::{RuntimeType, SandboxTier},
    demand::{Parts, Vram},
    digest::Digest,
    egress::Egress,
    ids::{AttemptKey, Slug},
    time::Timestamp,
};

/// Hardware and engines of an Island. Sent at registration, and again after a change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Capabilities {
    /// Operating system and processor, such as `linux-x86_64`.
    pub platform: String,
    /// Marketing name of the processor.
    #[serde(default)]
    pub cpu_model: String,
    /// Logical processors that the Island may use, after the limits of its container or unit.
    pub cpu_cores: u32,
    /// Optional features of the processor, as Linux names them, such as `avx2`, `amx_tile` or `sve2`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_features: Vec<String>,
    /// NUMA nodes. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<u32>,
    /// Main memory, megabytes.
    pub ram_mb: u64,
    /// GPUs that the owner offers.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Why no GPU is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_gpu_reason: Option<String>,
    /// Engines, and whether each works here.
    #[serde(default)]
    pub runtimes: Vec<RuntimeReport>,
    /// Sandbox around jobs of other people.
    #[serde(default)]
    pub sandbox: SandboxReport,
    /// Whether the model hub can be reached. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_reachable: Option<bool>,
    /// What the owner allows containers. `None` from older Islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<ContainerOffer>,
    /// Minimum prices of the owner. `None` accepts any price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<Asking>,
    /// Results of the agent's benchmark. `None` before it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

impl Capabilities {
    /// Returns the numbers of the GPUs that are parts of a card.
    pub fn parts(&self) -> Parts {
        self.gpus.iter().filter(|gpu| gpu.part_of.is_some()).map(|gpu| gpu.index).collect()
    }
}

/// Results of the agent's benchmark of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Measured {
    /// Memory bandwidth of all processors together, megabytes per second.
    pub memory_mb_s: u64,
    /// Read throughput of the disk with the models, megabytes per second. `None` if it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb_s: Option<u64>,
    /// Download throughput of large models, megabytes per second. `None` if none was preloaded since the agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_mb_s: Option<u64>,
    /// Time of the measurement.
    pub at: Timestamp,
}

/// What the owner of an Island allows containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ContainerOffer {
    /// Highest allowed tier.
    pub max_tier: SandboxTier,
    /// Which of the addresses that Cargos declare are allowed.
    #[serde(default)]
    pub egress: Egress,
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// Index on this Island, stable across restarts.
    pub index: u32,
    /// Marketing name.
    pub name: String,
    /// Memory that the owner offers, megabytes.
    pub vram_mb: u64,
    /// Stable identity: the driver's UUID, or the PCI address. `None` from older Islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Vendor: `nvidia`, `amd`, `intel` or `apple`; `software` if the processor emulates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Identity of the card of which this is a part, such as one of NVIDIA's MIG instances. `None` for a whole card, and from older Islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// Quantities that cannot be measured, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Whether one engine works on this Island.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RuntimeReport {
    /// The engine.
    pub kind: RuntimeType,
    /// Whether jobs for it are accepted.
    pub available: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Version of the underlying library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether this is the simulated engine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// Back end, for engines with more than one: `native`, a library of the operating system, or `portable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Devices on which it runs models. `None` from older Islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<Device>>,
    /// Numbers of the offered GPUs on which it runs models. `None` from older Islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vec<u32>>,
    /// What it can do that earlier versions of it could not, by name, such as `continues_forms`. Empty from older Islands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// A device on which an engine runs models.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Device {
    /// Programming interface: `cpu`, `cuda`, `vulkan`, `metal`, `webgpu`, or another name of the engine.
    pub api: String,
    /// Marketing name.
    pub name: String,
    /// PCI address such as `0000:03:00.0`. `None` if the engine does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Memory, megabytes; 0 if the engine does not report it.
    #[serde(default)]
    pub memory_mb: u64,
    /// Whether the processor emulates it, for tests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_software: bool,
}

impl Device {
    /// The processor.
    pub fn cpu() -> Self {
        Self { api: CPU.to_owned(), name: "CPU".to_owned(), ..Self::default() }
    }

    /// Returns whether it is the processor.
    pub fn is_cpu(&self) -> bool {
        self.api == CPU
    }

    /// Returns an interface as it is written in texts.
    pub fn api_name(api: &str) -> &str {
        match api {
            CPU => "processor",
            "cuda" => "CUDA",
            "vulkan" => "Vulkan",
            "metal" => "Metal",
            "webgpu" => "WebGPU",
            other => other,
        }
    }
}

/// [`Device::api`] of the processor.
pub const CPU: &str = "cpu";

impl RuntimeReport {
    /// Returns a short description of what runs models: the back end, if there is a choice, and the version.
    pub fn engine(&self) -> Option<String> {
        let parts: Vec<&str> =
            [&self.backend, &self.version].into_iter().flatten().map(String::as_str).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Returns whether the engine can do what this feature names.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|own| own == feature)
    }
}

/// One of [`RuntimeReport::features`]: replies whose form a grammar enforces continue after the text that another Island delivered.
pub const CONTINUES_FORMS: &str = "continues_forms";

/// [`RuntimeReport::backend`] if a library of the operating system runs models.
pub const NATIVE: &str = "native";
/// [`RuntimeReport::backend`] if the portable implementation runs models.
pub const PORTABLE: &str = "portable";

/// Sandbox level of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SandboxLevel {
    /// No sandbox.
    #[default]
    None,
    /// Some layers are missing; `missing` names them.
    Partial,
    /// File system, system calls, network and memory are all confined.
    Full,
}

/// Sandbox layers in force and missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SandboxReport {
    /// Overall level.
    pub level: SandboxLevel,
    /// Layers in force, such as `landlock-abi-7`, `seccomp`, `no-network`, `memory-watchdog`.
    // The former name, from older Islands.
    #[serde(default, alias = "walls")] // words: ok
    pub layers: Vec<String>,
    /// Layers that this kernel or build lacks, with the reason.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// Load of the whole machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemLoad {
    /// Utilization of all processors, 0 to 100.
    pub cpu_percent: f32,
    /// Memory in use, megabytes.
    pub memory_used_mb: u64,
    /// All memory, megabytes.
    pub memory_total_mb: u64,
    /// Used space on the disk with the cache, gigabytes.
    pub disk_used_gb: f64,
    /// Size of that disk, gigabytes.
    pub disk_total_gb: f64,
}

/// Load of one GPU. Fields that its driver does not report are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuLoad {
    /// Index on this Island.
    pub index: u32,
    /// Utilization, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// Memory in use, megabytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_mb: Option<u64>,
    /// All memory, megabytes.
    pub memory_total_mb: u64,
    /// Temperature, degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Power draw, watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_draw_w: Option<f32>,
}

/// A job on an Island, as heartbeats list it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningJob {
    /// The attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// The Cargo.
    pub slug: Slug,
    /// State: `preparing`, `running`, `ended`.
    pub phase: String,
    /// Milliseconds since it was accepted.
    pub duration_ms: u64,
    /// Number of the last event emitted.
    pub last_event: u64,
}

/// A model on an Island.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostModel {
    /// Address of the file, which identifies the Cargo when no digest is known.
    pub url: String,
    /// Digest of the verified file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    /// Size on disk, megabytes.
    pub size_mb: u64,
    /// Whether a worker has it loaded.
    pub warm: bool,
    /// Free slots in that worker.
    #[serde(default)]
    pub free_slots: u32,
    /// Main memory of the workers that loaded it, megabytes; counted at the largest file of their Cargo.
    #[serde(default)]
    pub ram_mb: u64,
    /// The same of GPU memory.
    #[serde(default)]
    pub vram_mb: u64,
}

/// Remaining capacity of an Island.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// Number of further jobs that this Island would accept.
    pub job_slots: u32,
    /// Main memory available to jobs, measured, megabytes; memory of evictable idle workers is included.
    pub ram_mb: u64,
    /// The same of the GPU with the most available memory, megabytes.
    pub vram_mb: u64,
    /// The same of each GPU that jobs may use, by its number, megabytes. `None` from older Islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vram>,
}

/// An order of an Island's owner about its work.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::EnumString, strum::IntoStaticStr,
)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Order {
    /// No jobs; running jobs are handed back.
    Pause,
    /// No new jobs; running jobs may finish.
    Drain,
    /// The owner's rules decide.
    Resume,
}

impl Order {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whether an Island accepts orders of its owner's account, and which order applies to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ControlState {
    /// Whether the settings of the Island allow remote orders.
    pub allowed: bool,
    /// The order that applies; absent if the owner's rules decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Whether that order is remote. One that was given on the machine is ended there only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remote: bool,
}
