//! What an earlier `island dev` on the same folder left running: ended before anything is started, and after everything was stopped.

use std::path::Path;

use anyhow::Result;
use futures::future::try_join_all;
use rustix::process::Pid;

use super::{WORKER_GRACE, grace, layout::Layout, process::Process};
use crate::output::Output;

/// Ends the parts that the folder's records name and the workers of its Islands: Islands first, NATS last. An error names the
/// process that cannot be ended.
pub(super) async fn end(layout: &Layout, output: &Output) -> Result<()> {
    let (islands, mut rest): (Vec<_>, Vec<_>) =
        recorded(layout).into_iter().partition(|(name, _)| name.starts_with("island-"));
    // The coordinator before NATS, to which it still publishes.
    rest.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, process) in islands.iter().chain(&rest) {
        output.note(&format!("ending {name} of an earlier `island dev`, process {}", process.pid));
    }
    try_join_all(islands.iter().map(|(name, process)| process.end(name, grace(name)))).await?;
    end_workers(layout.root()).await?;
    for (name, process) in &rest {
        process.end(name, grace(name)).await?;
    }
    Ok(())
}

/// Ends the workers of the folder's Islands. No Island may run: it would start them again.
pub(super) async fn end_workers(root: &Path) -> Result<()> {
    let workers = workers(root);
    try_join_all(workers.iter().map(|worker| worker.end("a worker", WORKER_GRACE))).await.map(drop)
}

/// The parts on record that still run, by name.
fn recorded(layout: &Layout) -> Vec<(String, Process)> {
    let named = |name: String| {
        let process = Process::recorded(&layout.pid(&name))?;
        let is_ours =
            process.arguments().iter().any(|argument| Path::new(argument).starts_with(layout.root()));
        is_ours.then_some((name, process))
    };
    layout.recorded().into_iter().filter_map(named).collect()
}

/// The workers whose folder is in `root`. Islands detach their workers, so that no record of ours names them.
fn workers(root: &Path) -> Vec<Process> {
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let running = pids.filter_map(Process::running);
    running.filter(|process| is_worker(&process.arguments(), root)).collect()
}

fn is_worker(arguments: &[String], root: &Path) -> bool {
    let program = arguments.first().and_then(|program| Path::new(program).file_name()?.to_str());
    let folder = arguments.iter().skip_while(|argument| *argument != "--dir").nth(1);
    program.is_some_and(|program| program.starts_with("island-worker-"))
        && folder.is_some_and(|folder| Path::new(folder).starts_with(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_recognized_by_program_and_folder() {
        let is_worker = |line: &str| {
            let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
            is_worker(&arguments, Path::new("/data/dev"))
        };
        assert!(is_worker("/usr/bin/island-worker-llmcpp --dir /data/dev/island-1/w/ab"));
        assert!(is_worker("island-worker-wasm --check --dir /data/dev/island-2/derived/making-x"));
        assert!(!is_worker("/usr/bin/island-worker-llmcpp --dir /data/dev2/island-1/w/ab"));
        assert!(!is_worker("/usr/bin/island-worker-llmcpp --dir /var/lib/island-agent/w/ab"));
        assert!(!is_worker("/usr/bin/island-worker-llmcpp --dir"));
        assert!(!is_worker("tail -f --dir /data/dev/island-1/w/ab"));
        assert!(!is_worker(""));
    }

    #[test]
    fn only_parts_that_name_the_folder_are_on_record() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let layout = Layout::open(folder.path()).expect("open");
        assert_eq!(recorded(&layout), []);
        // This very process runs, and names no data folder.
        let own = Process::running(rustix::process::getpid()).expect("it runs");
        own.record(&layout.pid("island-1")).expect("record");
        assert_eq!(layout.recorded(), ["island-1"]);
        assert_eq!(recorded(&layout), []);
        assert!(workers(layout.root()).is_empty());
    }
}
