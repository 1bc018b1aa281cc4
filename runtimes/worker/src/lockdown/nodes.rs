//! Which device nodes belong to which GPU.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::launch::GpuGrant;

/// Returns `devices` without the nodes of other GPUs than the granted ones. All nodes remain if the address or the nodes of a granted GPU
/// are unknown.
pub(super) fn granted(devices: Vec<PathBuf>, gpus: &[GpuGrant], root: &Path) -> Vec<PathBuf> {
    let mut own = BTreeSet::new();
    for gpu in gpus {
        let nodes = gpu.address.as_deref().map(|address| nodes_of(address, root)).unwrap_or_default();
        if nodes.is_empty() {
            return devices;
        }
        own.extend(nodes);
    }
    let is_granted = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !is_of_one_gpu(name) || own.contains(name)
    };
    devices.into_iter().filter(is_granted).collect()
}

/// Names of the nodes of the GPU at a PCI address.
fn nodes_of(address: &str, root: &Path) -> BTreeSet<String> {
    let rendering = root.join("sys/bus/pci/devices").join(address).join("drm");
    let entries = fs::read_dir(rendering).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut nodes: BTreeSet<String> = names.filter(|name| name.starts_with("renderD")).collect();
    let nvidia = root.join("proc/driver/nvidia/gpus").join(address).join("information");
    let text = fs::read_to_string(nvidia).unwrap_or_default();
    let minor = text.lines().find_map(|line| line.strip_prefix("Device Minor:"));
    nodes.extend(minor.map(|minor| format!("nvidia{}", minor.trim())));
    nodes
}

/// Whether a node belongs to a single GPU, not to a driver.
fn is_of_one_gpu(name: &str) -> bool {
    let number = name.strip_prefix("renderD").or_else(|| name.strip_prefix("nvidia"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(address: Option<&str>) -> GpuGrant {
        GpuGrant { index: 0, address: address.map(str::to_owned), memory_mb: 1 }
    }

    #[test]
    fn nodes_of_other_gpus_are_left_out() {
        let root = tempfile::tempdir().expect("a folder");
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, text).expect("written");
        };
        file("sys/bus/pci/devices/0000:03:00.0/drm/renderD128/dev", "");
        file("sys/bus/pci/devices/0000:03:00.0/drm/card0/dev", "");
        file("sys/bus/pci/devices/0000:41:00.0/drm/renderD129/dev", "");
        file("proc/driver/nvidia/gpus/0000:41:00.0/information", "Model: \t A GPU\nDevice Minor: \t 1\n");
        let all =
            ["dri/renderD128", "dri/renderD129", "kfd", "nvidia0", "nvidia1", "nvidia-uvm", "nvidiactl"];
        let left = |gpus: &[GpuGrant]| {
            let devices = all.iter().map(|name| Path::new("/dev").join(name)).collect();
            let left = granted(devices, gpus, root.path());
            let names = left.iter().map(|path| path.strip_prefix("/dev").expect("a device"));
            names.map(|name| name.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            left(&[grant(Some("0000:03:00.0"))]),
            ["dri/renderD128", "kfd", "nvidia-uvm", "nvidiactl"]
        );
        assert_eq!(
            left(&[grant(Some("0000:41:00.0"))]),
            ["dri/renderD129", "kfd", "nvidia1", "nvidia-uvm", "nvidiactl"]
        );
        assert_eq!(left(&[grant(Some("0000:41:00.0")), grant(None)]), all, "a grant without an address");
        assert_eq!(left(&[grant(Some("0000:99:00.0"))]), all, "a GPU without nodes");
    }
}
