//! What each address resolved to: a small file per address, whose modification time is the last use.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use fail::fail_point;
use island_protocol::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    evict::{Candidate, Removable},
    layout::Layout,
    local::Marker,
};

/// Held while this process writes a record.
static WRITING: Mutex<()> = Mutex::new(());

/// An address and what it resolved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) url: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// Path of the file, if it is not in the cache's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) elsewhere: Option<PathBuf>,
}

impl Reference {
    /// The file, if it is still the one that was verified.
    pub(crate) fn path(&self, layout: &Layout) -> Option<PathBuf> {
        let path = self.elsewhere.clone().unwrap_or_else(|| layout.blob(self.digest));
        let (digest, size) = Marker::lookup(&layout.markers(), &path)?;
        (digest == self.digest && size == self.size).then_some(path)
    }

    /// Records it as used now. Blocks.
    ///
    /// Without it, a file whose hash nobody states is downloaded again: the record is on the disk before it has its name, and the name before this
    /// returns, so that a power cut leaves no zeros in its place.
    pub(crate) fn store(&self, layout: &Layout) -> io::Result<()> {
        let target = layout.reference(&self.url);
        let temporary = target.with_extension(format!("{}.tmp", std::process::id()));
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        // Writes of this process share the name of the temporary file.
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = write_synced(&temporary, &text).and_then(|()| fs::rename(&temporary, target));
        if let Err(error) = stored {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        File::open(layout.refs())?.sync_all()
    }
}

/// Writes a file to the disk.
fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    fail_point!("cache.sync_record", |_| Err(rustix::io::Errno::NOSPC.into()));
    file.sync_all()
}

/// Looks up an address and records the use.
pub(crate) fn find(layout: &Layout, url: &str) -> Option<Reference> {
    let reference = read(&layout.reference(url))?;
    (reference.url == url).then_some(reference)
}

/// Records the use of an address.
pub(crate) fn touch(layout: &Layout, url: &str) {
    if let Ok(file) = File::options().append(true).open(layout.reference(url)) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// All entries.
pub(crate) fn all(layout: &Layout) -> Vec<Reference> {
    list(&layout.refs()).into_iter().filter_map(|path| read(&path)).collect()
}

/// The cache's own files, with the last use of any of their addresses.
pub(crate) fn candidates(layout: &Layout) -> Vec<Candidate> {
    let mut used: BTreeMap<Digest, SystemTime> = BTreeMap::new();
    for path in list(&layout.refs()) {
        let Some(reference) = read(&path) else { continue };
        let at = modified(&path);
        let last = used.entry(reference.digest).or_insert(at);
        *last = (*last).max(at);
    }
    let candidate = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let digest: Digest = format!("sha256:{name}").parse().ok()?;
        let size = fs::metadata(&path).ok()?.len();
        let used = used.get(&digest).copied().unwrap_or_else(|| modified(&path));
        Some(Candidate { what: Removable::Blob(digest), size, used })
    };
    list(&layout.blobs()).into_iter().filter_map(candidate).collect()
}

fn read(path: &Path) -> Option<Reference> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn list(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}
