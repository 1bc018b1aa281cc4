//! Which image an archive contains: exactly one, its configuration and its layers by their names in the archive.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::ArchiveError;

/// Maximum number of layers of one image; Docker's limit is 127.
const MAX_LAYERS: usize = 127;

/// Small files of an archive by name.
pub(super) type Texts = BTreeMap<String, Vec<u8>>;

/// The parts of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    /// Its configuration.
    pub(super) config: Vec<u8>,
    /// Names of its layers, the lowest first.
    pub(super) layers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct OciIndex {
    manifests: Vec<OciEntry>,
}

#[derive(Deserialize)]
struct OciEntry {
    digest: String,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct OciManifest {
    config: OciBlob,
    layers: Vec<OciBlob>,
}

#[derive(Deserialize)]
struct OciBlob {
    digest: String,
}

/// Finds the only image.
pub(super) fn find(texts: &Texts) -> Result<Parts, ArchiveError> {
    let parts = if let Some(text) = texts.get("manifest.json") {
        docker(texts, text)?
    } else if let Some(text) = texts.get("index.json") {
        oci(texts, text, 0)?
    } else {
        return Err(ArchiveError::unsound("it has neither manifest.json nor index.json"));
    };
    check_config(&parts)?;
    Ok(parts)
}

fn docker(texts: &Texts, text: &[u8]) -> Result<Parts, ArchiveError> {
    let images: Vec<DockerImage> = parse("manifest.json", text)?;
    let [image] = images.as_slice() else {
        return Err(ArchiveError::unsound(format!("it contains {} images instead of one", images.len())));
    };
    Ok(Parts { config: named(texts, &image.config)?.clone(), layers: image.layers.clone() })
}

fn oci(texts: &Texts, text: &[u8], depth: u32) -> Result<Parts, ArchiveError> {
    let index: OciIndex = parse("index.json", text)?;
    let fitting: Vec<_> = index.manifests.iter().filter(|entry| fits(entry.platform.as_ref())).collect();
    let [entry] = fitting.as_slice() else {
        let message = format!("it contains {} images for this machine instead of one", fitting.len());
        return Err(ArchiveError::unsound(message));
    };
    let text = named(texts, &blob(&entry.digest)?)?;
    let value: Value = parse(&entry.digest, text)?;
    if value.get("manifests").is_some() && depth == 0 {
        return oci(texts, text, depth + 1);
    }
    let manifest: OciManifest = parse(&entry.digest, text)?;
    let layers = manifest.layers.iter().map(|layer| blob(&layer.digest)).collect::<Result<_, _>>()?;
    Ok(Parts { config: named(texts, &blob(&manifest.config.digest)?)?.clone(), layers })
}

fn fits(platform: Option<&Platform>) -> bool {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    platform.is_none_or(|platform| platform.os == "linux" && platform.architecture == machine)
}

/// The name of a blob, built from its digest.
fn blob(digest: &str) -> Result<String, ArchiveError> {
    let digest: island_protocol::digest::Digest =
        digest.parse().map_err(|error| ArchiveError::unsound(format!("{digest:?}: {error}")))?;
    Ok(format!("blobs/sha256/{}", digest.hex()))
}

fn named<'a>(texts: &'a Texts, name: &str) -> Result<&'a Vec<u8>, ArchiveError> {
    texts.get(name).ok_or_else(|| ArchiveError::unsound(format!("{name:?} is not in it")))
}

fn parse<T: DeserializeOwned>(name: &str, text: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(text).map_err(|error| ArchiveError::unsound(format!("parse {name}: {error}")))
}

/// An image cannot request volumes: they would be folders on the host's disk without a limit on their size.
fn check_config(parts: &Parts) -> Result<(), ArchiveError> {
    let config: Value = parse("the image's configuration", &parts.config)?;
    let layers = config.pointer("/rootfs/diff_ids").and_then(Value::as_array).map_or(0, Vec::len);
    if layers != parts.layers.len() || layers == 0 || layers > MAX_LAYERS {
        let message = format!("its configuration has {layers} layers, the archive of {}", parts.layers.len());
        return Err(ArchiveError::unsound(message));
    }
    let volumes = config.pointer("/config/Volumes").and_then(Value::as_object);
    if volumes.is_some_and(|volumes| !volumes.is_empty()) {
        return Err(ArchiveError::unsound("it declares volumes; only /tmp can be written in a container"));
    }
    Ok(())
}
