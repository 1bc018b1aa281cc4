//! What a worker is told before it locks itself in.

use std::{collections::BTreeMap, path::PathBuf};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    host::SandboxReport,
    ids::InstanceId,
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

/// `launch.json`: written by the agent, read by the worker before lock-down. Holds nothing from strangers but names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// This worker.
    pub instance: InstanceId,
    /// The Cargo whose model it loads.
    pub cargo: CargoSpec,
    /// Verified files by artifact name: the only files it may read.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// Most memory it may use, megabytes; past it the watchdog ends the worker.
    pub memory_limit_mb: u64,
    /// Processor threads for the engine.
    pub threads: u32,
    /// Jobs at once.
    pub slots: u32,
    /// GPU memory it may use, megabytes; 0 keeps it on the processor.
    #[serde(default)]
    pub vram_limit_mb: u64,
    /// Whether to go on where this kernel cannot build every wall.
    #[serde(default)]
    pub allow_weak_sandbox: bool,
    /// Seconds without a connection after which it exits.
    pub orphan_timeout_s: u64,
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
    /// Anything else worth showing to the owner.
    #[serde(default)]
    pub details: BTreeMap<String, String>,
    /// Why it cannot be used here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Walls this kernel gives a worker.
    pub sandbox: SandboxReport,
}
