//! Where the address and the key come from: flag, then environment, then `~/.island/config.toml`.

use std::{
    env, fs, io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use island_coordinator_client::Client;
use serde::{Deserialize, Serialize};

use crate::args::Cli;

/// Where a coordinator listens unless told otherwise.
const DEFAULT_API_URL: &str = "http://127.0.0.1:8080";

/// `~/.island/config.toml`. Unknown keys are kept out of the way: the file is shared with other programs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SavedSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nats_url: Option<String>,
    #[serde(flatten)]
    others: toml::Table,
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) api_url: String,
    pub(crate) api_key: Option<String>,
    pub(crate) nats_url: Option<String>,
}

impl Settings {
    pub(crate) fn resolve(cli: &Cli) -> Result<Self> {
        let saved = SavedSettings::read()?;
        let from = |flag: &Option<String>, variable: &str, saved: Option<String>| {
            flag.clone().or_else(|| env::var(variable).ok().filter(|value| !value.is_empty())).or(saved)
        };
        Ok(Self {
            api_url: from(&cli.api_url, "SERVICE_API_URL", saved.api_url)
                .unwrap_or_else(|| DEFAULT_API_URL.into()),
            api_key: from(&cli.api_key, "SERVICE_API_KEY", saved.api_key),
            nats_url: from(&cli.nats_url, "SERVICE_NATS_URL", saved.nats_url),
        })
    }

    /// A client that carries the key, if there is one.
    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.api_url, self.api_key.clone())?)
    }
}

impl SavedSettings {
    pub(crate) fn path() -> Result<PathBuf> {
        Ok(island_home()?.join("config.toml"))
    }

    pub(crate) fn read() -> Result<Self> {
        let path = Self::path()?;
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).with_context(|| format!("read {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
        }
    }

    /// Replaces the file whole; only its owner may read it.
    pub(crate) fn write(&self) -> Result<()> {
        let path = Self::path()?;
        let folder = path.parent().context("the settings file has a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let temporary = path.with_extension("toml.new");
        let text = toml::to_string(self)?;
        let mut file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .with_context(|| format!("write {}", temporary.display()))?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path).with_context(|| format!("write {}", path.display()))
    }
}

/// `~/.island`.
pub(crate) fn island_home() -> Result<PathBuf> {
    match env::var_os("HOME") {
        Some(home) if !home.is_empty() => Ok(PathBuf::from(home).join(".island")),
        _ => bail!("HOME is not set: cannot tell where ~/.island lies"),
    }
}
