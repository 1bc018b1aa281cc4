//! `~/.island/config.toml`: kept readable for its owner alone.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::island_home;
use crate::{failure::BadSettings, output::Output};

/// What is saved. Unknown keys are kept as they are: the file is shared with other programs, each with a table.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SavedSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nats_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow_plaintext: Option<bool>,
    #[serde(flatten)]
    others: toml::Table,
}

impl SavedSettings {
    pub(crate) fn path() -> Result<PathBuf> {
        Ok(island_home()?.join("config.toml"))
    }

    /// The content of the file; empty if it does not exist. A file with a key that others can read is made private first.
    pub(crate) fn read(output: &Output) -> Result<Self> {
        let path = Self::path()?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        let saved: Self =
            toml::from_str(&text).map_err(|source| BadSettings { path: path.clone(), source })?;
        for key in saved.unknown_keys() {
            let show = path.display();
            output.warn(&format!(
                "{show}: unknown key '{key}'; there are api_url, api_key, nats_url and allow_plaintext"
            ));
        }
        if saved.api_key.is_some() {
            close_to_others(&path, output)?;
        }
        Ok(saved)
    }

    /// Keys that are probably misspelt. Tables are settings of other programs.
    fn unknown_keys(&self) -> impl Iterator<Item = &str> {
        self.others.iter().filter(|(_, value)| !value.is_table()).map(|(key, _)| key.as_str())
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

fn close_to_others(path: &Path, output: &Output) -> Result<()> {
    let show = path.display();
    let mode = fs::metadata(path).with_context(|| format!("read {show}"))?.permissions().mode() & 0o777;
    let others = mode & 0o077;
    if others == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).with_context(|| {
        format!("others can read the key in {show} (mode {mode:o}), and that cannot be changed")
    })?;
    output.warn(&format!("others could read the key in {show} (mode {mode:o}): closed it to them"));
    Ok(())
}
