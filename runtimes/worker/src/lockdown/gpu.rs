//! What an engine must reach to use the GPUs of this machine.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Profile, nodes};
use crate::launch::GpuGrant;

/// What drivers read: facts about devices, the index of libraries, which Vulkan drivers there are, and their settings for single programs.
const READ: [&str; 31] = [
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/driver/nvidia",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/stat",
    "/proc/version",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/sys/bus/pci/devices",
    "/sys/class/drm",
    "/sys/class/kfd",
    "/sys/dev/char",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/devices/virtual/kfd",
    "/sys/module/amdgpu",
    "/sys/module/i915",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
    "/sys/module/xe",
    "/etc/drirc",
    "/etc/ld.so.cache",
    "/etc/vulkan",
    "/usr/share/drirc.d",
    "/usr/share/glvnd",
    "/usr/share/libdrm",
    "/usr/share/nvidia",
    "/usr/share/vulkan",
    "/usr/local/share/vulkan",
];
/// Folder whose entries for PCI domains contain the facts of each GPU.
const BUSES: &str = "/sys/devices";
/// Folders that the loader searches on every system, or in which toolkits and other distributions keep drivers.
const LIBRARIES: [&str; 7] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/cuda", "/opt/rocm", "/run/opengl-driver/lib"];
/// Settings of the loader: the folders that it searches in addition.
const LOADER: &str = "/etc/ld.so.conf";
/// Variables with paths of Vulkan drivers' manifests.
const MANIFESTS: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

impl Profile {
    /// The profile of an engine that uses these GPUs of this machine, and the default one if it may use none. It opens no device node that
    /// belongs to another GPU; engines that cannot select a GPU by its address use the one that they can open.
    pub fn gpu(gpus: &[GpuGrant]) -> Self {
        Self::of_gpus(gpus, Path::new("/"))
    }

    /// The same for a machine whose device nodes and facts about PCI devices are below `root`.
    fn of_gpus(gpus: &[GpuGrant], root: &Path) -> Self {
        if gpus.is_empty() {
            return Self::default();
        }
        let manifests: Vec<PathBuf> = MANIFESTS.iter().flat_map(|name| paths(name)).collect();
        let drivers = manifests.iter().filter_map(|path| driver_folder(path));
        let fixed = LIBRARIES.iter().map(PathBuf::from);
        let mut libraries: Vec<PathBuf> = fixed
            .chain(paths("LD_LIBRARY_PATH"))
            .chain(loader_folders(Path::new(LOADER), 0))
            .chain(drivers)
            .collect();
        libraries.sort();
        libraries.dedup();
        let facts = READ.iter().map(PathBuf::from).chain(pci_domains(Path::new(BUSES)));
        let own = gpus.iter().filter_map(|gpu| facts_of(gpu.address.as_deref()?, root));
        let devices = nodes::granted(devices(&root.join("dev")), gpus, root);
        Self {
            read: facts.chain(own).chain(manifests).collect(),
            // Drivers of AMD and Intel look for their GPUs here.
            listed: vec![root.join("dev/dri")],
            libraries,
            drivers: true,
            names_threads: devices.iter().any(|node| is_of_nvidia(node)),
            devices,
            ..Self::default()
        }
    }
}

/// The absolute paths in a variable.
fn paths(variable: &str) -> Vec<PathBuf> {
    let value = env::var_os(variable).unwrap_or_default();
    env::split_paths(&value).filter(|path| path.is_absolute()).collect()
}

/// The folder with the library that the manifest of a Vulkan driver names by its path.
fn driver_folder(manifest: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Manifest {
        #[serde(rename = "ICD")]
        icd: Icd,
    }
    #[derive(Deserialize)]
    struct Icd {
        library_path: PathBuf,
    }
    let Manifest { icd } = serde_json::from_slice(&fs::read(manifest).ok()?).ok()?;
    let library = manifest.parent()?.join(icd.library_path);
    library.is_file().then(|| library.parent().map(Path::to_owned))?
}

/// The folders in the settings of the loader and in those that they include; format: `ld.so.conf(5)`.
fn loader_folders(settings: &Path, depth: usize) -> Vec<PathBuf> {
    /// Includes of includes are not read further: they could be circular.
    const DEPTH: usize = 4;
    let Ok(text) = fs::read_to_string(settings) else { return Vec::new() };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let folders = lines.flat_map(|line| match line.strip_prefix("include ") {
        Some(pattern) if depth < DEPTH => included(settings, pattern.trim())
            .iter()
            .flat_map(|file| loader_folders(file, depth + 1))
            .collect(),
        Some(_) => Vec::new(),
        None => vec![PathBuf::from(line)],
    });
    folders.filter(|folder| folder.is_absolute()).collect()
}

/// The files that an `include` names: a path whose file name may begin with an asterisk.
fn included(settings: &Path, pattern: &str) -> Vec<PathBuf> {
    let pattern = settings.parent().unwrap_or(Path::new("/")).join(pattern);
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name().and_then(|name| name.to_str()))
    else {
        return Vec::new();
    };
    let Some((before, after)) = name.split_once('*') else { return vec![pattern] };
    let names = entries(folder).into_iter().filter(|name| name.starts_with(before) && name.ends_with(after));
    names.map(|name| folder.join(name)).collect()
}

/// The folders of all PCI domains below `/sys/devices`, to which the links of other folders lead.
fn pci_domains(devices: &Path) -> Vec<PathBuf> {
    entries(devices)
        .into_iter()
        .filter(|name| name.starts_with("pci"))
        .map(|name| devices.join(name))
        .collect()
}

/// The folder with the facts of the GPU at a PCI address, which is not below that of a PCI domain on every machine: virtual ones have other
/// buses in between.
fn facts_of(address: &str, root: &Path) -> Option<PathBuf> {
    root.join("sys/bus/pci/devices").join(address).canonicalize().ok()
}

/// The device nodes of all GPUs below `dev`: those of NVIDIA's driver, with the folder of MIG's capabilities, the nodes for rendering of
/// AMD, Intel and Vulkan, and AMD's compute node. Nodes that control displays are not among them.
fn devices(dev: &Path) -> Vec<PathBuf> {
    let own = entries(dev).into_iter().filter(|name| name.starts_with("nvidia") || name == "kfd");
    let render = dev.join("dri");
    let nodes = entries(&render).into_iter().filter(|name| name.starts_with("renderD"));
    let mut found: Vec<PathBuf> =
        own.map(|name| dev.join(name)).chain(nodes.map(|name| render.join(name))).collect();
    found.sort();
    found
}

/// Whether a device node is one of NVIDIA's driver.
fn is_of_nvidia(node: &Path) -> bool {
    node.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"nvidia"))
}

/// The names in a folder; none if it cannot be read.
fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_every_gpu_are_found_and_no_others() {
        let dev = tempfile::tempdir().expect("a folder");
        for name in ["nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "kfd", "sda", "tty0"]
        {
            fs::write(dev.path().join(name), "").expect("written");
        }
        for name in ["dri/by-path", "nvidia-caps", "snd"] {
            fs::create_dir_all(dev.path().join(name)).expect("created");
        }
        for name in ["card0", "renderD128", "renderD129"] {
            fs::write(dev.path().join("dri").join(name), "").expect("written");
        }
        let found = devices(dev.path());
        let names: Vec<&Path> =
            found.iter().map(|path| path.strip_prefix(dev.path()).expect("inside")).collect();
        let expected = [
            "dri/renderD128",
            "dri/renderD129",
            "kfd",
            "nvidia-caps",
            "nvidia-modeset",
            "nvidia-uvm",
            "nvidia0",
            "nvidia12",
            "nvidiactl",
        ];
        assert_eq!(names, expected.map(Path::new));
    }

    #[test]
    fn the_folders_of_the_loader_include_those_of_included_files() {
        let etc = tempfile::tempdir().expect("a folder");
        let settings = etc.path().join("ld.so.conf");
        fs::create_dir(etc.path().join("ld.so.conf.d")).expect("created");
        let write = |name: &str, text: &str| fs::write(etc.path().join(name), text).expect("written");
        write("ld.so.conf", "# comment\ninclude ld.so.conf.d/*.conf\n/opt/lib # ours\nrelative\n");
        write("ld.so.conf.d/a.conf", "/usr/local/cuda-13/lib64\ninclude ../ld.so.conf\n");
        write("ld.so.conf.d/b.txt", "/not/included\n");
        let mut folders = loader_folders(&settings, 0);
        folders.sort();
        folders.dedup();
        assert_eq!(folders, ["/opt/lib", "/usr/local/cuda-13/lib64"].map(PathBuf::from));
        assert_eq!(loader_folders(&etc.path().join("absent"), 0), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_driver_outside_the_usual_folders_is_found_by_its_manifest() {
        let dir = tempfile::tempdir().expect("a folder");
        let manifest = dir.path().join("icd.json");
        fs::write(&manifest, r#"{"ICD": {"library_path": "./libdriver.so", "api_version": "1.3.0"}}"#)
            .expect("written");
        assert_eq!(driver_folder(&manifest), None, "the library is not there");
        fs::write(dir.path().join("libdriver.so"), "").expect("written");
        let folder = driver_folder(&manifest).expect("a folder");
        assert_eq!(folder.canonicalize().expect("it exists"), dir.path().canonicalize().expect("it exists"));
    }

    #[test]
    fn no_profile_contains_nodes_of_other_gpus() {
        let root = tempfile::tempdir().expect("a folder");
        for path in ["dev/dri/renderD128", "dev/dri/renderD129", "dev/nvidia0", "dev/nvidiactl"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, "").expect("written");
        }
        let gpu = root.path().join("sys/devices/VMBUS:01/pci0000:40/0000:41:00.0");
        fs::create_dir_all(gpu.join("drm/renderD129")).expect("created");
        let links = root.path().join("sys/bus/pci/devices");
        fs::create_dir_all(&links).expect("created");
        std::os::unix::fs::symlink(&gpu, links.join("0000:41:00.0")).expect("a link");
        let grant = GpuGrant { index: 1, address: Some("0000:41:00.0".to_owned()), memory_mb: 1 };
        let profile = Profile::of_gpus(&[grant], root.path());
        let expected = ["dev/dri/renderD129", "dev/nvidiactl"].map(|path| root.path().join(path));
        assert_eq!(profile.devices, expected);
        assert!(profile.read.contains(&gpu.canonicalize().expect("it exists")), "its facts are readable");
        assert_eq!(profile.listed, [root.path().join("dev/dri")]);
        assert!(profile.drivers);
    }

    #[test]
    fn only_a_driver_of_nvidia_may_name_threads() {
        for (node, names_threads) in [("dri/renderD128", false), ("kfd", false), ("nvidiactl", true)] {
            let root = tempfile::tempdir().expect("a folder");
            let path = root.path().join("dev").join(node);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, "").expect("written");
            let grant = GpuGrant { index: 0, address: None, memory_mb: 1 };
            assert_eq!(Profile::of_gpus(&[grant], root.path()).names_threads, names_threads, "{node}");
        }
    }

    /// Files of the kernel that a driver of a GPU does not need: about other processes, networks and their settings, the
    /// kernel's memory and log, disks, keyboards, firmware, control groups, and serial numbers of the machine.
    const CLOSED: [&str; 33] = [
        "/proc/1/cmdline",
        "/proc/bus/input/devices",
        "/proc/cmdline",
        "/proc/diskstats",
        "/proc/iomem",
        "/proc/kallsyms",
        "/proc/kcore",
        "/proc/key-users",
        "/proc/keys",
        "/proc/kmsg",
        "/proc/locks",
        "/proc/mounts",
        "/proc/net/tcp",
        "/proc/partitions",
        "/proc/sched_debug",
        "/proc/swaps",
        "/proc/sys/fs/file-nr",
        "/proc/sys/net/ipv4/conf",
        "/proc/sysrq-trigger",
        "/proc/sysvipc/shm",
        "/proc/timer_list",
        "/sys/block",
        "/sys/bus/usb/devices",
        "/sys/class/dmi/id/product_serial",
        "/sys/class/input",
        "/sys/class/net",
        "/sys/devices/virtual/dmi/id/product_serial",
        "/sys/devices/virtual/net/lo",
        "/sys/devices/virtual/tty/tty0",
        "/sys/firmware/acpi",
        "/sys/fs/cgroup/memory.max",
        "/sys/kernel/debug",
        "/sys/module/kernel/parameters",
    ];

    #[test]
    fn no_folder_of_the_profile_is_wider_than_drivers_need() {
        let root = tempfile::tempdir().expect("a folder");
        let grant = GpuGrant { index: 0, address: None, memory_mb: 1 };
        let profile = Profile::of_gpus(&[grant], root.path());
        let of_kernel = |path: &&PathBuf| path.starts_with("/proc") || path.starts_with("/sys");
        let opened: Vec<_> = profile.read.iter().chain(&profile.listed).filter(of_kernel).collect();
        assert!(opened.len() >= 20, "the rest of this test compares something: {opened:?}");
        for folder in opened {
            let exposed = CLOSED.iter().find(|closed| Path::new(closed).starts_with(folder));
            assert_eq!(exposed, None, "{} contains it", folder.display());
        }
        assert!(profile.write.is_empty());
    }

    #[test]
    fn of_the_devices_of_the_machine_only_the_pci_domains_are_read() {
        let devices = tempfile::tempdir().expect("a folder");
        for name in ["pci0000:00", "pci0001:00", "system", "virtual", "platform", "LNXSYSTM:00"] {
            fs::create_dir(devices.path().join(name)).expect("created");
        }
        let mut found = pci_domains(devices.path());
        found.sort();
        assert_eq!(found, ["pci0000:00", "pci0001:00"].map(|name| devices.path().join(name)));
    }

    #[test]
    fn without_gpus_nothing_is_added() {
        assert_eq!(Profile::gpu(&[]), Profile::default());
    }
}
