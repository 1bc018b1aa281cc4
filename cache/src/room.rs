//! Room for a file that is about to come.

use std::{fs, path::Path, time::Duration};

use crate::{
    CacheConfig, GetError, evict, index,
    layout::{Layout, MARK},
};

/// Age after which a file on its way is given up.
const STALE: Duration = Duration::from_hours(14 * 24);

/// Sees that `bytes` more fit: under the cap, and on the disk.
pub(crate) fn make(layout: &Layout, config: &CacheConfig, bytes: u64) -> Result<(), GetError> {
    let full = || GetError::DiskFull { needed_bytes: bytes };
    if bytes > config.max_bytes {
        return Err(full());
    }
    let (files, mut excess) = evict::plan(index::candidates(layout), bytes, config.max_bytes);
    let needed = bytes.saturating_add(config.min_free_bytes);
    let disk_has_room = || free_bytes(layout.root()).is_none_or(|free| free >= needed);
    for file in files {
        if excess == 0 && disk_has_room() {
            return Ok(());
        }
        // Somebody else's folder, whatever the settings say.
        if !layout.root().join(MARK).is_file() {
            break;
        }
        if evict::remove_unpinned(&layout.blob(file.digest)) {
            tracing::info!(digest = %file.digest, size = file.size, "evicted");
            excess = excess.saturating_sub(file.size);
        }
    }
    if excess == 0 && disk_has_room() { Ok(()) } else { Err(full()) }
}

/// Removes what nobody went on fetching for a long time.
pub(crate) fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > STALE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Bytes free on the disk that holds `path`.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
