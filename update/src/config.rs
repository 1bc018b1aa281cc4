//! Settings. Without the address of a manifest and a key, nothing is updated.

use std::{path::PathBuf, time::Duration};

use island_daemon::{config::ConfigError, telemetry::LogFormat};
use serde::{Deserialize, Serialize};

use crate::{apply::Timeouts, judge::Trust, manifest::PublicKey};

/// Prefix of environment variables: `ISLAND_UPDATE_CHANNEL`.
pub const ENV_PREFIX: &str = "ISLAND_UPDATE_";

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the manifest of releases.
    pub manifest: String,
    /// Public keys of those who make releases, base64.
    pub keys: Vec<PublicKey>,
    /// How many of them must have signed a release.
    pub threshold: usize,
    /// The channel of releases.
    pub channel: String,
    /// Folder for packages and the record.
    pub state_dir: PathBuf,
    /// Settings file of the agent that is updated.
    pub agent_config: PathBuf,
    /// Minutes that running jobs have to end; after that the next run tries again.
    pub drain_min: u64,
    /// Seconds that a new version has to start.
    pub start_s: u64,
    /// Format of the log.
    pub log: LogFormat,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            manifest: String::new(),
            keys: Vec::new(),
            threshold: 1,
            channel: "stable".to_owned(),
            state_dir: "/var/lib/island-update".into(),
            agent_config: "/etc/island/agent.toml".into(),
            drain_min: 30,
            start_s: 120,
            log: LogFormat::Text,
        }
    }
}

impl Config {
    /// Whether a manifest and keys are set.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let require = |holds: bool, rule: &str| {
            if holds { Ok(()) } else { Err(ConfigError::Invalid(rule.to_owned())) }
        };
        require(!self.manifest.is_empty(), "manifest must be the address of the list of releases")?;
        require(
            !self.keys.is_empty(),
            "keys must contain the public keys of those whose releases you trust",
        )?;
        let enough = (1..=self.keys.len()).contains(&self.threshold);
        require(enough, "threshold must be at least 1 and at most the number of keys")
    }

    /// What the owner trusts.
    pub fn trust(&self) -> Trust {
        Trust {
            keys: self.keys.iter().copied().collect(),
            threshold: self.threshold,
            product: "island-agent".to_owned(),
            channel: self.channel.clone(),
            target: format!("{}-deb", std::env::consts::ARCH),
        }
    }

    /// The time limits.
    pub fn patience(&self) -> Timeouts {
        Timeouts { drain: Duration::from_secs(self.drain_min * 60), start: Duration::from_secs(self.start_s) }
    }
}
