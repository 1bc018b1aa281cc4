//! Finding and killing the processes of one network, by the data directory on their command lines.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process};

/// A process and its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its arguments, joined by spaces.
    pub command: String,
}

/// Every process that names `folder` on its command line, zombies left out.
pub fn of(folder: &Path) -> Vec<Process> {
    let wanted = folder.display().to_string();
    let entries = fs::read_dir("/proc").expect("list /proc");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != std::process::id().cast_signed())
        .filter_map(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            command.contains(&wanted).then_some(Process { pid, command })
        })
        .collect()
}

/// The workers of a network.
pub fn workers(folder: &Path) -> Vec<Process> {
    of(folder).into_iter().filter(|process| process.command.contains("island-worker-")).collect()
}

/// The processes whose parent is this one.
pub fn children(parent: i32) -> Vec<i32> {
    let pids = fs::read_dir("/proc").expect("list /proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name before it, in parentheses, may contain anything.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(1).and_then(|field| field.parse().ok()) == Some(parent)
    };
    pids.filter(is_child).collect()
}

/// Sends SIGKILL.
pub fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process id");
    kill_process(pid, Signal::KILL).expect("kill");
}

/// What a process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Open file descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
    /// Memory that no file backs, in bytes.
    pub anonymous_bytes: u64,
}

impl Usage {
    /// Reads `/proc/<pid>`.
    pub fn of(pid: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("read the process's status");
        let field = |name: &str| -> u64 {
            let line =
                status.lines().find_map(|line| line.strip_prefix(name)).expect("a field of the status");
            line.trim().trim_end_matches(" kB").parse().expect("a number")
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("list descriptors").count() as u64;
        Self { descriptors, threads: field("Threads:"), anonymous_bytes: field("RssAnon:") << 10 }
    }
}
