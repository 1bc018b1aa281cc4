//! A coordinator as a separate process, which a test can kill.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use island_coordinator_domain::config::Config;

use super::soon;

/// The program `island-coordinator`, killed on drop.
pub(crate) struct Process {
    child: Child,
    pub(crate) url: String,
}

impl Process {
    /// Starts the program and waits until it serves. Its log is `coordinator.log` in `folder`.
    pub(crate) async fn start(config: &Config, folder: &Path) -> Self {
        let log = || fs::read_to_string(folder.join("coordinator.log")).unwrap_or_default();
        let started = Self::start_failing(config, folder, "").await;
        started.unwrap_or_else(|| panic!("the coordinator did not start\n{}", log()))
    }

    /// Starts the program with these failures. Returns `None` if it ends before it serves.
    pub(crate) async fn start_failing(config: &Config, folder: &Path, failures: &str) -> Option<Self> {
        let settings = folder.join("coordinator.toml");
        fs::write(&settings, island_daemon::config::show(config)).expect("settings");
        let log = fs::File::create(folder.join("coordinator.log")).expect("log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_island-coordinator"))
            .arg("--config")
            .arg(settings)
            .env("FAILPOINTS", failures)
            // A trace of each injected panic would take a second.
            .env("RUST_BACKTRACE", "0")
            // As under systemd, for tests that listen there.
            .env("NOTIFY_SOCKET", folder.join("notify"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("island-coordinator starts");
        let output = child.stdout.take().expect("piped");
        let mut process = Self { child, url: String::new() };
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map(|_| line)
        });
        let line = soon("the coordinator's address", line).await.expect("no panic").expect("readable");
        process.url = format!("{}/api/v1", line.trim_end());
        line.starts_with("http://").then_some(process)
    }

    /// Whether the process has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("look at the coordinator").is_none()
    }

    /// Requests the process to stop in order, and does not wait.
    pub(crate) fn terminate(&self) {
        let sent = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill");
        assert!(sent.success(), "the process has ended before");
    }

    /// Ends the process with SIGKILL: none of its code runs any more.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
