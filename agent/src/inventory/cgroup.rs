//! Limits of this process by control groups: its own, and all that contain it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The control groups of this process.
#[derive(Debug, Clone)]
pub struct Groups {
    /// Mount point.
    root: PathBuf,
    /// The file that names this process's groups.
    own: PathBuf,
}

impl Default for Groups {
    fn default() -> Self {
        Self { root: "/sys/fs/cgroup".into(), own: "/proc/self/cgroup".into() }
    }
}

/// Memory within limits, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMemory {
    /// The limit.
    pub limit: u64,
    /// What remains of it, cached files counted as free.
    pub free: u64,
}

impl Groups {
    /// Processor limit, as a number of processors: the lowest from this process's group up to the root. `None` without a limit.
    pub fn processors(&self) -> Option<f64> {
        self.on_the_way("cpu").iter().filter_map(|dir| processors(dir)).reduce(f64::min)
    }

    /// Memory: the lowest limit, and the lowest remainder, possibly of different groups. `None` without a limit.
    pub fn memory(&self) -> Option<GroupMemory> {
        let placements = self.on_the_way("memory").into_iter().filter_map(|dir| memory(&dir));
        placements.reduce(|one, other| GroupMemory {
            limit: one.limit.min(other.limit),
            free: one.free.min(other.free),
        })
    }

    /// This process's group and all that contain it, as far as they are visible: a container sees its own as the root.
    fn on_the_way(&self, controller: &str) -> Vec<PathBuf> {
        let own = fs::read_to_string(&self.own).unwrap_or_default();
        let groups = own.lines().filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let hierarchy = self.hierarchy(controllers, controller)?;
            let own = hierarchy.join(path.trim_start_matches('/'));
            Some(own.ancestors().take_while(|dir| dir.starts_with(&hierarchy)).map(Path::to_owned).collect())
        });
        groups.collect::<Vec<Vec<_>>>().concat()
    }

    /// Version 2 has one hierarchy and names no controllers; version 1 has hierarchies for one or several controllers.
    fn hierarchy(&self, controllers: &str, wanted: &str) -> Option<PathBuf> {
        if controllers.is_empty() {
            return Some(self.root.clone());
        }
        let is_it = controllers.split(',').any(|name| name == wanted);
        let mut places = [wanted, controllers].into_iter().map(|name| self.root.join(name));
        is_it.then(|| places.find(|dir| dir.is_dir()))?
    }
}

fn processors(dir: &Path) -> Option<f64> {
    let (quota, period) = match read(dir, "cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (read(dir, "cpu.cfs_quota_us")?, read(dir, "cpu.cfs_period_us")?),
    };
    // Without a limit, version 2 has `max` and version 1 has -1.
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
    Some(number(&quota)? / number(&period)?)
}

/// Version 2 only: limits of version 1 are part of what the system reports.
fn memory(dir: &Path) -> Option<GroupMemory> {
    let number = |file: &str| read(dir, file)?.trim().parse::<u64>().ok();
    let limit = number("memory.max")?;
    let stat = read(dir, "memory.stat").unwrap_or_default();
    let part = |name: &str| -> u64 {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    // Cached files can be reclaimed; shared memory is counted as cached but cannot.
    let cached = part("file").saturating_sub(part("shmem"));
    let held = number("memory.current")?.saturating_sub(cached);
    Some(GroupMemory { limit, free: limit.saturating_sub(held) })
}

fn read(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "0::/system.slice/island-agent.service";

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(own: &str) -> Self {
            let machine = Self(tempfile::tempdir().expect("a folder"));
            machine.write("own", own);
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, format!("{text}\n")).expect("write");
        }

        fn groups(&self) -> Groups {
            Groups { root: self.0.path().join("cgroup"), own: self.0.path().join("own") }
        }

        fn processors(&self) -> Option<f64> {
            self.groups().processors()
        }
    }

    #[test]
    fn the_lowest_limit_up_to_the_root_counts() {
        let machine = Machine::new(OWN);
        assert_eq!(machine.processors(), None);
        machine.write("cgroup/system.slice/island-agent.service/cpu.max", "max 100000");
        assert_eq!(machine.processors(), None);
        machine.write("cgroup/system.slice/cpu.max", "350000 100000");
        assert_eq!(machine.processors(), Some(3.5));
        machine.write("cgroup/system.slice/island-agent.service/cpu.max", "150000 100000");
        assert_eq!(machine.processors(), Some(1.5));
        machine.write("cgroup/other.slice/cpu.max", "10000 100000");
        assert_eq!(machine.processors(), Some(1.5), "limits of other groups do not count");
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let machine = Machine::new("0::/");
        machine.write("cgroup/cpu.max", "200000 100000");
        machine.write("cgroup/memory.max", "1000");
        machine.write("cgroup/memory.current", "600");
        assert_eq!(machine.processors(), Some(2.0));
        assert_eq!(machine.groups().memory(), Some(GroupMemory { limit: 1000, free: 400 }));
    }

    #[test]
    fn version_1_is_read() {
        let machine = Machine::new("4:memory:/a\n3:cpu,cpuacct:/docker/x\n0::/");
        machine.write("cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1");
        machine.write("cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000");
        assert_eq!(machine.processors(), None);
        machine.write("cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000");
        assert_eq!(machine.processors(), Some(0.5));
    }

    #[test]
    fn cached_files_are_free_and_the_fullest_group_counts() {
        let machine = Machine::new(OWN);
        let unit = "cgroup/system.slice/island-agent.service";
        assert_eq!(machine.groups().memory(), None);
        machine.write(&format!("{unit}/memory.max"), "max");
        machine.write(&format!("{unit}/memory.current"), "700");
        assert_eq!(machine.groups().memory(), None);
        machine.write(&format!("{unit}/memory.max"), "1000");
        machine.write(&format!("{unit}/memory.stat"), "anon 200\nfile 450\nshmem 50\nfile_mapped 9");
        assert_eq!(machine.groups().memory(), Some(GroupMemory { limit: 1000, free: 700 }));
        machine.write("cgroup/system.slice/memory.max", "4000");
        machine.write("cgroup/system.slice/memory.current", "3900");
        assert_eq!(machine.groups().memory(), Some(GroupMemory { limit: 1000, free: 100 }));
    }
}
