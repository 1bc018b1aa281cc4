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
pub fn problems(dev: &Path) -> Vec<String> {
    let opened = OPENED.iter().map(|name| dev.join(name)).filter_map(|path| opening(&path));
    let rendering = fs::read_dir(dev.join("dri")).into_iter().flatten().flatten().map(|entry| entry.path());
    let rendering = rendering.filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("renderD"))
    });
    // Opening one of these could wake a GPU, so only the permissions are checked.
    let permitted = rendering.chain([dev.join("kfd")]).filter_map(|path| permission(&path));
    let mut all: Vec<String> = opened.chain(permitted).collect();
    all.sort();
    all
}

fn opening(path: &Path) -> Option<String> {
    let error = OpenOptions::new().read(true).write(true).open(path).err()?;
    explained(path, Errno::from_io_error(&error)?)
}

fn permission(path: &Path) -> Option<String> {
    explained(path, access(path, Access::READ_OK | Access::WRITE_OK).err()?)
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
        assert!(problems(Path::new("/nowhere")).is_empty());
    }
}
