//! A Debian machine: the agent is a package and a service.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use semver::Version;
use serde::Deserialize;
use tokio::process::Command;

use crate::machine::{Health, Machine, MachineError};

const PACKAGE: &str = "island-agent";

/// A Debian machine.
#[derive(Debug, Clone)]
pub struct Debian {
    /// Settings file of the agent.
    pub agent_config: PathBuf,
}

/// The needed part of the agent's status.
#[derive(Debug, Deserialize)]
struct Status {
    version: Version,
    connected: bool,
    jobs: Vec<serde_json::Value>,
}

impl Debian {
    fn agent(&self, command: &[&str]) -> Command {
        let mut agent = Command::new("island-agent");
        agent.arg("--config").arg(&self.agent_config).args(command);
        agent
    }
}

impl Machine for Debian {
    async fn installed(&self) -> Result<Version, MachineError> {
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat=${Version}", PACKAGE]);
        let what = format!("query the installed version of {PACKAGE}");
        let text = output_of(&what, query).await?;
        text.trim().parse().map_err(|error| MachineError { what, why: format!("{:?}: {error}", text.trim()) })
    }

    async fn health(&self) -> Option<Health> {
        let text =
            output_of("query the status of the agent", self.agent(&["status", "--json"])).await.ok()?;
        let status: Status = serde_json::from_str(&text).ok()?;
        Some(Health { version: status.version, connected: status.connected, jobs: status.jobs.len() })
    }

    async fn hold(&self, time: Duration) -> Result<(), MachineError> {
        let seconds = time.as_secs().to_string();
        output_of("hold the agent", self.agent(&["hold", &seconds])).await.map(|_| ())
    }

    async fn keep(&self, folder: &Path) -> Result<PathBuf, MachineError> {
        let version = self.installed().await?;
        let mut repack = Command::new("dpkg-repack");
        repack.arg(PACKAGE).current_dir(folder);
        let what = "repack the installed package";
        output_of(what, repack).await?;
        let begins = format!("{PACKAGE}_{version}_");
        let entries = std::fs::read_dir(folder)
            .map_err(|error| MachineError { what: what.to_owned(), why: error.to_string() })?;
        let mut paths = entries.flatten().map(|entry| entry.path());
        let is_it = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&begins))
        };
        paths.find(is_it).ok_or_else(|| MachineError {
            what: what.to_owned(),
            why: format!("dpkg-repack created no {begins}….deb in {}", folder.display()),
        })
    }

    async fn install(&self, package: &Path) -> Result<(), MachineError> {
        let mut dpkg = Command::new("dpkg");
        // The owner's settings are kept, and no question is shown.
        dpkg.args(["--force-confold", "--force-confdef", "--install"]).arg(package);
        dpkg.env("DEBIAN_FRONTEND", "noninteractive");
        output_of(&format!("install {}", package.display()), dpkg).await.map(|_| ())
    }
}

/// Runs a program to its end and returns its output. If it is given up, everything that it started is ended with it: the scripts of a package, which
/// dpkg runs, would go on beside the next installation.
async fn output_of(what: &str, mut command: Command) -> Result<String, MachineError> {
    let failed = |why: String| MachineError { what: what.to_owned(), why };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.process_group(0).kill_on_drop(true).spawn();
    let child = child.map_err(|error| failed(error.to_string()))?;
    let leader = child.id();
    let end = pin!(child.wait_with_output());
    // Dropped before the child, as long as the number of the group is certainly its own.
    let mut group = Group::led_by(leader);
    let ran = end.await.map_err(|error| failed(error.to_string()))?;
    group.release();
    if !ran.status.success() {
        let text = String::from_utf8_lossy(&ran.stderr);
        return Err(failed(format!("{}: {}", ran.status, text.trim())));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// The processes of a program that runs. They are ended when it is dropped.
struct Group(Option<Pid>);

impl Group {
    fn led_by(process: Option<u32>) -> Self {
        Self(process.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// The program has ended: what it left running is to stay, and its number may soon be another's.
    fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0
            && let Err(error) = kill_process_group(leader, Signal::KILL)
        {
            tracing::warn!(%error, "processes of a program that was given up still run");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{BufRead as _, BufReader, Read as _},
    };

    use tokio::task::spawn_blocking;

    use super::*;

    /// A shell that waits for another one, as dpkg does for a script, or leaves it running. The other one writes a line when it begins and, a second
    /// later, another one; the function returned waits for the first, and returns the rest.
    fn with_script(folder: &Path, is_awaited: bool) -> (Command, impl FnOnce() -> BufReader<File> + use<>) {
        let pipe = folder.join("lines");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success(), "{made}");
        let script = "sh -c 'echo begun; sleep 1; echo ended' > \"$0\" 2>&1";
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{script} {}", if is_awaited { "; true" } else { "&" })).arg(&pipe);
        let begun = move || {
            let mut lines = BufReader::new(File::open(pipe).expect("a pipe"));
            let mut line = String::new();
            lines.read_line(&mut line).expect("read");
            assert_eq!(line, "begun\n");
            lines
        };
        (shell, begun)
    }

    /// The rest of the text, once nobody can write more.
    async fn rest(mut lines: BufReader<File>) -> String {
        let read = spawn_blocking(move || {
            let mut rest = String::new();
            lines.read_to_string(&mut rest).map(|_| rest)
        });
        read.await.expect("no panic").expect("read")
    }

    #[tokio::test]
    async fn what_a_program_started_ends_when_it_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let (shell, begun) = with_script(folder.path(), true);
        let lines = tokio::select! {
            ran = output_of("run a script", shell) => panic!("it ended: {ran:?}"),
            lines = spawn_blocking(begun) => lines.expect("it began"),
        };
        assert_eq!(rest(lines).await, "", "the script went on");
    }

    #[tokio::test]
    async fn what_a_program_left_running_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (shell, begun) = with_script(folder.path(), false);
        let (ran, lines) = tokio::join!(output_of("run a script", shell), spawn_blocking(begun));
        assert_eq!(ran.expect("it ended"), "");
        assert_eq!(rest(lines.expect("it began")).await, "ended\n");
    }

    #[test]
    fn the_status_of_other_versions_is_read() {
        let text =
            r#"{"version": "0.1.0", "connected": true, "jobs": [{}], "order": {"order": "none"}, "more": 1}"#;
        let status: Status = serde_json::from_str(text).expect("a status");
        assert_eq!((status.connected, status.jobs.len()), (true, 1));
    }
}
