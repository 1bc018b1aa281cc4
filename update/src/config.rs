//! Settings. Without a manifest's address and a key nothing is ever updated.

use std::{path::PathBuf, time::Duration};

use island_daemon::{config::ConfigError, telemetry::LogFormat};
use serde::{Deserialize, Serialize};

use crate::{apply::Patience, judge::Trust, manifest::PublicKey};

/// Prefix of environment variables: `ISLAND_UPDATE_CHANNEL`.
pub const ENV_PREFIX: &str = "ISLAND_UPDATE_";

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the manifest of releases.
    pub manifest: String,
    /// Public keys of whoever makes releases, base64.
    pub keys: Vec<PublicKey>,
    /// How many of them must have signed one.
    pub threshold: usize,
    /// Which releases.
    pub channel: String,
    /// Where packages and what is remembered lie.
    pub state_dir: PathBuf,
    /// Settings of the agent that is kept up to date.
    pub agent_config: PathBuf,
    /// Minutes that running jobs get to end; after them the update waits for the next time.
    pub drain_min: u64,
    /// Seconds that a new version gets to come up.
    pub start_s: u64,
    /// How logs look.
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
    /// Whether there is anybody to ask and to trust.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let require = |holds: bool, rule: &str| {
            if holds { Ok(()) } else { Err(ConfigError::Invalid(rule.to_owned())) }
        };
        require(!self.manifest.is_empty(), "manifest must name where releases are listed")?;
        require(!self.keys.is_empty(), "keys must name whom you trust to make releases")?;
        let enough = (1..=self.keys.len()).contains(&self.threshold);
        require(enough, "threshold must be at least 1 and at most the number of keys")
    }

    /// Whom the owner trusts.
    pub fn trust(&self) -> Trust {
        Trust {
            keys: self.keys.iter().copied().collect(),
            threshold: self.threshold,
            product: "island-agent".to_owned(),
            channel: self.channel.clone(),
            target: format!("{}-deb", std::env::consts::ARCH),
        }
    }

    /// How long to wait.
    pub fn patience(&self) -> Patience {
        Patience { drain: Duration::from_secs(self.drain_min * 60), start: Duration::from_secs(self.start_s) }
    }
}
