//! How a file is packed, and unpacking it within limits.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::ArchiveError;

/// Maximum unpacked bytes of one file.
const MAX_BYTES: u64 = 16 << 30;
/// Maximum unpacked bytes per packed byte, beyond [`FREE_BYTES`].
const MAX_RATIO: u64 = 100;
/// Unpacked bytes that are allowed whatever the ratio.
const FREE_BYTES: u64 = 64 << 20;
const BUFFER: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    fn of(start: &[u8]) -> Result<Self, ArchiveError> {
        match start {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => {
                Err(ArchiveError::unsound("it is packed with xz; pack it with gzip or zstd, or not at all"))
            }
            [b'B', b'Z', b'h', ..] => Err(ArchiveError::unsound(
                "it is packed with bzip2; pack it with gzip or zstd, or not at all",
            )),
            _ => Ok(Self::Plain),
        }
    }
}

/// A file and how it is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    path: PathBuf,
    packing: Packing,
    length: u64,
}

impl Source {
    /// Detects it by the first bytes.
    pub fn of(path: &Path) -> Result<Self, ArchiveError> {
        let mut file = File::open(path)?;
        let mut start = [0; 8];
        let read = file.read(&mut start)?;
        Ok(Self {
            path: path.to_owned(),
            packing: Packing::of(&start[..read])?,
            length: file.metadata()?.len(),
        })
    }

    /// Bytes of the file itself.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its unpacked bytes. `read` is called with the number of packed bytes that were read.
    pub fn open<'a>(&self, read: &'a dyn Fn(u64)) -> Result<Unpacked<'a>, ArchiveError> {
        let file = Watched { inner: File::open(&self.path)?, done: 0, read };
        Unpacked::new(BufReader::with_capacity(BUFFER, file), self.packing, self.length)
    }
}

/// The unpacked bytes of a layer of `length` bytes inside an archive, packed in any format.
pub(super) fn unpack<'a>(mut packed: impl Read + 'a, length: u64) -> Result<Unpacked<'a>, ArchiveError> {
    let mut start = Vec::with_capacity(8);
    packed.by_ref().take(8).read_to_end(&mut start)?;
    let packing = Packing::of(&start)?;
    let whole = io::Cursor::new(start).chain(packed);
    Unpacked::new(BufReader::with_capacity(BUFFER, whole), packing, length)
}

/// Unpacked bytes, within the limits.
pub struct Unpacked<'a> {
    bytes: Box<dyn Read + 'a>,
    left: u64,
}

impl std::fmt::Debug for Unpacked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacked").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<'a> Unpacked<'a> {
    fn new(packed: impl BufRead + 'a, packing: Packing, length: u64) -> Result<Self, ArchiveError> {
        let bytes: Box<dyn Read + 'a> = match packing {
            Packing::Plain => Box::new(packed),
            Packing::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Packing::Zstd => Box::new(Frames { frame: Some(start_frame(packed)?) }),
        };
        let most = length.saturating_mul(MAX_RATIO).clamp(FREE_BYTES, MAX_BYTES);
        Ok(Self { bytes, left: most })
    }
}

impl Read for Unpacked<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(into)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "it unpacks to far more than an image of its size")
        })?;
        Ok(read)
    }
}

/// All frames of a zstd file: parallel packers write many.
struct Frames<R: Read> {
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let mut rest = self.frame.take().map(StreamingDecoder::into_inner).into_iter();
            let Some(mut rest) = rest.next() else { break };
            if !rest.fill_buf()?.is_empty() {
                self.frame = Some(start_frame(rest)?);
            }
        }
        Ok(0)
    }
}

fn start_frame<R: Read>(packed: R) -> io::Result<StreamingDecoder<R, FrameDecoder>> {
    StreamingDecoder::new(packed)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

struct Watched<'a> {
    inner: File,
    done: u64,
    read: &'a dyn Fn(u64),
}

impl Read for Watched<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.done += read as u64;
        (self.read)(self.done);
        Ok(read)
    }
}
