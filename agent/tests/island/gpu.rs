//! A GPU as the kernel describes one, on a machine without: the agent runs with an artificial `/sys/class`.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Pid;

/// Its number in the kernel's ROCm driver.
const NODE: &str = "4711";

/// The folder, and how to run a program that sees it.
#[derive(Debug)]
pub(crate) struct Gpu {
    class: PathBuf,
    owner: tempfile::TempDir,
    /// Whether programs of other users are hidden from the agent, as from a service without privileges.
    hides: bool,
}

impl Gpu {
    /// Its PCI address.
    pub(crate) const ADDRESS: &str = "0000:03:00.0";

    /// An AMD GPU with this much memory. `None`, with a notice, on systems that do not allow mounting.
    pub(crate) fn of_mb(vram_mb: u64) -> Option<Self> {
        let (gpu, bytes) = (Self::of(false), (vram_mb << 20).to_string());
        gpu.describe(&[
            ("vendor", "0x1002"),
            ("mem_info_vram_total", bytes.as_str()),
            ("mem_info_vram_used", "0"),
            ("unique_id", "1122334455667788"),
        ]);
        let kfd = gpu.class.join("kfd/kfd");
        // Bus 3, device 0, function 0.
        put(&kfd.join("topology/nodes/1/properties"), "domain 0\nlocation_id 768\n");
        put(&kfd.join("topology/nodes/1/gpu_id"), NODE);
        fs::create_dir_all(kfd.join("proc")).expect("folders");
        gpu.if_mounted()
    }

    /// The same of Intel, with dedicated memory, for an agent without the privilege to see how much of that is in use.
    pub(crate) fn of_intel_mb(vram_mb: u64) -> Option<Self> {
        let (gpu, bytes) = (Self::of(true), (vram_mb << 20).to_string());
        gpu.describe(&[
            ("vendor", "0x8086"),
            ("device", "0xe20b"),
            ("tile0/physical_vram_size_bytes", bytes.as_str()),
        ]);
        gpu.if_mounted()
    }

    fn of(hides: bool) -> Self {
        let owner = tempfile::tempdir().expect("temporary folder");
        Self { class: owner.path().join("class"), owner, hides }
    }

    /// Writes the files of its PCI device, and the link to it from its card.
    fn describe(&self, files: &[(&str, &str)]) {
        let device = self.class.join("pci").join(Self::ADDRESS);
        for (file, text) in files {
            put(&device.join(file), text);
        }
        let card = self.class.join("drm/card0");
        fs::create_dir_all(&card).expect("folders");
        symlink(Path::new("../../pci").join(Self::ADDRESS), card.join("device")).expect("a link");
    }

    fn if_mounted(self) -> Option<Self> {
        let tried = self.around("true".as_ref()).stderr(Stdio::null()).status();
        let mounts = tried.is_ok_and(|ended| ended.success());
        if !mounts {
            island_testing::skip("limits of GPU memory", "nothing may be mounted here");
        }
        mounts.then_some(self)
    }

    /// Returns a command that sees it.
    pub(crate) fn around(&self, program: &OsStr) -> Command {
        let mut command = Command::new("unshare");
        // The open files of the first process are what only privileged programs see.
        let mount = if self.hides {
            r#"mount --bind "$0" /sys/class && mount -t tmpfs -o mode=0555 none /proc/1 && exec "$@""#
        } else {
            r#"mount --bind "$0" /sys/class && exec "$@""#
        };
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", mount])
            .arg(&self.class)
            .arg(program);
        command
    }

    /// Makes its driver report that a process uses this many megabytes.
    pub(crate) fn take(&self, process: Pid, used_mb: u64) {
        let folder = self.class.join(format!("kfd/kfd/proc/{}", process.as_raw_nonzero()));
        put(&folder.join(format!("vram_{NODE}")), &(used_mb << 20).to_string());
        put(
            &self.class.join("pci").join(Self::ADDRESS).join("mem_info_vram_used"),
            &(used_mb << 20).to_string(),
        );
    }

    /// Makes its driver report that the only process on it has ended.
    pub(crate) fn release(&self, process: Pid) {
        let folder = self.class.join(format!("kfd/kfd/proc/{}", process.as_raw_nonzero()));
        fs::remove_dir_all(folder).expect("a process on the GPU");
        put(&self.class.join("pci").join(Self::ADDRESS).join("mem_info_vram_used"), "0");
    }

    /// A file with the agent's settings.
    pub(crate) fn settings(&self, text: &str) -> PathBuf {
        let path = self.owner.path().join("agent.toml");
        put(&path, text);
        path
    }
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    fs::write(path, text).expect("write");
}
