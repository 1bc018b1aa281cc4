//! Memory and processor time of an idle Island, compared with programs that owners commonly leave running.
//!
//! All run at the same time for the same minutes: the agent in a network, connected and sending heartbeats; prometheus-node-exporter,
//! unscraped; and boinc-client, attached to no project. Memory is what is resident and private at the end; time is processor time of
//! all threads.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    report::{Better, Report},
    systems::Network,
};

/// Before measuring: programs look around when they start.
const SETTLE: Duration = Duration::from_secs(30);

/// What one program takes.
#[derive(Debug, Clone, Copy)]
struct Taken {
    resident_kib: u64,
    private_kib: u64,
    ticks: u64,
}

/// Measures for so long.
pub(crate) async fn run(
    minutes: u64,
    agent: Option<&Path>,
    node_exporter: &Path,
    boinc: &Path,
) -> Result<Report> {
    let network = match agent {
        Some(agent) => Network::start_with_agent(agent).await?,
        None => Network::start().await?,
    };
    let folder = tempfile::tempdir()?;
    let node_exporter = Peer::start(Command::new(node_exporter).arg("--web.listen-address=127.0.0.1:0"))?;
    let boinc = Peer::start(Command::new(boinc).args(["--dir"]).arg(folder.path()).args([
        "--no_gui_rpc",
        "--no_gpus",
        "--allow_multiple_clients",
    ]))?;
    let agent = child_of(network.process(), "island-agent").context("the network has no agent")?;
    let programs =
        [("island-agent", agent), ("node-exporter", node_exporter.id()), ("boinc-client", boinc.id())];
    tokio::time::sleep(SETTLE).await;
    let before = programs.map(|(_, process)| taken(process));
    tokio::time::sleep(Duration::from_mins(minutes)).await;
    let mut report = Report::new("Idle Island", format!("{minutes} minutes"));
    let mut figures = Vec::new();
    for ((name, process), before) in programs.into_iter().zip(before) {
        let (before, after) = (before?, taken(process)?);
        // A hundredth of a second each.
        let share = (after.ticks - before.ticks) as f64 / (minutes * 60) as f64;
        report.note(format!(
            "{name}: {:.1} MiB resident, {:.1} MiB of them private, {share:.3} % of a processor",
            after.resident_kib as f64 / 1024.0,
            after.private_kib as f64 / 1024.0
        ));
        figures.push((name, [after.resident_kib as f64 / 1024.0], [share]));
    }
    let Some(((_, memory, used), peers)) = figures.split_first() else { bail!("no program was measured") };
    for (name, their_memory, their_use) in peers {
        report.compare("resident memory", ("MiB", Better::Lower), memory, *name, their_memory);
        report.headline();
        // node-exporter takes no time while nothing scrapes it.
        if their_use[0] > 0.0 && used[0] > 0.0 {
            report.compare("processor time", ("%", Better::Lower), used, *name, their_use);
            report.headline();
        }
    }
    Ok(report)
}

fn taken(process: u32) -> Result<Taken> {
    let read = |file: &str| {
        let path = format!("/proc/{process}/{file}");
        fs::read_to_string(&path).with_context(|| format!("read {path}"))
    };
    let memory = read("smaps_rollup")?;
    let kib = |name: &str| -> u64 {
        let lines = memory.lines().filter_map(|line| line.strip_prefix(name));
        lines.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).sum()
    };
    Ok(Taken {
        resident_kib: kib("Rss:"),
        private_kib: kib("Private_Clean:") + kib("Private_Dirty:"),
        ticks: ticks(process)?,
    })
}

/// Processor time of all threads of a process so far, in hundredths of a second.
pub(crate) fn ticks(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // Behind the program's name in brackets; times are the 12th and 13th from there.
    let rest = stat.rsplit_once(')').context("a name")?.1;
    let times = rest.split_whitespace().skip(11).take(2);
    Ok(times.filter_map(|time| time.parse::<u64>().ok()).sum())
}

/// The program of a name among all that a process started.
pub(crate) fn child_of(parent: u32, name: &str) -> Option<u32> {
    // The kernel keeps this number of characters.
    let name = name.get(..15).unwrap_or(name);
    let mut parents = vec![parent];
    while let Some(process) = parents.pop() {
        let children: Vec<PathBuf> = fs::read_dir(format!("/proc/{process}/task"))
            .ok()?
            .flatten()
            .map(|task| task.path().join("children"))
            .collect();
        for list in children.iter().filter_map(|path| fs::read_to_string(path).ok()) {
            for child in list.split_whitespace().filter_map(|id| id.parse().ok()) {
                if fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|comm| comm.trim() == name) {
                    return Some(child);
                }
                parents.push(child);
            }
        }
    }
    None
}

/// A program beside ours.
struct Peer(Child);

impl Peer {
    fn start(command: &mut Command) -> Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(quiet.spawn().with_context(|| format!("start {}", command.get_program().display()))?))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
