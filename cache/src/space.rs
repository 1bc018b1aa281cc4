//! The ledger of disk space: of the cache's files, of the folders beside it, and of what is reserved for them.
//!
//! The folder itself records the claims, so that all processes that share it see the same: a file that is being downloaded has its final
//! length from the start, which reserves the missing part, and its lock shows that it is being downloaded. A partial file that is not being
//! downloaded counts with its bytes on the disk, and may be removed like any other file that is not in use. Reservations for the folders
//! beside the cache are of one process.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use tokio_util::sync::CancellationToken;

use crate::{
    Beside, CacheConfig, GetError,
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
/// Digits of a digest in the name of a file.
const DIGEST_DIGITS: usize = 64;

/// Time for which the counted bytes are used again for reservations. Counting reads hundreds of files, and jobs are many and short.
const COUNT_KEPT: Duration = Duration::from_secs(2);

/// Claims disk space.
#[derive(Debug)]
pub(crate) struct Space {
    layout: Layout,
    beside: Vec<Beside>,
    max_bytes: u64,
    min_free_bytes: u64,
    reserved: Arc<AtomicU64>,
    /// The last count, without reservations.
    counted: Mutex<Option<(Instant, Stock)>>,
    /// The bytes that were available at the last count, without reservations.
    found_available: Mutex<Option<(Instant, u64)>>,
}

/// Disk space that is kept free until this is dropped.
#[derive(Debug)]
#[must_use = "dropped, the space is free for others"]
pub struct Reservation {
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
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
        Self {
            layout,
            beside: config.beside.clone(),
            max_bytes: config.max_bytes,
            min_free_bytes: config.min_free_bytes,
            reserved: Arc::default(),
            counted: Mutex::default(),
            found_available: Mutex::default(),
        }
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
        let has_room = self.make_room(size, written, others);
        // It does not include what is claimed now.
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if has_room { Ok(claim) } else { Err(full()) }
    }

    /// Keeps `bytes` free, within the limit and on the disk, for files beside the cache. Removes other files if needed.
    pub(crate) async fn reserve(
        &self,
        bytes: u64,
        cancel: &CancellationToken,
    ) -> Result<Reservation, GetError> {
        let full = || GetError::DiskFull { needed_bytes: bytes };
        if bytes > self.max_bytes {
            return Err(full());
        }
        // Counted from now on, so that two at once do not get the same bytes.
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        let reservation = Reservation { bytes, all: Arc::clone(&self.reserved) };
        let counted = *self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |(at, stock): (Instant, Stock)| {
            at.elapsed() < COUNT_KEPT && self.with_reserved(stock).shortfall(0, 0) == 0
        };
        if counted.is_some_and(is_known) {
            return Ok(reservation);
        }
        let _claim = self.lock_exclusively(cancel).await?;
        if self.make_room(0, 0, partials(&self.layout)) { Ok(reservation) } else { Err(full()) }
    }

    /// Removes files until `size` bytes fit beside the other partial files, of which `written` are on the disk already. Removes nothing if that
    /// would not suffice.
    fn make_room(&self, size: u64, written: u64, others: Vec<Partial>) -> bool {
        let blobs = index::candidates(&self.layout);
        let mut stock = self.stock(&blobs, &others);
        let shortfall = stock.shortfall(size, written);
        if shortfall == 0 {
            return true;
        }
        let Some(order) = evict::plan(self.removable(blobs, others), shortfall) else { return false };
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
        stock.shortfall(size, written) == 0
    }

    /// Waits until no other task or process claims space or moves files.
    pub(crate) async fn lock_exclusively(&self, cancel: &CancellationToken) -> Result<Claim, GetError> {
        Ok(Claim { _lock: lock::wait(&self.layout.room_lock(), cancel).await? })
    }

    /// Bytes that fit without removing anything.
    pub(crate) fn spare(&self) -> u64 {
        self.stock(&index::candidates(&self.layout), &partials(&self.layout)).spare()
    }

    /// Bytes that fit if everything is removed that may be; may be a few seconds old.
    pub(crate) fn available(&self) -> u64 {
        let mut found = self.found_available.lock().unwrap_or_else(PoisonError::into_inner);
        let known = found.filter(|(at, _)| at.elapsed() < COUNT_KEPT);
        let (_, bytes) = *found.insert(known.unwrap_or_else(|| (Instant::now(), self.count_available())));
        bytes.saturating_sub(self.reserved.load(Ordering::Relaxed))
    }

    fn count_available(&self) -> u64 {
        let (blobs, partials) = (index::candidates(&self.layout), partials(&self.layout));
        let stock = self.stock(&blobs, &partials);
        let removable = self.removable(blobs, partials).into_iter().map(|candidate| candidate.size);
        let removable = removable.fold(0, u64::saturating_add);
        stock.spare_without(removable).saturating_add(self.reserved.load(Ordering::Relaxed))
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
        let beside = self.beside.iter().map(|beside| bytes_in(&beside.dir));
        let held = blobs.chain(partials.iter().map(Partial::held)).chain(beside);
        let stock = Stock {
            held: held.fold(0, u64::saturating_add),
            unwritten: partials.iter().map(Partial::unwritten).fold(0, u64::saturating_add),
            free: free_bytes(self.layout.root()),
            max_bytes: self.max_bytes,
            min_free_bytes: self.min_free_bytes,
        };
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), stock));
        self.with_reserved(stock)
    }

    fn with_reserved(&self, stock: Stock) -> Stock {
        let reserved = self.reserved.load(Ordering::Relaxed);
        Stock {
            held: stock.held.saturating_add(reserved),
            unwritten: stock.unwritten.saturating_add(reserved),
            ..stock
        }
    }

    /// What may be removed now: no verified file that is pinned, and no partial file that is being downloaded.
    fn removable(&self, blobs: Vec<Candidate>, partials: Vec<Partial>) -> Vec<Candidate> {
        let blobs = blobs.into_iter().filter(|blob| !self.is_pinned(blob));
        let idle = partials.into_iter().filter(|partial| !partial.is_fetched_now).map(Partial::candidate);
        blobs.chain(idle).chain(self.evictable()).collect()
    }

    fn is_pinned(&self, candidate: &Candidate) -> bool {
        match &candidate.what {
            Removable::Blob(digest) => evict::is_pinned(&self.layout.blob(*digest)),
            Removable::Partial(_) | Removable::Beside(_) => false,
        }
    }

    /// Files of the folders beside the cache that may be removed.
    fn evictable(&self) -> impl Iterator<Item = Candidate> + '_ {
        let folders = self.beside.iter().filter(|beside| beside.is_evictable);
        let entries = folders.flat_map(|beside| fs::read_dir(&beside.dir).into_iter().flatten().flatten());
        entries.filter_map(|entry| {
            let (path, about) = (entry.path(), entry.metadata().ok()?);
            // What is not finished has another name. A file with another name elsewhere occupies the disk also without this one.
            let is_finished = about.is_file() && about.nlink() == 1 && begins_with_digest(&entry.file_name());
            let (size, used) = (about.blocks().saturating_mul(BLOCK), about.modified().ok()?);
            is_finished.then_some(Candidate { what: Removable::Beside(path), size, used })
        })
    }

    fn remove(&self, candidate: &Candidate) -> bool {
        match &candidate.what {
            Removable::Blob(digest) => evict::remove_unpinned(&self.layout.blob(*digest)),
            Removable::Partial(stem) => {
                let Ok(Some(_lock)) = lock::attempt(&stem.with_extension("lock")) else { return false };
                Part::remove(&stem.with_extension("part"));
                true
            }
            Removable::Beside(path) => fs::remove_file(path).is_ok(),
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

/// Whether a name begins with the 64 digits of a digest.
fn begins_with_digest(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() >= DIGEST_DIGITS && name[..DIGEST_DIGITS].iter().all(u8::is_ascii_hexdigit)
}

/// Bytes of the files in a folder, and of those in folders in it. A file that has another name elsewhere is not counted: it takes no space.
///
/// One folder after the other: for the folders in folders that a worker makes which was taken over, neither a stack nor the open files suffice.
fn bytes_in(folder: &Path) -> u64 {
    let (mut bytes, mut folders) = (0_u64, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() => folders.push(entry.path()),
                Ok(about) if about.is_file() && about.nlink() == 1 => {
                    bytes = bytes.saturating_add(about.blocks().saturating_mul(BLOCK));
                }
                // It is gone already, or is not a file.
                _ => {}
            }
        }
    }
    bytes
}

/// Bytes free on the disk that holds `path`.
fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn folders_in_folders_are_counted_without_recursion() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut deepest = dir.path().to_owned();
        // As many as a path can name.
        while deepest.as_os_str().len() < 4_000 {
            deepest.push("f");
            fs::create_dir(&deepest).expect("a folder");
        }
        let file = deepest.join("file");
        fs::write(&file, vec![1; 1 << 20]).expect("written");
        let (top, small) = (dir.path().to_owned(), thread::Builder::new().stack_size(128 << 10));
        let counted = small.spawn(move || bytes_in(&top)).expect("a thread").join();
        assert!(counted.expect("it ends") > 0);
        fs::remove_file(file).expect("removed");
        while deepest != dir.path() {
            fs::remove_dir(&deepest).expect("removed");
            deepest.pop();
        }
    }
}
