//! Metadata values.

use std::{
    collections::HashSet,
    io::{BufRead, Seek},
};

use super::{GgufError, reader::Reader};

const MAX_TEXT_BYTES: u64 = 8 << 20;
const MAX_ARRAY: u64 = 1 << 26;
/// Maximum entries of an array of texts: vocabularies and merges are the largest.
const MAX_TEXTS: u64 = 1 << 22;
/// Maximum bytes of a token. llama.cpp makes trees of the bytes of tokens by recursion: a long one overflows the stack.
const MAX_TOKEN_BYTES: u64 = 4 << 10;
/// Maximum bytes of all texts of a vocabulary, which are in memory while they are compared.
const MAX_VOCABULARY_BYTES: u64 = 64 << 20;

const BOOL: u32 = 7;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// A single metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// Any floating point number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// Text.
    Text(String),
}

/// Reads one value. Arrays are checked and skipped, and return `None`.
pub(super) fn read<R: BufRead + Seek>(reader: &mut Reader<R>) -> Result<Option<Value>, GgufError> {
    let kind = reader.u32("a metadata value's type")?;
    if kind == ARRAY { skip_array(reader).map(|()| None) } else { read_single(reader, kind).map(Some) }
}

/// Checks a vocabulary: an array of texts of which none occurs twice. llama.cpp ends the process if one does, unless it is empty.
pub(super) fn check_vocabulary<R: BufRead + Seek>(reader: &mut Reader<R>) -> Result<(), GgufError> {
    for (what, expected) in [("a metadata value's type", ARRAY), ("an array's type", TEXT)] {
        let kind = reader.u32(what)?;
        if kind != expected {
            return Err(GgufError::ValueType(kind));
        }
    }
    let count = reader.count("number of tokens", MAX_TEXTS)?;
    let (mut seen, mut bytes) = (HashSet::new(), 0);
    for _ in 0..count {
        let token = reader.raw_text("a token", MAX_TOKEN_BYTES)?;
        bytes += token.len() as u64;
        if bytes > MAX_VOCABULARY_BYTES {
            let (what, limit) = ("number of bytes of a vocabulary", MAX_VOCABULARY_BYTES);
            return Err(GgufError::TooMany { what, claimed: bytes, limit });
        }
        if token.is_empty() {
            continue;
        }
        if let Some(token) = seen.replace(token) {
            return Err(GgufError::Duplicate(String::from_utf8_lossy(&token).into_owned()));
        }
    }
    Ok(())
}

fn read_single<R: BufRead + Seek>(reader: &mut Reader<R>, kind: u32) -> Result<Value, GgufError> {
    let what = "a metadata value";
    Ok(match kind {
        0 => Value::Unsigned(u8::from_le_bytes(reader.bytes(what)?).into()),
        1 => Value::Signed(i8::from_le_bytes(reader.bytes(what)?).into()),
        2 => Value::Unsigned(u16::from_le_bytes(reader.bytes(what)?).into()),
        3 => Value::Signed(i16::from_le_bytes(reader.bytes(what)?).into()),
        4 => Value::Unsigned(u32::from_le_bytes(reader.bytes(what)?).into()),
        5 => Value::Signed(i32::from_le_bytes(reader.bytes(what)?).into()),
        6 => Value::Float(f32::from_le_bytes(reader.bytes(what)?).into()),
        BOOL => Value::Bool(reader.bytes::<1>(what)? != [0]),
        TEXT => Value::Text(reader.text(what, MAX_TEXT_BYTES)?),
        10 => Value::Unsigned(u64::from_le_bytes(reader.bytes(what)?)),
        11 => Value::Signed(i64::from_le_bytes(reader.bytes(what)?)),
        12 => Value::Float(f64::from_le_bytes(reader.bytes(what)?)),
        unknown => return Err(GgufError::ValueType(unknown)),
    })
}

fn skip_array<R: BufRead + Seek>(reader: &mut Reader<R>) -> Result<(), GgufError> {
    let kind = reader.u32("an array's type")?;
    let bytes_each = match kind {
        0 | 1 | BOOL => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        TEXT => return skip_texts(reader),
        // Arrays of arrays: no model has them, and their nesting is unlimited.
        unknown => return Err(GgufError::ValueType(unknown)),
    };
    let count = reader.count("length of an array", MAX_ARRAY)?;
    reader.skip(count * bytes_each, "an array")
}

fn skip_texts<R: BufRead + Seek>(reader: &mut Reader<R>) -> Result<(), GgufError> {
    let count = reader.count("length of an array of texts", MAX_TEXTS)?;
    for _ in 0..count {
        let length = reader.count("length of a text", MAX_TEXT_BYTES)?;
        reader.skip(length, "an array of texts")?;
    }
    Ok(())
}
