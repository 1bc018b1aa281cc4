//! Hashing whole files.

use std::{fs::File, io, io::Read};

use island_protocol::digest::Digest;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

/// Hashes the rest of `file`, and calls `progress` with the number of bytes. Returns `None` if cancelled.
pub(crate) fn file(
    mut file: &File,
    progress: &(dyn Fn(u64) + Sync),
    cancel: &CancellationToken,
) -> io::Result<Option<Digest>> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(Some(Digest::from_bytes(hasher.finalize().into())));
        }
        hasher.update(&buffer[..count]);
        done += count as u64;
        progress(done);
    }
}

/// Hashes a few bytes, such as an address that is used as a file name.
pub fn bytes(bytes: &[u8]) -> Digest {
    Digest::from_bytes(Sha256::digest(bytes).into())
}
