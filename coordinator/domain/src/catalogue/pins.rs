//! Pins: revision, length and hash of files whose catalogue entries leave them out. A pinned address means these bytes
//! from then on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use island_daemon::files::write_atomic;
use island_protocol::{
    address::{Address, HubAddress},
    artifact::Artifact,
    digest::Digest,
};
use serde::{Deserialize, Serialize};

const HEAD: &str =
    "# Written by `island-coordinator catalogue pin`: revisions, hashes and lengths of files.\n\n";

/// The pin of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The commit of the repository.
    pub revision: String,
    /// Hash of the file.
    pub sha256: Digest,
    /// Length of the file.
    pub size_bytes: u64,
}

/// All pins, by the addresses in catalogue entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pins(BTreeMap<String, Pin>);

impl Pins {
    /// Reads a file of pins; a missing file has none.
    pub fn read(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the file atomically: after a power cut, it is the old or the new one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        write_atomic(path, format!("{HEAD}{text}").as_bytes(), 0o644)
    }

    /// Applies the pin of an artifact. Values of the catalogue entry take precedence: a pin of other bytes is ignored.
    pub fn apply(&self, artifact: &mut Artifact) {
        let Some(pin) = self.0.get(&artifact.url) else { return };
        let differs = artifact.sha256.is_some_and(|known| known != pin.sha256)
            || artifact.size_bytes.is_some_and(|known| known != pin.size_bytes);
        let Ok(Address::Hub(address)) = artifact.url.parse() else { return };
        if differs {
            return;
        }
        artifact.url = HubAddress { revision: Some(pin.revision.clone()), ..address }.to_string();
        artifact.sha256 = Some(pin.sha256);
        artifact.size_bytes = Some(pin.size_bytes);
    }

    /// Adds a pin.
    pub fn insert(&mut self, address: &HubAddress, pin: Pin) {
        self.0.insert(address.to_string(), pin);
    }

    /// Removes pins of addresses that no entry uses.
    pub fn keep(&mut self, wanted: &BTreeSet<String>) {
        self.0.retain(|address, _| wanted.contains(address));
    }

    /// Whether an address is pinned.
    pub fn has(&self, address: &str) -> bool {
        self.0.contains_key(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(url: &str, sha256: Option<Digest>) -> Artifact {
        Artifact { name: "model".to_owned(), url: url.to_owned(), sha256, size_bytes: None }
    }

    fn digest(byte: u8) -> Digest {
        Digest::from_bytes([byte; 32])
    }

    #[test]
    fn a_pin_fixes_the_commit_and_bytes_of_an_address() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(crate::config::PINS_FILE);
        assert_eq!(Pins::read(&path).expect("none yet"), Pins::default());
        let Ok(Address::Hub(address)) = "hf://o/r:a/b.onnx".parse() else { panic!("an address") };
        let mut pins = Pins::default();
        pins.insert(&address, Pin { revision: "c0ffee".to_owned(), sha256: digest(1), size_bytes: 5 });
        pins.write(&path).expect("written");
        let mut read = Pins::read(&path).expect("read");
        assert_eq!(read, pins);

        let mut open = artifact("hf://o/r:a/b.onnx", None);
        read.apply(&mut open);
        let wanted =
            Artifact { size_bytes: Some(5), ..artifact("hf://o/r:a/b.onnx@c0ffee", Some(digest(1))) };
        assert_eq!(open, wanted);
        // The entry was changed and means other bytes.
        let mut other = artifact("hf://o/r:a/b.onnx", Some(digest(2)));
        read.apply(&mut other);
        assert_eq!(other, artifact("hf://o/r:a/b.onnx", Some(digest(2))));
        let mut unknown = artifact("hf://o/r:a/c.onnx", None);
        read.apply(&mut unknown);
        assert_eq!(unknown.sha256, None);

        read.keep(&BTreeSet::new());
        assert_eq!(read, Pins::default());
        fs::write(&path, "x = 1").expect("written");
        assert!(Pins::read(&path).is_err());
    }
}
