//! Disk space for partial files.
//!
//! The folder itself records the claims, so that all processes that share it see the same: a file that is being downloaded has its final
//! length from the start, which reserves the missing part, and its lock shows that it is being downloaded. A partial file that is not being
//! downloaded counts with its bytes on the disk, and may be removed like any other file that is not in use.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio_util::sync::CancellationToken;

use crate::{
    CacheConfig, GetError,
    download::Part,
    evict::{self, Candidate, Removable, Stock},
    index,
    layout::{Layout, MARK},
    lock,
};

/// Age after which a partial file is removed.
const STALE: Duration = Duration::from_hours(14 * 24);
/// Bytes of a block, the unit in which the system reports the size of a file on the disk.
const BLOCK: u64 = 512;

/// Claims disk space.
#[derive(Debug)]
pub(crate) struct Space {
    layout: Layout,
    max_bytes: u64,
    min_free_bytes: u64,
}

/// Permission to set the length of a partial file. At most one exists at a time, over all processes.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: File,
}

/// A partial file.
#[derive(Debug)]
struct Partial {
    /// Its path without extension.
    stem: PathBuf,
    length: u64,
    on_disk: u64,
    modified: SystemTime,
    is_fetched_now: bool,
}

impl Space {
    pub(crate) fn new(layout: Layout, config: &CacheConfig) -> Self {
        Self { layout, max_bytes: config.max_bytes, min_free_bytes: config.min_free_bytes }
    }

    /// Makes sure that the partial file at `part` may be `size` bytes long: within the limit and on the disk, in addition to all others.
    /// Removes other files if needed. The caller sets that length before it drops the claim.
    pub(crate) async fn claim(
        &self,
        part: &Path,
        size: u64,
        cancel: &CancellationToken,
    ) -> Result<Claim, GetError> {
        let full = || GetError::DiskFull { needed_bytes: size };
        if size > self.max_bytes {
            return Err(full());
        }
        let claim = self.lock_exclusively(cancel).await?;
        let stem = part.with_extension("");
        let (own, others): (Vec<_>, Vec<_>) =
            partials(&self.layout).into_iter().partition(|partial| partial.stem == stem);
        let written = own.iter().map(|partial| partial.on_disk).sum();
        let blobs = index::candidates(&self.layout);
        let mut stock = self.stock(&blobs, &others);
        let idle = others.into_iter().filter(|partial| !partial.is_fetched_now).map(Partial::candidate);
        let candidates = blobs.into_iter().chain(idle).collect();
        let order = evict::plan(candidates, stock.shortfall(size, written)).ok_or_else(full)?;
        for candidate in order {
            if stock.shortfall(size, written) == 0 {
                break;
            }
            // Without the mark it is not a cache's folder, whatever the settings.
            if self.layout.root().join(MARK).is_file() && self.remove(&candidate) {
                tracing::info!(what = ?candidate.what, size = candidate.size, "evicted");
                stock.held = stock.held.saturating_sub(candidate.size);
                stock.free = free_bytes(self.layout.root());
            }
        }
        if stock.shortfall(size, written) == 0 { Ok(claim) } else { Err(full()) }
    }

    /// Waits until no other task or process claims space or moves files.
    pub(crate) async fn lock_exclusively(&self, cancel: &CancellationToken) -> Result<Claim, GetError> {
        Ok(Claim { _lock: lock::wait(&self.layout.room_lock(), cancel).await? })
    }

    /// Bytes that fit without removing anything.
    pub(crate) fn spare(&self) -> u64 {
        self.stock(&index::candidates(&self.layout), &partials(&self.layout)).spare()
    }

    /// Removes partial files that cannot be resumed, or were not resumed for a long time.
    pub(crate) fn sweep(&self) {
        for stem in stems(&self.layout.partial()) {
            let path = stem.with_extension("lock");
            let Ok(Some(_lock)) = lock::attempt(&path) else { continue };
            let part = stem.with_extension("part");
            let modified = fs::metadata(&part).and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
            if age > STALE || !Part::can_be_resumed(&part) {
                Part::remove(&part);
                let _ = fs::remove_file(path);
            }
        }
    }

    fn stock(&self, blobs: &[Candidate], partials: &[Partial]) -> Stock {
        let blobs = blobs.iter().map(|blob| blob.size);
        let held = blobs.chain(partials.iter().map(Partial::held));
        Stock {
            held: held.fold(0, u64::saturating_add),
            unwritten: partials.iter().map(Partial::unwritten).fold(0, u64::saturating_add),
            free: free_bytes(self.layout.root()),
            max_bytes: self.max_bytes,
            min_free_bytes: self.min_free_bytes,
        }
    }

    fn remove(&self, candidate: &Candidate) -> bool {
        match &candidate.what {
            Removable::Blob(digest) => evict::remove_unpinned(&self.layout.blob(*digest)),
            Removable::Partial(stem) => {
                let Ok(Some(_lock)) = lock::attempt(&stem.with_extension("lock")) else { return false };
                Part::remove(&stem.with_extension("part"));
                true
            }
        }
    }
}

impl Partial {
    fn at(stem: PathBuf) -> Option<Self> {
        let metadata = fs::metadata(stem.with_extension("part")).ok()?;
        Some(Self {
            length: metadata.len(),
            on_disk: metadata.blocks().saturating_mul(BLOCK),
            modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            is_fetched_now: lock::is_held(&stem.with_extension("lock")),
            stem,
        })
    }

    fn held(&self) -> u64 {
        if self.is_fetched_now { self.length.max(self.on_disk) } else { self.on_disk }
    }

    fn unwritten(&self) -> u64 {
        self.held() - self.on_disk
    }

    fn candidate(self) -> Candidate {
        Candidate { size: self.on_disk, used: self.modified, what: Removable::Partial(self.stem) }
    }
}

fn partials(layout: &Layout) -> Vec<Partial> {
    stems(&layout.partial()).into_iter().filter_map(Partial::at).collect()
}

/// Paths in `folder` without their extensions, each once.
fn stems(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().with_extension("")).collect()
}

/// Bytes free on the disk that holds `path`.
fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
