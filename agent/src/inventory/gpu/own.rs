//! The processes of this Island, to be distinguished from other programs on a GPU.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use parking_lot::Mutex;
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

/// Generations between a worker and a process that it started.
const MAX_DEPTH: u32 = 8;

/// Process ids of workers and probes, and whether each may use GPUs for as long as it lives. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct OwnProcesses(Arc<Mutex<BTreeMap<u32, bool>>>);

impl OwnProcesses {
    /// Adds a process that this Island started or found.
    pub fn add(&self, pid: u32) {
        self.0.lock().insert(pid, false);
    }

    /// Adds a worker that was granted GPUs.
    pub fn add_on_gpus(&self, pid: u32) {
        self.0.lock().insert(pid, true);
    }

    /// Whether one of them was granted GPUs.
    pub(super) fn use_gpus(&self) -> bool {
        self.0.lock().values().any(|uses_gpus| *uses_gpus)
    }

    /// Removes a process that has ended.
    pub fn remove(&self, pid: u32) {
        self.0.lock().remove(&pid);
    }

    /// Whether a process is another program. Where the processes of other users are hidden, an unreadable one is another program if it exists:
    /// our own are known and belong to our own user.
    pub(super) fn is_foreign(&self, proc: &Path, pid: u32) -> bool {
        let known = self.0.lock();
        let mut at = pid;
        for _ in 0..MAX_DEPTH {
            if known.contains_key(&at) {
                return false;
            }
            match parent(proc, at) {
                Some(parent) if parent > 1 => at = parent,
                _ => break,
            }
        }
        drop(known);
        !is_worker(proc, pid) && exists(pid)
    }
}

/// Whether a process is a worker by its name: of another agent of the same user.
fn is_worker(proc: &Path, pid: u32) -> bool {
    let name = fs::read_to_string(proc.join(pid.to_string()).join("comm"));
    name.is_ok_and(|name| name.starts_with("island-worker"))
}

/// The parent of a process, if it is visible.
fn parent(proc: &Path, pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    // The name before it is in brackets and may contain any character.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a process exists, visible or not. A driver may list one that has just ended.
fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    !matches!(test_kill_process(pid), Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that has ended.
    fn ended() -> u32 {
        let mut child = std::process::Command::new("true").spawn().expect("start a process");
        child.wait().expect("wait");
        child.id()
    }

    fn visible(proc: &Path, pid: u32, name: &str, parent: u32) {
        let dir = proc.join(pid.to_string());
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join("comm"), format!("{name}\n")).expect("write");
        fs::write(dir.join("stat"), format!("{pid} ({name} ) 1) S {parent} 1 1 0")).expect("write");
    }

    #[test]
    fn a_hidden_process_is_foreign_and_an_ended_one_is_not() {
        let proc = tempfile::tempdir().expect("a folder");
        let own = OwnProcesses::default();
        let (test, gone) = (std::process::id(), ended());
        assert!(own.is_foreign(proc.path(), test), "it exists and nothing is known of it");
        assert!(!own.is_foreign(proc.path(), gone), "the driver lists it late");
        own.add(test);
        assert!(!own.is_foreign(proc.path(), test));
        own.remove(test);
        assert!(own.is_foreign(proc.path(), test));
    }

    #[test]
    fn what_a_worker_started_is_ours() {
        let proc = tempfile::tempdir().expect("a folder");
        let own = OwnProcesses::default();
        let test = std::process::id();
        visible(proc.path(), test, "helper", 7001);
        visible(proc.path(), 7001, "sh", 7000);
        assert!(own.is_foreign(proc.path(), test));
        own.add(7000);
        assert!(!own.is_foreign(proc.path(), test));
    }

    #[test]
    fn a_worker_of_another_agent_is_no_other_program() {
        let proc = tempfile::tempdir().expect("a folder");
        let test = std::process::id();
        visible(proc.path(), test, "island-worker-l", 1);
        assert!(!OwnProcesses::default().is_foreign(proc.path(), test));
    }
}
