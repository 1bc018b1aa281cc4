//! Files of weights, read blob by blob: each blob has a header with its type and the position of its data.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use island_runtimes_kit::error::{EngineError, ErrorKind, invalid_model};

use super::elements::{self, Unreadable};
use crate::program::{
    types::{Element, MAX_ELEMENTS, TensorType},
    value::Data,
};

/// The folder of the program, as it is written in paths.
const MODEL_PATH: &str = "@model_path/";
/// The first bytes of a blob's header.
const MARK: u32 = 0xDEAD_BEEF;
/// Size of a blob's header in bytes.
const HEAD_BYTES: usize = 64;
/// The only version of these files with headers.
const VERSION: u32 = 2;

/// The files of a model's weights.
#[derive(Debug, Clone)]
pub struct Weights {
    folder: String,
    files: BTreeMap<String, PathBuf>,
}

impl Weights {
    /// Weights of a program in `folder`, among these files.
    pub fn new(folder: String, files: &BTreeMap<String, PathBuf>) -> Self {
        let inside = files.iter().filter(|(name, _)| name.starts_with(&folder));
        Self { files: inside.map(|(name, path)| (name.clone(), path.clone())).collect(), folder }
    }

    /// Bytes of all files that may contain weights; 0 for those that cannot be read.
    pub fn bytes(&self) -> u64 {
        let lengths = self.files.values().filter_map(|path| fs::metadata(path).ok());
        lengths.fold(0, |sum, file| sum.saturating_add(file.len()))
    }

    /// The elements of a blob. An error if their type differs from the program's.
    pub fn read(&self, file: &str, offset: u64, ty: &TensorType) -> Result<Data, EngineError> {
        self.decoded(file, offset, ty, |bytes, count| elements::decode(bytes, ty.element, count))
    }

    /// The same of a type whose elements fit a byte.
    pub fn codes(&self, file: &str, offset: u64, ty: &TensorType) -> Result<Vec<u8>, EngineError> {
        let bits = ty.element.bits() as u32;
        self.decoded(file, offset, ty, |bytes, count| Ok(elements::codes(bytes, bits, count as usize)))
    }

    fn decoded<T>(
        &self,
        file: &str,
        offset: u64,
        ty: &TensorType,
        decode: impl FnOnce(&[u8], u64) -> Result<T, Unreadable>,
    ) -> Result<T, EngineError> {
        let path = self.path(file)?;
        let unreadable =
            |error| EngineError::new(ErrorKind::ModelUnavailable, format!("read {file}")).because(error);
        let opened = File::open(path).map_err(unreadable)?;
        let length = opened.metadata().map_err(unreadable)?.len();
        blob(&opened, length, offset, ty, decode).map_err(|wrong| match wrong {
            Wrong::Io(error) => unreadable(error),
            Wrong::Said(why) => invalid_model(format!("the blob at {offset} of {file} is broken: {why}")),
        })
    }

    fn path(&self, file: &str) -> Result<&PathBuf, EngineError> {
        let inside = file.strip_prefix(MODEL_PATH).unwrap_or(file);
        let name = format!("{}{inside}", self.folder);
        self.files.get(&name).ok_or_else(|| {
            invalid_model(format!("its weights lie in {file:?}, which is not among the Cargo's files"))
        })
    }
}

enum Wrong {
    Io(std::io::Error),
    Said(String),
}

/// A blob's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    element: Element,
    bytes: u64,
    at: u64,
}

fn head(bytes: &[u8; HEAD_BYTES]) -> Result<Head, String> {
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let long = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    if word(0) != MARK {
        return Err("it does not start with a blob's header".to_owned());
    }
    let element = Element::of_blob(word(4)).ok_or_else(|| format!("unknown element type {}", word(4)))?;
    Ok(Head { element, bytes: long(8), at: long(16) })
}

fn blob<T>(
    file: &File,
    length: u64,
    offset: u64,
    ty: &TensorType,
    decode: impl FnOnce(&[u8], u64) -> Result<T, Unreadable>,
) -> Result<T, Wrong> {
    let said = |why: String| Wrong::Said(why);
    let mut first = [0; 8];
    if length < 64 {
        return Err(said("the file is too short".to_owned()));
    }
    file.read_exact_at(&mut first, 0).map_err(Wrong::Io)?;
    let version = u32::from_le_bytes([first[4], first[5], first[6], first[7]]);
    if version != VERSION {
        return Err(said(format!("the file is of version {version}, only {VERSION} is supported")));
    }
    let mut bytes = [0; HEAD_BYTES];
    if offset.checked_add(HEAD_BYTES as u64).is_none_or(|end| end > length) {
        return Err(said("its header lies outside the file".to_owned()));
    }
    file.read_exact_at(&mut bytes, offset).map_err(Wrong::Io)?;
    let head = head(&bytes).map_err(said)?;
    if head.element != ty.element && !alike(head.element, ty.element) {
        return Err(said(format!("it has {:?}, the program declares {:?}", head.element, ty.element)));
    }
    let shape = ty.fixed().ok_or_else(|| said("the program declares no size".to_owned()))?;
    let count = count(&shape).ok_or_else(|| said(format!("{shape:?} is too large for a tensor")))?;
    let needed = (count * ty.element.bits()).div_ceil(8);
    if needed != head.bytes {
        return Err(said(format!("it has {} bytes, {shape:?} needs {needed}", head.bytes)));
    }
    if head.at.checked_add(head.bytes).is_none_or(|end| end > length) {
        return Err(said("its data lie outside the file".to_owned()));
    }
    let mut data = vec![0; head.bytes as usize];
    file.read_exact_at(&mut data, head.at).map_err(Wrong::Io)?;
    decode(&data, count).map_err(|why| said(why.to_string()))
}

/// Flags are stored as bytes.
fn alike(stored: Element, said: Element) -> bool {
    matches!((stored, said), (Element::U8 | Element::I8, Element::Bool))
}

/// The number of elements of a tensor of this shape. `None` if it is too large.
pub fn count(shape: &[u64]) -> Option<u64> {
    let count = shape.iter().try_fold(1_u64, |count, &size| count.checked_mul(size))?;
    (count <= MAX_ELEMENTS).then_some(count)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A file with one blob of three `i8`.
    fn file(change: impl FnOnce(&mut Vec<u8>)) -> (tempfile::TempDir, Weights) {
        let mut bytes = vec![0; 192];
        bytes[..8].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        bytes[64..68].copy_from_slice(&MARK.to_le_bytes());
        bytes[68] = 4;
        bytes[72] = 3;
        bytes[80] = 128;
        bytes[128..131].copy_from_slice(&[1, 255, 7]);
        change(&mut bytes);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("weight.bin");
        File::create(&path).expect("made").write_all(&bytes).expect("written");
        let files = BTreeMap::from([("m/weights/weight.bin".to_owned(), path)]);
        (folder, Weights::new("m/".to_owned(), &files))
    }

    fn read(weights: &Weights, size: u64) -> Result<Data, String> {
        let ty = TensorType { element: Element::I8, shape: vec![Some(size)] };
        weights.read("@model_path/weights/weight.bin", 64, &ty).map_err(|failure| failure.message())
    }

    #[test]
    fn blob_is_read_at_the_position_in_its_header() {
        let (_folder, weights) = file(|_| {});
        assert_eq!(read(&weights, 3), Ok(Data::Ints(vec![1, -1, 7])));
    }

    #[test]
    fn flags_of_a_bit_are_read_as_bytes() {
        let (_folder, weights) = file(|bytes| (bytes[68], bytes[72], bytes[128]) = (9, 1, 0b101));
        let ty = TensorType { element: Element::U1, shape: vec![Some(4)] };
        let codes = |weights: &Weights| weights.codes("@model_path/weights/weight.bin", 64, &ty);
        assert_eq!(codes(&weights).expect("flags"), [1, 0, 1, 0]);
        let (_folder, weights) = file(|_| {});
        assert!(codes(&weights).expect_err("other elements").message().contains("I8"));
    }

    #[test]
    fn broken_headers_are_rejected() {
        let why = |change: fn(&mut Vec<u8>)| {
            let (_folder, weights) = file(change);
            read(&weights, 3).expect_err("refused")
        };
        assert!(why(|bytes| bytes[64] = 0).contains("does not start"));
        assert!(why(|bytes| bytes[68] = 99).contains("type 99"));
        assert!(why(|bytes| bytes[68] = 1).contains("F16"));
        assert!(why(|bytes| bytes[72..80].fill(255)).contains("needs 3"));
        assert!(why(|bytes| bytes[80..88].fill(255)).contains("outside"));
        assert!(why(|bytes| bytes[4] = 1).contains("version 1"));
        assert!(why(|bytes| bytes.truncate(100)).contains("header lies outside"));
        assert!(why(|bytes| bytes.truncate(10)).contains("too short"));
        let (_folder, weights) = file(|_| {});
        assert!(read(&weights, u64::MAX).expect_err("refused").contains("too large"));
        let ty = TensorType { element: Element::I8, shape: vec![Some(3)] };
        let foreign = weights.read("@model_path/../../etc/passwd", 64, &ty).expect_err("refused");
        assert!(foreign.message().contains("not among"), "{}", foreign.message());
    }
}
