//! Checks a model file before llama.cpp reads it. Only the header is read, so the size of the file does not matter.
//!
//! No number in the header is trusted: counts are limited, products checked, and offsets must be in the file.

mod reader;
mod tensor;
mod value;

use std::{collections::HashSet, fs::File, io, path::Path};

use reader::Reader;
pub use tensor::Tensor;
pub use value::Value;

const MAGIC: [u8; 4] = *b"GGUF";
const MAX_TENSORS: u64 = 1 << 16;
const MAX_ENTRIES: u64 = 1 << 14;
const MAX_KEY_BYTES: u64 = 1 << 12;
/// Maximum length of a tensor name in llama.cpp, without its final zero.
const MAX_NAME_BYTES: u64 = 63;
/// Key of the texts of the tokens.
const VOCABULARY: &str = "tokenizer.ggml.tokens";
const DEFAULT_ALIGNMENT: u64 = 32;

/// Why a file is not a valid GGUF file.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be read.
    #[error("read the model file")]
    Read(#[source] io::Error),
    /// It ends inside its header.
    #[error("the file ends inside {0}")]
    Truncated(&'static str),
    /// It has another format.
    #[error("the file does not begin like a GGUF file")]
    Magic,
    /// An unsupported version.
    #[error("version {0} of the format is not supported")]
    Version(u32),
    /// A count or length beyond that of any model.
    #[error("{what} of {claimed} is over the limit of {limit}")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The value in the file.
        claimed: u64,
        /// The maximum.
        limit: u64,
    },
    /// A name or token that occurs twice.
    #[error("{0:?} occurs twice")]
    Duplicate(String),
    /// Text that is not UTF-8 where names are expected.
    #[error("a name is not text")]
    Name,
    /// A value of a type that does not exist, or where it may not be.
    #[error("value type {0} is not known or not allowed here")]
    ValueType(u32),
    /// An alignment that is not a power of two.
    #[error("alignment {0} is not usable")]
    Alignment(u64),
    /// The model is in several files, which do not belong together.
    #[error("{0}")]
    Split(&'static str),
    /// An invalid description of a tensor.
    #[error("tensor {name:?}: {what}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is invalid.
        what: &'static str,
    },
}

/// The header of a valid file.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Metadata with single values; arrays are only checked.
    pub entries: Vec<(String, Value)>,
    /// All tensors.
    pub tensors: Vec<Tensor>,
}

impl Header {
    /// Checks the file at `path`.
    pub fn check(path: &Path) -> Result<Self, GgufError> {
        let file = File::open(path).map_err(GgufError::Read)?;
        let length = file.metadata().map_err(GgufError::Read)?.len();
        Self::read(io::BufReader::with_capacity(1 << 18, file), length)
    }

    /// Checks a file of `length` bytes from its beginning.
    pub fn read<R: io::BufRead + io::Seek>(source: R, length: u64) -> Result<Self, GgufError> {
        let mut reader = Reader::new(source, length);
        let magic = reader.bytes::<4>("the magic number")?;
        if magic != MAGIC {
            return Err(GgufError::Magic);
        }
        let version = reader.u32("the version")?;
        if !(2..=3).contains(&version) {
            return Err(GgufError::Version(version));
        }
        let tensors = reader.count("number of tensors", MAX_TENSORS)?;
        let entries = reader.count("number of metadata entries", MAX_ENTRIES)?;
        let entries = read_entries(&mut reader, entries)?;
        let alignment = alignment(&entries)?;
        let tensors = read_tensors(&mut reader, tensors)?;
        let data = reader.position().next_multiple_of(alignment);
        tensor::check_layout(&tensors, alignment, length.saturating_sub(data))?;
        Ok(Self { entries, tensors })
    }

    /// A metadata entry that is a single value.
    pub fn entry(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Bytes of the tensors of each layer, first to last.
    pub fn layer_bytes(&self) -> Vec<u64> {
        let mut layers: Vec<u64> = Vec::new();
        for tensor in &self.tensors {
            let Some(index) = tensor.layer().filter(|&index| index < self.tensors.len()) else { continue };
            if layers.len() <= index {
                layers.resize(index + 1, 0);
            }
            layers[index] = layers[index].saturating_add(tensor.bytes);
        }
        layers
    }

    /// Bytes of the tensors that belong to no layer.
    pub fn other_bytes(&self) -> u64 {
        self.tensors.iter().filter(|tensor| tensor.layer().is_none()).map(|tensor| tensor.bytes).sum()
    }
}

fn read_entries<R: io::BufRead + io::Seek>(
    reader: &mut Reader<R>,
    count: u64,
) -> Result<Vec<(String, Value)>, GgufError> {
    let (mut entries, mut seen) = (Vec::new(), HashSet::new());
    for _ in 0..count {
        let key = reader.text("a metadata key", MAX_KEY_BYTES)?;
        if !seen.insert(key.clone()) {
            return Err(GgufError::Duplicate(key));
        }
        if key == VOCABULARY {
            value::check_vocabulary(reader)?;
        } else if let Some(value) = value::read(reader)? {
            entries.push((key, value));
        }
    }
    Ok(entries)
}

fn alignment(entries: &[(String, Value)]) -> Result<u64, GgufError> {
    let given = entries.iter().find(|(key, _)| key == "general.alignment");
    let Some((_, value)) = given else { return Ok(DEFAULT_ALIGNMENT) };
    let &Value::Unsigned(alignment) = value else { return Err(GgufError::Alignment(0)) };
    let usable = alignment.is_power_of_two() && alignment <= 1 << 20;
    if usable { Ok(alignment) } else { Err(GgufError::Alignment(alignment)) }
}

fn read_tensors<R: io::BufRead + io::Seek>(
    reader: &mut Reader<R>,
    count: u64,
) -> Result<Vec<Tensor>, GgufError> {
    let (mut tensors, mut seen) = (Vec::new(), HashSet::new());
    for _ in 0..count {
        let name = reader.text("a tensor's name", MAX_NAME_BYTES)?;
        if !seen.insert(name.clone()) {
            return Err(GgufError::Duplicate(name));
        }
        tensors.push(tensor::read(reader, name)?);
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests;
