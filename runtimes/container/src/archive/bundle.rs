//! Reads an image archive and writes it anew: one image, plain layers, no tag. An archive loaded unchanged could give its image any name,
//! and so replace another image on the owner's machine.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
};

use serde_json::json;
use tar::{Archive, Builder, EntryType, Header};

use super::{
    ArchiveError, Source,
    headers::Headers,
    layer,
    manifest::{self, Parts, Texts},
    packing::unpack,
};

/// Maximum bytes of one text; manifests and configurations have a few thousand.
const MAX_TEXT: u64 = 1 << 20;
/// Maximum bytes of all texts.
const MAX_TEXTS: u64 = 16 << 20;
const CONFIG: &str = "config.json";

/// A checked image archive.
#[derive(Debug)]
pub struct Bundle {
    source: Source,
    parts: Parts,
    /// Unpacked length of each layer by its name in the archive.
    lengths: BTreeMap<String, u64>,
    /// Unpacked length of the image.
    unpacked: u64,
}

impl Bundle {
    /// Checks an archive whose image unpacks to at most `most` bytes.
    pub(super) fn examine(source: Source, most: u64) -> Result<Self, ArchiveError> {
        let parts = manifest::find(&texts(&source)?)?;
        let (mut lengths, mut unpacked) = (BTreeMap::new(), 0);
        for_each_file(&source, &|_| (), |name, length, reader| {
            if parts.layers.contains(&name) {
                let checked = layer::check(unpack(reader, length)?)?;
                if lengths.insert(name.clone(), checked).is_some() {
                    // Written with the length of the last one, another would end in headers that nobody has checked.
                    return Err(ArchiveError::unsound(format!("the layer {name:?} is in it more than once")));
                }
                // After each layer: the rest of an image that is too large is not read.
                unpacked = total(&parts.layers, &lengths);
                if unpacked > most {
                    return Err(ArchiveError::unsound(format!(
                        "its layers unpack to more than {most} bytes together"
                    )));
                }
            }
            Ok(())
        })?;
        match parts.layers.iter().find(|layer| !lengths.contains_key(*layer)) {
            Some(missing) => Err(ArchiveError::unsound(format!("the layer {missing:?} is not in it"))),
            None => Ok(Self { source, parts, lengths, unpacked }),
        }
    }

    /// Sum of the unpacked layers, in bytes.
    pub(super) fn unpacked_bytes(&self) -> u64 {
        self.unpacked
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Writes it for a daemon to load.
    pub(super) fn write(&self, to: impl Write, read: &dyn Fn(u64)) -> Result<(), ArchiveError> {
        let mut out = Builder::new(to);
        let plain =
            |name: &String| self.lengths.keys().position(|key| key == name).map(|at| format!("{at}.tar"));
        let layers: Vec<_> = self.parts.layers.iter().map(plain).collect();
        let manifest = json!([{ "Config": CONFIG, "RepoTags": null, "Layers": layers }]).to_string();
        append(&mut out, CONFIG, self.parts.config.len() as u64, self.parts.config.as_slice())?;
        append(&mut out, "manifest.json", manifest.len() as u64, manifest.as_bytes())?;
        for_each_file(&self.source, read, |name, length, reader| {
            match (plain(&name), self.lengths.get(&name)) {
                (Some(plain), Some(unpacked)) => append(&mut out, &plain, *unpacked, unpack(reader, length)?),
                _ => Ok(()),
            }
        })?;
        out.into_inner()?;
        Ok(())
    }
}

/// Length of an image. A daemon unpacks a layer as often as the image names it.
fn total(layers: &[String], lengths: &BTreeMap<String, u64>) -> u64 {
    layers.iter().filter_map(|layer| lengths.get(layer)).fold(0, |sum, length| sum.saturating_add(*length))
}

fn append(
    out: &mut Builder<impl Write>,
    name: &str,
    length: u64,
    bytes: impl Read,
) -> Result<(), ArchiveError> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(length);
    Ok(out.append_data(&mut header, name, bytes)?)
}

/// Everything in the archive that can be a manifest or a configuration.
fn texts(source: &Source) -> Result<Texts, ArchiveError> {
    let (mut texts, mut total) = (Texts::new(), 0);
    for_each_file(source, &|_| (), |name, length, reader| {
        if length > MAX_TEXT || texts.contains_key(&name) {
            return Ok(());
        }
        let mut text = Vec::with_capacity(length as usize);
        reader.read_to_end(&mut text)?;
        if text.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"{[".contains(byte)) {
            total += length;
            if total > MAX_TEXTS {
                return Err(ArchiveError::unsound("its manifests are too long"));
            }
            texts.insert(name, text);
        }
        Ok(())
    })?;
    Ok(texts)
}

fn for_each_file(
    source: &Source,
    read: &dyn Fn(u64),
    mut each: impl FnMut(String, u64, &mut dyn Read) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut archive = Archive::new(Headers::new(source.open(read)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.header().entry_type() == EntryType::Regular {
            let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
            let length = entry.size();
            each(name, length, &mut entry)?;
        }
    }
    Ok(())
}
