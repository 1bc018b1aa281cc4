//! The header of a safetensors file: its length, then JSON with the position of each tensor.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt as _};

use serde::Deserialize;
use serde_json::Value;

/// Maximum size of a header: a hundred times those of the largest models.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum number of tensors.
const MAX_TENSORS: usize = 100_000;

/// Why a file is rejected.
#[derive(Debug)]
pub(super) enum Error {
    /// The host cannot read it.
    Unreadable(io::Error),
    /// It is malformed.
    Malformed(String),
}

/// Element types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Number {
    F64,
    F32,
    F16,
    Bf16,
    /// Types that are not weights, with their size in bytes.
    Other(usize),
}

impl Number {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "F64" => Self::F64,
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            "I64" | "U64" => Self::Other(8),
            "I32" | "U32" => Self::Other(4),
            "I16" | "U16" => Self::Other(2),
            "I8" | "U8" | "BOOL" => Self::Other(1),
            _ => return None,
        })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Other(bytes) => *bytes,
        }
    }
}

/// Position of a tensor in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) number: Number,
    pub(super) shape: Vec<usize>,
    pub(super) offset: u64,
    pub(super) length: usize,
}

impl Entry {
    pub(super) fn numbers(&self) -> usize {
        self.length / self.number.bytes()
    }
}

#[derive(Deserialize)]
struct Stored {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Reads and checks a header: every byte of the file belongs to exactly one tensor.
pub(super) fn read(file: &File, length: u64) -> Result<BTreeMap<String, Entry>, Error> {
    let malformed = |why: String| Error::Malformed(why);
    let mut start = [0; 8];
    if length < 8 {
        return Err(malformed(format!("has {length} bytes and is not a safetensors file")));
    }
    file.read_exact_at(&mut start, 0).map_err(Error::Unreadable)?;
    if let Some(kind) = other_kind(start) {
        return Err(malformed(format!("is {kind}; only safetensors are loaded")));
    }
    let size = u64::from_le_bytes(start);
    if size > MAX_BYTES || size > length - 8 {
        return Err(malformed(format!("claims a header of {size} bytes, which is not a safetensors header")));
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 8).map_err(Error::Unreadable)?;
    parse(&bytes, length - 8 - size, 8 + size).map_err(Error::Malformed)
}

fn parse(bytes: &[u8], room: u64, start: u64) -> Result<BTreeMap<String, Entry>, String> {
    let no_json = |error| format!("has an invalid header: {error}");
    let fields: BTreeMap<String, Value> = serde_json::from_slice(bytes).map_err(no_json)?;
    if fields.len() > MAX_TENSORS {
        return Err(format!("has {} tensors, more than {MAX_TENSORS}", fields.len()));
    }
    let mut entries = BTreeMap::new();
    let mut ranges = Vec::new();
    for (name, field) in fields.into_iter().filter(|(name, _)| name != "__metadata__") {
        let stored = Stored::deserialize(field).map_err(no_json)?;
        let [from, to] = stored.data_offsets;
        let Some(number) = Number::named(&stored.dtype) else {
            return Err(format!("has a tensor {name} of {}, which is not supported", stored.dtype));
        };
        let numbers = stored.shape.iter().try_fold(1_u64, |product, side| product.checked_mul(*side));
        let wanted = numbers.and_then(|numbers| numbers.checked_mul(number.bytes() as u64));
        if from > to || to > room {
            return Err(format!("has a tensor {name} that lies outside of it"));
        }
        if wanted != Some(to - from) {
            return Err(format!(
                "has a tensor {name} whose {} bytes are not its shape {:?}",
                to - from,
                stored.shape
            ));
        }
        ranges.push((from, to));
        let shape = stored.shape.iter().map(|side| *side as usize).collect();
        entries.insert(name, Entry { number, shape, offset: start + from, length: (to - from) as usize });
    }
    ranges.sort_unstable();
    let mut end = 0;
    for (from, to) in ranges {
        if from != end {
            return Err("has tensors that overlap or leave gaps".to_owned());
        }
        end = to;
    }
    if end != room {
        return Err(format!("has {} bytes that belong to no tensor", room - end));
    }
    Ok(entries)
}

/// The kind of a file by its first bytes, for files that are often mistaken for weights.
fn other_kind(start: [u8; 8]) -> Option<&'static str> {
    match start {
        [b'P', b'K', ..] => Some("an archive of PyTorch, which may hold programs"),
        [0x80, 2..=5, ..] => Some("a pickle, which may hold programs"),
        [b'G', b'G', b'U', b'F', ..] => Some("a GGUF file"),
        [0x1f, 0x8b, ..] => Some("compressed"),
        [b'v', b'e', b'r', b's', ..] => Some("a pointer to a file that was not fetched"),
        [b'<', ..] => Some("a web page"),
        _ => None,
    }
}
