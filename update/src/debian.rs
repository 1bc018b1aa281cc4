//! A Debian machine: the agent is a package and a service.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

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

/// Runs a program to its end and returns its output.
async fn output_of(what: &str, mut command: Command) -> Result<String, MachineError> {
    let failed = |why: String| MachineError { what: what.to_owned(), why };
    let ran = command.kill_on_drop(true).output().await.map_err(|error| failed(error.to_string()))?;
    if !ran.status.success() {
        let text = String::from_utf8_lossy(&ran.stderr);
        return Err(failed(format!("{}: {}", ran.status, text.trim())));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_other_versions_is_read() {
        let text =
            r#"{"version": "0.1.0", "connected": true, "jobs": [{}], "order": {"order": "none"}, "more": 1}"#;
        let status: Status = serde_json::from_str(text).expect("a status");
        assert_eq!((status.connected, status.jobs.len()), (true, 1));
    }
}
