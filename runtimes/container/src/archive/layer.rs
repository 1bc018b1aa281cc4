//! What a file system inside an image may hold.

use std::io::Read;

use tar::{Archive, EntryType};

use super::ArchiveError;

/// Files, folders and links.
const MOST_ENTRIES: u64 = 1_000_000;
/// Bytes of all files.
const MOST_BYTES: u64 = 16 << 30;
/// Bytes of a name: longer ones only break things.
const MOST_NAME: usize = 4096;

/// Reads through a layer, and returns how many bytes it has as a tar.
pub(super) fn check(reader: impl Read) -> Result<u64, ArchiveError> {
    let mut counted = Counted { inner: reader, bytes: 0 };
    let mut archive = Archive::new(&mut counted);
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    for entry in archive.entries()? {
        let mut entry = entry?;
        entries += 1;
        bytes = bytes.saturating_add(entry.size());
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entries > MOST_ENTRIES || bytes > MOST_BYTES {
            return Err(ArchiveError::unsound("it unpacks to more than an image may hold"));
        }
        if name.len() > MOST_NAME {
            return Err(ArchiveError::unsound("a name in it is too long"));
        }
        check_kind(entry.header().entry_type(), &name)?;
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            if extension?.key_bytes().starts_with(b"GNU.sparse") {
                return Err(ArchiveError::unsound(format!("{name:?} is a sparse file")));
            }
        }
    }
    // What follows the end of an archive counts, too: it has to be read, and written again.
    std::io::copy(&mut counted, &mut std::io::sink())?;
    if entries == 0 {
        return Err(ArchiveError::unsound("it holds no file at all"));
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
        // What distributions put into /dev is covered by the container's own; anywhere else a device has no business.
        EntryType::Char | EntryType::Block if is_below_dev(name) => Ok(()),
        EntryType::Char | EntryType::Block => {
            Err(ArchiveError::unsound(format!("{name:?} is a device node outside /dev")))
        }
        // A few bytes that say they are a terabyte of zeros.
        EntryType::GNUSparse => Err(ArchiveError::unsound(format!("{name:?} is a sparse file"))),
        other => {
            Err(ArchiveError::unsound(format!("{name:?} is of a kind that images do not hold ({other:?})")))
        }
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
