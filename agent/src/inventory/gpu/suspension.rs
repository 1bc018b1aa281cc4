//! Whether NVIDIA's GPUs are suspended while no program has them open, and which are now: read from files, which wakes none.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::Roots;

/// The files about the power of NVIDIA's GPUs.
#[derive(Debug)]
pub(super) struct Suspension {
    /// The folder in which the kernel's driver lists its GPUs, whether NVML is open or not.
    listed: PathBuf,
    /// The folder of all PCI devices.
    devices: PathBuf,
}

impl Suspension {
    pub(super) fn of(roots: &Roots) -> Self {
        Self { listed: roots.proc.join("driver/nvidia/gpus"), devices: roots.sys.join("bus/pci/devices") }
    }

    /// The addresses of the GPUs.
    pub(super) fn gpus(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.listed).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Whether all of them are suspended once no program has them open: laptops can, and their settings allow it.
    pub(super) fn is_possible(&self) -> bool {
        let gpus = self.gpus();
        let is_allowed = |gpu: &String| self.is_enabled(gpu) && self.power(gpu, "control") == "auto";
        !gpus.is_empty() && gpus.iter().all(is_allowed)
    }

    /// The addresses of those that are suspended now.
    pub(super) fn suspended(&self) -> BTreeSet<String> {
        let is_suspended = |gpu: &String| self.power(gpu, "runtime_status") == "suspended";
        self.gpus().into_iter().filter(is_suspended).collect()
    }

    /// Whether the driver suspends this GPU on this machine.
    fn is_enabled(&self, gpu: &str) -> bool {
        let states = read(&self.listed.join(gpu).join("power"));
        let mut state = states.lines().filter_map(|line| line.strip_prefix("Runtime D3 status:"));
        state.any(|state| state.trim().starts_with("Enabled"))
    }

    fn power(&self, gpu: &str, file: &str) -> String {
        read(&self.devices.join(gpu).join("power").join(file))
    }
}

/// The text of a file; empty if it cannot be read.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
