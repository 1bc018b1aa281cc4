//! What a file system in an image may contain.

use std::io::Read;

use tar::{Archive, EntryType};

use super::{ArchiveError, headers::Headers};

/// Maximum number of files, folders and links.
const MAX_ENTRIES: u64 = 1_000_000;
/// Maximum bytes of all files.
const MAX_BYTES: u64 = 16 << 30;
/// Maximum bytes of a name: longer ones fail later.
const MAX_NAME: usize = 4096;

/// Checks a layer, and returns its size as a tar in bytes.
pub(super) fn check(reader: impl Read) -> Result<u64, ArchiveError> {
    let mut counted = Counted { inner: Headers::new(reader), bytes: 0 };
    let mut archive = Archive::new(&mut counted);
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    for entry in archive.entries()? {
        let mut entry = entry?;
        entries += 1;
        bytes = bytes.saturating_add(entry.size());
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entries > MAX_ENTRIES || bytes > MAX_BYTES {
            return Err(ArchiveError::unsound("it unpacks to more than an image may hold"));
        }
        if name.len() > MAX_NAME {
            return Err(ArchiveError::unsound("a name in it is too long"));
        }
        check_kind(entry.header().entry_type(), &name)?;
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            if extension?.key_bytes().starts_with(b"GNU.sparse") {
                return Err(ArchiveError::unsound(format!("{name:?} is a sparse file")));
            }
        }
    }
    // Bytes after the end of an archive count, too: they are read and written again.
    std::io::copy(&mut counted, &mut std::io::sink())?;
    if entries == 0 {
        return Err(ArchiveError::unsound("it contains no file"));
    }
    Ok(counted.bytes)
}

fn check_kind(kind: EntryType, name: &str) -> Result<(), ArchiveError> {
    match kind {
        EntryType::Regular
        | EntryType::Continuous
        | EntryType::Link
        | EntryType::Symlink
        | EntryType::Directory
        | EntryType::Fifo
        | EntryType::XGlobalHeader => Ok(()),
        // The container has its own /dev instead of that of a distribution; a device anywhere else is suspicious.
        EntryType::Char | EntryType::Block if is_below_dev(name) => Ok(()),
        EntryType::Char | EntryType::Block => {
            Err(ArchiveError::unsound(format!("{name:?} is a device node outside /dev")))
        }
        // A few bytes that describe a terabyte of zeros.
        EntryType::GNUSparse => Err(ArchiveError::unsound(format!("{name:?} is a sparse file"))),
        other => Err(ArchiveError::unsound(format!(
            "{name:?} is of a type that images cannot contain ({other:?})"
        ))),
    }
}

fn is_below_dev(name: &str) -> bool {
    let name = name.trim_start_matches("./").trim_start_matches('/');
    name.starts_with("dev/") && !name.split('/').any(|part| part == "..")
}

struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(into)?;
        self.bytes += read as u64;
        Ok(read)
    }
}
