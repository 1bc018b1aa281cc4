//! Compresses and unpacks: gzip, zlib, raw deflate, zstd, brotli.

use std::{
    io::{self, Read},
    process::ExitCode,
};

use flate2::{Compression, read};
use island_cargo::{Blob, Error, OrInvalid, Output, run};
use ruzstd::{
    decoding::StreamingDecoder,
    encoding::{CompressionLevel, compress_to_vec},
};
use serde::{Deserialize, Serialize};

/// Most bytes that are unpacked: what fits into a result, as a text and in base64.
const MOST: u64 = 4 << 20;
/// Buffer of the brotli streams.
const BUFFER: usize = 64 << 10;

#[derive(Deserialize)]
struct Input {
    operation: Operation,
    #[serde(default)]
    format: Format,
    text: Option<String>,
    data: Option<Blob>,
    #[serde(default = "six")]
    level: u32,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Compress,
    Decompress,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Gzip,
    Zlib,
    Deflate,
    Zstd,
    Brotli,
}

#[derive(Serialize)]
struct Answer {
    data: Blob,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    bytes_in: usize,
    bytes_out: usize,
}

fn six() -> u32 {
    6
}

fn compress(format: Format, level: u32, data: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = Vec::new();
    let level_of_flate = Compression::new(level.min(9));
    match format {
        Format::Gzip => read::GzEncoder::new(data, level_of_flate).read_to_end(&mut packed)?,
        Format::Zlib => read::ZlibEncoder::new(data, level_of_flate).read_to_end(&mut packed)?,
        Format::Deflate => read::DeflateEncoder::new(data, level_of_flate).read_to_end(&mut packed)?,
        // The encoder has one level that compresses.
        Format::Zstd => {
            packed = compress_to_vec(data, CompressionLevel::Fastest);
            packed.len()
        }
        Format::Brotli => {
            brotli::CompressorReader::new(data, BUFFER, level.min(11), 22).read_to_end(&mut packed)?
        }
    };
    Ok(packed)
}

fn unpack(format: Format, data: &[u8]) -> Result<Vec<u8>, Error> {
    let stream: Box<dyn Read + '_> = match format {
        Format::Gzip => Box::new(read::MultiGzDecoder::new(data)),
        Format::Zlib => Box::new(read::ZlibDecoder::new(data)),
        Format::Deflate => Box::new(read::DeflateDecoder::new(data)),
        Format::Zstd => Box::new(StreamingDecoder::new(data).or_invalid("data")?),
        Format::Brotli => Box::new(brotli::Decompressor::new(data, BUFFER)),
    };
    let mut unpacked = Vec::new();
    stream.take(MOST + 1).read_to_end(&mut unpacked).or_invalid("data")?;
    if unpacked.len() as u64 > MOST {
        return Err(Error::invalid(format!("data unpacks to more than {MOST} bytes")));
    }
    Ok(unpacked)
}

fn convert(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let data = match (input.text, input.data) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(Blob(data))) => data,
        _ => return Err(Error::invalid("give either text or data")),
    };
    let (made, text) = match input.operation {
        Operation::Compress => (compress(input.format, input.level, &data)?, None),
        Operation::Decompress => {
            let made = unpack(input.format, &data)?;
            let text = String::from_utf8(made.clone()).ok();
            (made, text)
        }
    };
    Ok(Answer { bytes_in: data.len(), bytes_out: made.len(), data: Blob(made), text })
}

fn main() -> ExitCode {
    run(convert)
}
