//! Speaker embeddings: the output of an x-vector network for a speaker's voice.
//!
//! They are in a file of the Cargo, as raw little-endian floats (`speaker_embeddings.bin`) or in numpy's format, or in a job's input.

use island_runtimes_kit::error::{EngineError, invalid_input, invalid_model};
use serde_json::Value;

use crate::task::Loader;

/// Default file; `[engine]` may name another one.
const USUAL: [&str; 2] = ["speaker_embeddings.bin", "speaker_embeddings.npy"];

/// The Cargo's own speaker, if it has one.
pub fn of_cargo(loader: &Loader<'_>, length: usize) -> Result<Option<Vec<f32>>, EngineError> {
    let named = loader.settings.get("speaker_embeddings").map(Value::as_str);
    let name = match named {
        Some(Some(name)) => name,
        Some(None) => {
            return Err(invalid_model(
                "speaker_embeddings of the Cargo's settings is not the name of a file",
            ));
        }
        None => match USUAL.iter().find(|name| loader.repository.path(name).is_some()) {
            Some(name) => name,
            None => return Ok(None),
        },
    };
    let bytes = loader.repository.bytes(name)?;
    let bytes =
        bytes.ok_or_else(|| invalid_model(format!("the speaker's file {name} is not among its files")))?;
    let numbers =
        read(&bytes).map_err(|why| invalid_model(format!("{name} is not a speaker embedding: {why}")))?;
    check(&numbers, length)
        .map_err(|why| invalid_model(format!("{name} is not a speaker embedding: {why}")))?;
    Ok(Some(numbers))
}

/// The speaker in a job's input.
pub fn of_input(numbers: Vec<f32>, length: usize) -> Result<Vec<f32>, EngineError> {
    check(&numbers, length).map_err(|why| invalid_input(format!("invalid speaker_embeddings: {why}")))?;
    Ok(numbers)
}

fn check(numbers: &[f32], length: usize) -> Result<(), String> {
    if numbers.len() != length {
        return Err(format!("they are {} numbers, the model takes {length}", numbers.len()));
    }
    match numbers.iter().position(|number| !number.is_finite()) {
        Some(place) => Err(format!("number {place} is not finite")),
        None => Ok(()),
    }
}

/// The numbers of a file.
fn read(bytes: &[u8]) -> Result<Vec<f32>, String> {
    let Some(rest) = bytes.strip_prefix(b"\x93NUMPY") else {
        if !bytes.len().is_multiple_of(4) {
            return Err(format!("its {} bytes are not a whole number of floats", bytes.len()));
        }
        return Ok(floats(bytes));
    };
    let cut_off = || "its header is truncated".to_owned();
    let &version = rest.first().ok_or_else(cut_off)?;
    let width = if version == 1 { 2 } else { 4 };
    let length = rest.get(2..2 + width).ok_or_else(cut_off)?;
    let length = length.iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    let header = rest.get(2 + width..).and_then(|rest| rest.get(..length)).ok_or_else(cut_off)?;
    let data = &rest[2 + width + length..];
    let header = String::from_utf8_lossy(header);
    let kind = header.split("'descr':").nth(1).and_then(|rest| rest.split('\'').nth(1)).unwrap_or_default();
    match kind {
        "<f4" if data.len().is_multiple_of(4) => Ok(floats(data)),
        "<f8" if data.len().is_multiple_of(8) => {
            Ok(data.as_chunks().0.iter().map(|&word| f64::from_le_bytes(word) as f32).collect())
        }
        "<f4" | "<f8" => Err("its numbers are truncated".to_owned()),
        _ => Err(format!("its numbers have the type {kind:?}, not <f4 or <f8")),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(version: u8, kind: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': (2,), }}\n");
        let mut file = b"\x93NUMPY".to_vec();
        file.extend([version, 0]);
        let length = (header.len() as u32).to_le_bytes();
        file.extend(&length[..if version == 1 { 2 } else { 4 }]);
        file.extend(header.as_bytes());
        file.extend(data);
        file
    }

    #[test]
    fn files_of_each_kind_are_read() {
        let (single, double) = ([1.5_f32, -2.0], [1.5_f64, -2.0]);
        let single: Vec<u8> = single.iter().flat_map(|number| number.to_le_bytes()).collect();
        let double: Vec<u8> = double.iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(read(&single), Ok(vec![1.5, -2.0]));
        for version in [1, 2] {
            assert_eq!(read(&npy(version, "<f4", &single)), Ok(vec![1.5, -2.0]));
            assert_eq!(read(&npy(version, "<f8", &double)), Ok(vec![1.5, -2.0]));
        }
    }

    #[test]
    fn invalid_files_are_rejected_with_a_reason() {
        assert!(read(b"abcde").expect_err("five bytes").contains("5 bytes"));
        assert!(read(&npy(1, ">i8", b"")).expect_err("integers").contains(">i8"));
        assert!(read(&npy(1, "<f8", b"1234")).expect_err("half a number").contains("truncated"));
        let whole = npy(1, "<f4", b"");
        for end in 6..whole.len() - 1 {
            assert!(read(&whole[..end]).expect_err("truncated").contains("truncated"), "{end}");
        }
    }
}
