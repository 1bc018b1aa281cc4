//! A supervised child: started again when it dies, stopped when asked.

use std::{
    fs::File,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use super::{launch, process::Process};

/// Deaths within [`QUICK`] of the start after which a child is given up.
const MAX_QUICK_DEATHS: u32 = 5;
const QUICK: Duration = Duration::from_secs(5);

/// What to start, by the main thread: a child ends with the thread that started it.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) log: Log,
    pub(super) pid_file: PathBuf,
    /// How long it gets to stop before it is killed.
    pub(super) grace: Duration,
}

impl Spec {
    /// Keeps the child running until `stop`, then ends it. An error means that it cannot be kept running.
    pub(super) async fn supervise(self, stop: CancellationToken) -> Result<()> {
        let mut quick_deaths = 0;
        loop {
            let started = Instant::now();
            let mut child = self.start()?;
            let died = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                status = child.wait() => Some(status),
            };
            let Some(status) = died else {
                let stopped = self.end(child).await;
                let _ = std::fs::remove_file(&self.pid_file);
                return stopped;
            };
            let status = status.with_context(|| format!("wait for {}", self.name))?;
            quick_deaths = if started.elapsed() < QUICK { quick_deaths + 1 } else { 0 };
            if quick_deaths >= MAX_QUICK_DEATHS {
                bail!("{} does not stay up ({status}); its log ends with:\n{}", self.name, self.log.tail());
            }
            tokio::time::sleep(Duration::from_millis(200 * u64::from(quick_deaths))).await;
        }
    }

    fn start(&self) -> Result<Child> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log.path)
            .with_context(|| format!("open {}", self.log.path.display()))?;
        let child = launch::command(&self.program, &self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the log file")?)
            .stderr(log)
            // Its own group, so that Ctrl-C reaches only us and the order of stopping is ours.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        // One that has ended already has nothing to be recorded by.
        if let Some(process) = pid.and_then(Process::running) {
            let recorded = process.record(&self.pid_file);
            recorded.with_context(|| format!("write {}", self.pid_file.display()))?;
        }
        Ok(child)
    }

    /// Asks the child to stop; kills it when it takes too long.
    async fn end(&self, mut child: Child) -> Result<()> {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            // It may have exited just now.
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(self.grace, child.wait()).await.is_err() {
            child.kill().await.with_context(|| format!("kill {}", self.name))?;
            bail!("{} did not stop within {} s and was killed", self.name, self.grace.as_secs());
        }
        Ok(())
    }
}

/// A child's log file, from where this run of the program began to append to it.
#[derive(Debug, Clone)]
pub(super) struct Log {
    path: PathBuf,
    start: u64,
}

impl Log {
    /// The log at `path`; what it holds now is from earlier runs.
    pub(super) fn new(path: PathBuf) -> Self {
        let start = std::fs::metadata(&path).map_or(0, |file| file.len());
        Self { path, start }
    }

    /// The last lines of this run.
    pub(super) fn tail(&self) -> String {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes.get(self.start as usize..).unwrap_or(&bytes));
        let lines: Vec<&str> = text.lines().rev().take(12).collect();
        if lines.is_empty() {
            return format!("  (nothing; earlier runs are in {})", self.path.display());
        }
        lines.into_iter().rev().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_of_this_run() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("x.log");
        std::fs::write(&path, "an earlier run\n").expect("write");
        let log = Log::new(path.clone());
        assert!(log.tail().contains("nothing") && !log.tail().contains("an earlier run"));
        std::fs::write(&path, "an earlier run\nthis run\n").expect("write");
        assert_eq!(log.tail(), "  this run");
        std::fs::write(&path, "short\n").expect("a log that was made anew");
        assert_eq!(log.tail(), "  short");
    }
}
