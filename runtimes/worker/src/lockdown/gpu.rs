//! What an engine must reach to use the GPUs of this machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::Profile;
use crate::launch::GpuGrant;

/// Device nodes of the drivers: NVIDIA's control nodes, direct rendering (AMD, Intel and Vulkan), AMD's compute node.
const DEVICES: [&str; 5] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "dri", "kfd"];
/// What drivers read: facts about devices, the index of libraries, and which Vulkan drivers there are.
const READ: [&str; 8] = [
    "/proc",
    "/sys",
    "/etc/ld.so.cache",
    "/etc/vulkan",
    "/usr/share/vulkan",
    "/usr/local/share/vulkan",
    "/usr/share/nvidia",
    "/usr/share/libdrm",
];
/// Where drivers and toolkits keep the libraries that they load when a model is placed on a device.
const LIBRARIES: [&str; 6] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/cuda", "/opt/rocm"];

impl Profile {
    /// The profile of an engine that uses the GPUs of this machine, and the default one if it may use none.
    pub fn gpu(gpus: &[GpuGrant]) -> Self {
        if gpus.is_empty() {
            return Self::default();
        }
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        Self {
            read: paths(&READ),
            libraries: paths(&LIBRARIES),
            devices: devices(Path::new("/dev")),
            ..Self::default()
        }
    }
}

/// The device nodes of all GPUs below `dev`. NVIDIA's drivers number theirs, without a bound.
fn devices(dev: &Path) -> Vec<PathBuf> {
    let numbered = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = fs::read_dir(dev).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<PathBuf> = names
        .filter(|name| numbered(name) || DEVICES.contains(&name.as_str()))
        .map(|name| dev.join(name))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_every_gpu_are_found_and_no_others() {
        let dev = tempfile::tempdir().expect("a folder");
        for name in
            ["nvidia0", "nvidia8", "nvidia12", "nvidiactl", "kfd", "nvidia-modeset", "nvidia", "sda", "tty0"]
        {
            fs::write(dev.path().join(name), "").expect("written");
        }
        fs::create_dir(dev.path().join("dri")).expect("created");
        let names: Vec<PathBuf> = devices(dev.path())
            .iter()
            .map(|path| path.strip_prefix(dev.path()).expect("inside").to_owned())
            .collect();
        let expected = ["dri", "kfd", "nvidia0", "nvidia12", "nvidia8", "nvidiactl"].map(PathBuf::from);
        assert_eq!(names, expected);
    }

    #[test]
    fn no_gpu_memory_means_no_devices() {
        assert_eq!(Profile::gpu(&[]), Profile::default());
    }
}
