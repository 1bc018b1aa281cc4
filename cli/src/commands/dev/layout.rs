//! Layout of the data directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use island_coordinator_client::protocol::host::SandboxLevel;
use serde::{Deserialize, Serialize};

/// The data directory, locked for as long as this lives.
#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    _lock: fs::File,
}

/// `dev.json`: how to reach the network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct DevInfo {
    pub(super) api_url: String,
    pub(super) api_key: String,
    pub(super) nats_url: String,
    /// The first Island; null without Islands.
    pub(super) host_id: Option<String>,
    /// Every Island.
    pub(super) host_ids: Vec<String>,
    /// Lowest sandbox level of the Islands; null without Islands.
    pub(super) sandbox: Option<SandboxLevel>,
}

/// `accounts.json`: created at the first start, reused by the next.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Accounts {
    /// The consumer, who is operator too.
    pub(super) consumer_key: String,
    /// The Islands' owner.
    pub(super) owner_key: String,
}

impl Layout {
    /// Creates the directory if needed; rejects one that another `island dev` is using.
    pub(super) fn open(root: &Path) -> Result<Self> {
        for folder in ["logs", "pids"] {
            let path = root.join(folder);
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
        let root = root.canonicalize().with_context(|| format!("find {}", root.display()))?;
        let lock = fs::File::create(root.join("lock")).context("make the lock file")?;
        if lock.try_lock().is_err() {
            bail!("another `island dev` uses {}: stop it, or choose another --data-dir", root.display());
        }
        Ok(Self { root, _lock: lock })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn fabric(&self) -> PathBuf {
        self.root.join("fabric")
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    pub(super) fn pid(&self, name: &str) -> PathBuf {
        self.root.join("pids").join(format!("{name}.pid"))
    }

    /// Names of the parts that have a record of their process.
    pub(super) fn recorded(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("pids")).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let paths = paths.filter(|path| path.extension() == Some("pid".as_ref()));
        paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
    }

    pub(super) fn island(&self, index: u32) -> PathBuf {
        self.root.join(format!("island-{index}"))
    }

    pub(super) fn accounts(&self) -> Result<Option<Accounts>> {
        let path = self.root.join("accounts.json");
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(Some(serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))?))
    }

    pub(super) fn write_accounts(&self, accounts: &Accounts) -> Result<()> {
        self.write("accounts.json", &serde_json::to_string_pretty(accounts)?)
    }

    pub(super) fn write_info(&self, info: &DevInfo) -> Result<()> {
        self.write("dev.json", &serde_json::to_string_pretty(info)?)
    }

    pub(super) fn remove_info(&self) {
        // A program that waits for the file must not find the one of the last run.
        let _ = fs::remove_file(self.root.join("dev.json"));
    }

    /// Writes a file that only its owner may read, whole or not at all.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.root.join(name);
        let write = || -> Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.root)?;
            std::io::Write::write_all(&mut file, text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        write().with_context(|| format!("write {}", path.display()))
    }
}
