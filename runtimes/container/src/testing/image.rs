//! Builds images for tests, around one static program.

use std::{collections::BTreeSet, io, path::Path};

use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::labels::hex;

/// A tar archive that is being written.
pub struct Tar(Builder<Vec<u8>>);

impl std::fmt::Debug for Tar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tar")
    }
}

impl Default for Tar {
    fn default() -> Self {
        Self(Builder::new(Vec::new()))
    }
}

impl Tar {
    /// Adds a file.
    pub fn file(self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<Self> {
        self.entry(name, EntryType::Regular, mode, bytes)
    }

    /// Adds a folder.
    pub fn folder(self, name: &str, mode: u32) -> io::Result<Self> {
        self.entry(name, EntryType::Directory, mode, &[])
    }

    /// Adds a symbolic link.
    pub fn link(mut self, name: &str, target: &str) -> io::Result<Self> {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        self.0.append_link(&mut header, name, target)?;
        Ok(self)
    }

    /// Adds any entry.
    pub fn entry(mut self, name: &str, kind: EntryType, mode: u32, bytes: &[u8]) -> io::Result<Self> {
        self.0.append_data(&mut header(kind, mode, bytes.len() as u64), name, bytes)?;
        Ok(self)
    }

    /// The archive.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        self.0.into_inner()
    }
}

fn header(kind: EntryType, mode: u32, length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(length);
    header
}

/// The usual commands, in one static program.
pub fn busybox() -> Result<Tar, String> {
    let path = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let path = path.ok_or("there is no busybox; `scripts/setup.sh test` installs busybox-static")?;
    let program = std::fs::read(path).map_err(|error| format!("read {path}: {error}"))?;
    let listed = std::process::Command::new(path).arg("--list").output();
    let listed = listed.map_err(|error| format!("run {path}: {error}"))?;
    let names: BTreeSet<String> = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter(|name| *name != "busybox")
        .map(Into::into)
        .collect();
    let build = || {
        let folders = [
            ("bin", 0o755),
            ("etc", 0o755),
            ("proc", 0o555),
            ("sys", 0o555),
            ("dev", 0o755),
            ("tmp", 0o1777),
        ];
        let mut tar = Tar::default();
        for (name, mode) in folders {
            tar = tar.folder(name, mode)?;
        }
        // Root without a password: a program that gains root by `su` has really gained it.
        tar = tar.file("etc/passwd", 0o644, b"root::0:0::/:/bin/sh\nnobody::65534:65534::/:/bin/sh\n")?;
        tar = tar.file("bin/busybox", 0o4755, &program)?;
        for name in &names {
            tar = tar.link(&format!("bin/{name}"), "busybox")?;
        }
        Ok::<_, io::Error>(tar)
    };
    build().map_err(|error| format!("write an image: {error}"))
}

/// A file system as a Docker image archive, with a configuration and tags.
pub fn docker_archive(rootfs: &[u8], config: &Value, tags: &[&str]) -> io::Result<Vec<u8>> {
    use sha2::{Digest, Sha256};
    let layer = format!("sha256:{}", hex(&Sha256::digest(rootfs)));
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created_by": "a test"}],
    });
    let config = config.to_string();
    let name = format!("{}.json", hex(&Sha256::digest(config.as_bytes())));
    let manifest = json!([{"Config": name, "RepoTags": tags, "Layers": ["0123/layer.tar"]}]).to_string();
    Tar::default()
        .file("manifest.json", 0o644, manifest.as_bytes())?
        .file(&name, 0o644, config.as_bytes())?
        .file("0123/layer.tar", 0o644, rootfs)?
        .finish()
}
