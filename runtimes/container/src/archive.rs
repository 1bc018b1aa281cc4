//! Image files, before a daemon reads them. A daemon unpacks as root and trusts an archive, so the file is checked first, in safe code
//! inside the sandbox, and the daemon gets a newly written archive: one image, without any tag.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`packing`] | gzip, zstd or plain, detected by the first bytes; unpacking is limited |
//! | [`headers`] | refuses names and extensions that are too long to be read into memory |
//! | [`layer`] | what a file system may contain: no sparse files, no devices, no bombs |
//! | [`manifest`] | which image an archive contains, in Docker's and OCI's formats |
//! | [`bundle`] | reads an image archive and writes it anew |

mod bundle;
mod headers;
mod layer;
mod manifest;
mod packing;

use std::{
    io::{self, Write},
    path::Path,
};

pub use bundle::Bundle;
pub use packing::Source;

/// Maximum unpacked bytes of one image: the sum of all of its layers, each as often as the image names it.
const MAX_IMAGE_BYTES: u64 = 16 << 30;

/// Why a file is not accepted as an image.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be read, or the result not be written.
    #[error("read the image file: {0}")]
    Io(#[from] io::Error),
    /// It is not a valid image.
    #[error("the image file is invalid: {0}")]
    Unsound(String),
}

impl ArchiveError {
    fn unsound(message: impl Into<String>) -> Self {
        Self::Unsound(message.into())
    }

    /// Whether the file is at fault, not this host. A stream that ends too early or does not unpack is the file's fault.
    pub fn is_of_file(&self) -> bool {
        match self {
            Self::Unsound(_) => true,
            Self::Io(error) => matches!(
                error.kind(),
                io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::Other
            ),
        }
    }
}

/// A checked image file.
#[derive(Debug)]
pub enum Archive {
    /// The files of one file system, to be imported.
    Rootfs {
        /// The file.
        source: Source,
        /// Its unpacked length in bytes.
        unpacked: u64,
    },
    /// An image with its configuration, to be loaded.
    Image(Bundle),
}

impl Archive {
    /// Checks a file. Blocks; reads all of it.
    pub fn examine(path: &Path) -> Result<Self, ArchiveError> {
        let source = Source::of(path)?;
        if is_image(&first_name(&source)?) {
            return Bundle::examine(source, MAX_IMAGE_BYTES).map(Self::Image);
        }
        let unpacked = layer::check(source.open(&|_| ())?)?;
        Ok(Self::Rootfs { source, unpacked })
    }

    /// Writes what the daemon reads: a plain tar. Blocks.
    pub fn write(&self, mut to: impl Write, read: impl Fn(u64)) -> Result<(), ArchiveError> {
        match self {
            Self::Rootfs { source, .. } => {
                io::copy(&mut source.open(&read)?, &mut to)?;
            }
            Self::Image(bundle) => bundle.write(&mut to, &read)?,
        }
        to.flush()?;
        Ok(())
    }

    /// Length of the file; `write` reports how much of it was read.
    pub fn file_bytes(&self) -> u64 {
        match self {
            Self::Rootfs { source, .. } => source.length(),
            Self::Image(bundle) => bundle.source().length(),
        }
    }

    /// Bytes that the daemon writes at most when it unpacks the image.
    pub fn unpacked_bytes(&self) -> u64 {
        match self {
            Self::Rootfs { unpacked, .. } => *unpacked,
            Self::Image(bundle) => bundle.unpacked_bytes(),
        }
    }
}

fn first_name(source: &Source) -> Result<String, ArchiveError> {
    let mut archive = tar::Archive::new(headers::Headers::new(source.open(&|_| ())?));
    for entry in archive.entries()? {
        let path = String::from_utf8_lossy(&entry?.path_bytes()).into_owned();
        let name = path.trim_start_matches("./").trim_end_matches('/');
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
    }
    Err(ArchiveError::unsound("the archive is empty"))
}

/// Determined by the first name: image archives contain only these names, and no file system begins with one.
fn is_image(first: &str) -> bool {
    let head = first.split('/').next().unwrap_or_default();
    let stem = head.trim_end_matches(".json").trim_end_matches(".gz").trim_end_matches(".tar");
    let hash = stem.strip_prefix("sha256:").unwrap_or(stem);
    let hashed = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let known = ["blobs", "oci-layout", "index.json", "manifest.json", "repositories"];
    known.contains(&head) || hashed
}

#[cfg(test)]
mod tests;
