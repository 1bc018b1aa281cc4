//! Digests and checksums of a text or of bytes.

use std::{collections::BTreeMap, process::ExitCode};

use base64::{Engine, engine::general_purpose::STANDARD};
use island_cargo::{Blob, Error, Output, run};
use md5::Md5;
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

#[derive(Deserialize)]
struct Input {
    text: Option<String>,
    data: Option<Blob>,
    #[serde(default = "sha256")]
    algorithms: Vec<Algorithm>,
    #[serde(default)]
    encoding: Encoding,
}

#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum Algorithm {
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Blake3,
    Crc32,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Hex,
    Base64,
}

#[derive(Serialize)]
struct Hashes {
    bytes: usize,
    hashes: BTreeMap<Algorithm, String>,
}

fn sha256() -> Vec<Algorithm> {
    vec![Algorithm::Sha256]
}

fn digest(algorithm: Algorithm, data: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::Md5 => Md5::digest(data).to_vec(),
        Algorithm::Sha1 => Sha1::digest(data).to_vec(),
        Algorithm::Sha224 => Sha224::digest(data).to_vec(),
        Algorithm::Sha256 => Sha256::digest(data).to_vec(),
        Algorithm::Sha384 => Sha384::digest(data).to_vec(),
        Algorithm::Sha512 => Sha512::digest(data).to_vec(),
        Algorithm::Blake3 => blake3::hash(data).as_bytes().to_vec(),
        Algorithm::Crc32 => crc32fast::hash(data).to_be_bytes().to_vec(),
    }
}

fn hash(input: Input, _: &mut Output<'_>) -> Result<Hashes, Error> {
    let data = match (input.text, input.data) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(Blob(data))) => data,
        _ => return Err(Error::invalid("give either text or data")),
    };
    let show = |bytes: Vec<u8>| match input.encoding {
        Encoding::Hex => hex::encode(bytes),
        Encoding::Base64 => STANDARD.encode(bytes),
    };
    let hashes = input.algorithms.into_iter().map(|which| (which, show(digest(which, &data)))).collect();
    Ok(Hashes { bytes: data.len(), hashes })
}

fn main() -> ExitCode {
    run(hash)
}
