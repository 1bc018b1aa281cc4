//! Discovers what this machine has: processor, memory, disk, GPUs, engines. Missing parts have a reason; none is an error.

pub mod cgroup;
pub mod devices;
pub mod engine_devices;
pub mod gpu;
pub mod meter;
pub mod pci;
pub mod probe_requests;
pub mod processor;
pub mod runtimes;
pub mod withholding;

use std::path::Path;

use island_protocol::host::{Capabilities, RuntimeReport, SandboxReport};
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use self::gpu::View;
pub use self::processor::cores;

/// Discovers everything once, given the GPUs that were found. Blocks for some milliseconds.
pub fn discover(gpus: &View, runtimes: Vec<RuntimeReport>, sandbox: SandboxReport) -> Capabilities {
    let wanted = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    let system = System::new_with_specifics(wanted);
    let brand = |system: System| Some(system.cpus().first()?.brand().trim().to_owned());
    let cpu_model = system.ok().and_then(brand).unwrap_or_default();
    Capabilities {
        platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        cpu_model,
        cpu_cores: cores(),
        cpu_features: processor::features(),
        numa_nodes: processor::numa_nodes(),
        ram_mb: meter::Memory::read().total_mb,
        gpus: gpus.list(),
        no_gpu_reason: gpus.none.clone(),
        runtimes,
        sandbox,
        hub_reachable: None,
        containers: None,
        asking: None,
        measured: None,
    }
}

/// Free and total megabytes of the disk that contains `path`.
pub fn disk_mb(path: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let mb = |blocks: u64| blocks.saturating_mul(stat.f_frsize) >> 20;
    Some((mb(stat.f_bavail), mb(stat.f_blocks)))
}
