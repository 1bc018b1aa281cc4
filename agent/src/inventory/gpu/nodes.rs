//! Whether the agent may open the GPUs' device nodes. The unit allows devices by the names of their drivers, which are resolved when it
//! starts: the node of a driver that was loaded later is closed to it.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use rustix::{
    fs::{Access, access},
    io::Errno,
};

/// Nodes of NVIDIA's driver that can be opened without effect on a GPU.
const OPENED: [&str; 2] = ["nvidiactl", "nvidia-uvm"];

/// Returns what prevents the agent from opening nodes in `dev`, with the cure.
///
/// NVIDIA's are always checked: a GPU whose nodes are closed is not found at all. Nodes for rendering also exist on machines whose only GPU is that of
/// the processor, which is not used, so they are checked only if there is a GPU (`has_gpus`).
pub fn problems(dev: &Path, has_gpus: bool) -> Vec<String> {
    problems_by(dev, has_gpus, open, permitted)
}

fn problems_by(
    dev: &Path,
    has_gpus: bool,
    open: impl Fn(&Path) -> Option<Errno>,
    permitted: impl Fn(&Path) -> Option<Errno>,
) -> Vec<String> {
    let explain = |error: Option<Errno>, path: &Path| explained(path, error?);
    let paths = OPENED.iter().map(|name| dev.join(name));
    let mut all: Vec<String> = paths.filter_map(|path| explain(open(&path), &path)).collect();
    if has_gpus {
        let rendering =
            fs::read_dir(dev.join("dri")).into_iter().flatten().flatten().map(|entry| entry.path());
        let rendering = rendering.filter(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("renderD"))
        });
        let paths = rendering.chain([dev.join("kfd")]);
        all.extend(paths.filter_map(|path| explain(permitted(&path), &path)));
    }
    all.sort();
    all
}

fn open(path: &Path) -> Option<Errno> {
    let error = OpenOptions::new().read(true).write(true).open(path).err()?;
    Errno::from_io_error(&error)
}

/// Opening one of these could wake a GPU, so only the permissions are checked. The kernel checks the device rules of the unit for it as well.
fn permitted(path: &Path) -> Option<Errno> {
    access(path, Access::READ_OK | Access::WRITE_OK).err()
}

/// Errors other than these are the driver's own, or the node does not exist.
fn explained(path: &Path, error: Errno) -> Option<String> {
    let path = path.display();
    match error {
        Errno::PERM => Some(format!(
            "{path} is closed to the service, because its driver was loaded later: sudo systemctl restart island-agent"
        )),
        Errno::ACCESS => Some(format!(
            "{path} cannot be opened by the agent's user: add the user to the group of that file, usually render or video"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_has_its_cure() {
        let problem = |error| explained(Path::new("/dev/nvidia-uvm"), error);
        assert!(problem(Errno::PERM).is_some_and(|text| text.ends_with("restart island-agent")));
        assert!(problem(Errno::ACCESS).is_some_and(|text| text.contains("group")));
        assert_eq!((problem(Errno::NOENT), problem(Errno::NODEV)), (None, None));
    }

    #[test]
    fn a_machine_without_nodes_has_no_problem() {
        assert!(problems(Path::new("/nowhere"), true).is_empty());
    }

    #[test]
    fn nodes_of_nvidia_are_checked_even_if_no_gpu_was_found() {
        let dev = tempfile::tempdir().expect("temporary folder");
        fs::create_dir(dev.path().join("dri")).expect("folder");
        for node in ["nvidiactl", "dri/renderD128", "dri/card0"] {
            fs::write(dev.path().join(node), "").expect("node");
        }
        let closed = |path: &Path| path.exists().then_some(Errno::PERM);
        let found = |has_gpus| {
            let problems = problems_by(dev.path(), has_gpus, closed, closed);
            let node = |problem: &String| {
                problem.split(' ').next().and_then(|path| Some(path.rsplit('/').next()?.to_owned()))
            };
            problems.iter().filter_map(node).collect::<Vec<_>>()
        };
        assert_eq!(found(false), ["nvidiactl"]);
        assert_eq!(found(true), ["renderD128", "nvidiactl"]);
    }

    #[test]
    fn the_unit_makes_the_node_of_every_gpu_of_nvidia() {
        const GPUS: &str = "/proc/driver/nvidia/gpus";
        let unit = fs::read_to_string("../systemd/island-agent.service").expect("the unit");
        let script = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=-+/bin/sh -c '"));
        let script =
            script.and_then(|script| script.strip_suffix('\'')).expect("a script").replace("$$", "$");
        assert!(script.contains(GPUS), "{script}");
        let folder = tempfile::tempdir().expect("temporary folder");
        let (program, gpus) = (folder.path().join("nvidia-modprobe"), folder.path().join("gpus"));
        let script = script.replace(GPUS, &gpus.display().to_string());
        let calls = || {
            let mut shell = std::process::Command::new("/bin/sh");
            let ended = shell.arg("-c").arg(&script).env("PATH", folder.path()).output().expect("a shell");
            assert_eq!(
                String::from_utf8_lossy(&ended.stderr),
                "",
                "it would be in the journal of every start"
            );
            String::from_utf8_lossy(&ended.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(calls(), Vec::<String>::new(), "the program is not installed");
        // In place of the program.
        fs::write(&program, "#!/bin/sh\necho \"$@\"\n").expect("a program");
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
        assert_eq!(calls(), ["-c 0", "-u"], "the driver is not loaded yet");
        for address in ["0000:01:00.0", "0000:41:00.0"] {
            fs::create_dir_all(gpus.join(address)).expect("a GPU");
        }
        assert_eq!(calls(), ["-c 0", "-c 1", "-u"]);
    }

    #[test]
    fn the_unit_allows_the_drivers_of_every_vendor_and_loads_late_ones() {
        let unit = fs::read_to_string("../systemd/island-agent.service").expect("the unit");
        let allowed: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("DeviceAllow=")).collect();
        // Debian 12's driver registers as `nvidia-frontend`; `nvidia-caps` are MIG instances.
        let drivers = ["nvidia", "nvidia-frontend", "nvidiactl", "nvidia-uvm", "nvidia-caps", "drm", "kfd"];
        assert_eq!(allowed, drivers.map(|driver| format!("char-{driver} rw")));
        for line in ["DevicePolicy=closed", "SupplementaryGroups=video render"] {
            assert!(unit.lines().any(|other| other == line), "{line}");
        }
        let after = unit.lines().find(|line| line.starts_with("After="));
        assert!(after.is_some_and(|line| line.contains("modprobe@nvidia_uvm.service")), "{after:?}");
    }
}
