//! The files of a Cargo: one model, a repository, and further files.

use std::{
    collections::HashMap,
    fs, io,
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use island_protocol::{artifact::Artifact, digest::Digest};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use toml::Spanned;

use super::{
    file::{CargoFile, Checker, Origin},
    manifest,
};

/// Start of the address of a file that `make cargos` builds.
const BUILT: &str = "file://built/";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArtifactFile {
    name: Spanned<String>,
    url: Spanned<String>,
    sha256: Option<Spanned<String>>,
    size_bytes: Option<u64>,
}

/// Several files of one repository.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepositoryFile {
    url: Spanned<String>,
    revision: Option<String>,
    files: Vec<Spanned<PartFile>>,
}

/// A file of a repository: its path, and its hash and length if known.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum PartFile {
    Path(String),
    Known { path: String, sha256: Option<String>, size_bytes: Option<u64> },
}

/// The files of a Cargo, with absolute addresses.
pub(super) fn read(check: &mut Checker<'_>, dir: &Path, file: &CargoFile) -> Vec<Artifact> {
    let mut artifacts = Vec::new();
    let details =
        [file.model_hash.as_ref().map(Spanned::span), file.model_size_bytes.as_ref().map(Spanned::span)];
    if let Some(url) = &file.model_url {
        artifacts.push(Artifact {
            name: "model".to_owned(),
            url: address(check, dir, url),
            sha256: file.model_hash.as_ref().and_then(|hash| digest(check, hash)),
            size_bytes: file.model_size_bytes.as_ref().map(|size| *size.get_ref()),
        });
    } else {
        for span in details.into_iter().flatten() {
            check.fault(span, "model_url is missing");
        }
    }
    if let Some(url) = &file.model_url {
        if url.get_ref().starts_with(BUILT) {
            measure(check, &mut artifacts[0]);
        }
        check_published(check, url.span(), &artifacts[0]);
    }
    for extra in &file.artifacts {
        if artifacts.iter().any(|known| known.name == *extra.name.get_ref()) {
            check.fault(extra.name.span(), format!("artifact {:?} appears twice", extra.name.get_ref()));
        }
        let artifact = Artifact {
            name: extra.name.get_ref().clone(),
            url: address(check, dir, &extra.url),
            sha256: extra.sha256.as_ref().and_then(|hash| digest(check, hash)),
            size_bytes: extra.size_bytes,
        };
        check_published(check, extra.url.span(), &artifact);
        artifacts.push(artifact);
    }
    if let Some(repository) = &file.repository {
        for part in repository_files(check, dir, repository) {
            if artifacts.iter().any(|known| known.name == part.name) {
                let message = format!("artifact {:?} appears twice", part.name);
                check.fault(repository.url.span(), message);
            }
            artifacts.push(part);
        }
    }
    artifacts
}

fn check_published(check: &mut Checker<'_>, span: Range<usize>, artifact: &Artifact) {
    if check.origin == Origin::Publisher {
        manifest::check_artifact(check, span, artifact);
    }
}

/// The files of a repository, each named by its path there.
fn repository_files(check: &mut Checker<'_>, dir: &Path, repository: &RepositoryFile) -> Vec<Artifact> {
    let root = repository.url.get_ref();
    let is_local = root.starts_with("file://");
    let is_hub = root
        .strip_prefix("hf://")
        .is_some_and(|rest| rest.split('/').count() == 2 && !rest.contains([':', '@']));
    if !is_local && !is_hub {
        check.fault(repository.url.span(), "the address of a repository is hf://owner/repo or file://folder");
        return Vec::new();
    }
    if repository.files.is_empty() {
        check.fault(repository.url.span(), "the repository names no files");
    }
    let revision = repository.revision.as_ref().map(|revision| format!("@{revision}")).unwrap_or_default();
    let mut artifacts = Vec::with_capacity(repository.files.len());
    for part in &repository.files {
        let (path, sha256, size_bytes) = match part.get_ref() {
            PartFile::Path(path) => (path, None, None),
            PartFile::Known { path, sha256, size_bytes } => (path, sha256.as_ref(), *size_bytes),
        };
        if !is_inside(path) {
            check.fault(part.span(), format!("{path:?} is not a path inside a repository"));
            continue;
        }
        let url = if is_local {
            address(check, dir, &Spanned::new(part.span(), format!("{root}/{path}")))
        } else {
            format!("{root}:{path}{revision}")
        };
        let sha256 = sha256.and_then(|hash| digest(check, &Spanned::new(part.span(), hash.clone())));
        let mut artifact = Artifact { name: path.clone(), url, sha256, size_bytes };
        if is_local {
            measure(check, &mut artifact);
        }
        check_published(check, part.span(), &artifact);
        artifacts.push(artifact);
    }
    artifacts
}

/// Whether a path leads to a file inside a folder.
pub(super) fn is_inside(path: &str) -> bool {
    !path.is_empty() && !path.starts_with('/') && !path.split('/').any(|step| step.is_empty() || step == "..")
}

/// Fills in hash and length of a file that `make cargos` built on this machine; they are not known before the build.
fn measure(check: &mut Checker<'_>, artifact: &mut Artifact) {
    if check.origin == Origin::Publisher {
        return;
    }
    let Some(path) = artifact.url.strip_prefix("file:///").map(|path| Path::new("/").join(path)) else {
        return;
    };
    let Ok(metadata) = fs::metadata(&path) else { return };
    artifact.size_bytes.get_or_insert(metadata.len());
    if artifact.sha256.is_none() {
        artifact.sha256 = check.hashes.of(&path, &metadata);
    }
}

/// The hashes of local files. Several Cargos share an image, which is read once for all of them.
#[derive(Debug, Default)]
pub(super) struct Hashes(HashMap<PathBuf, (Stamp, Digest)>);

/// What differs if a file was changed: its length, time of modification in seconds and nanoseconds, and inode.
type Stamp = (u64, i64, i64, u64);

impl Hashes {
    /// The hash of a file: the one that the build wrote beside it, or that of its content.
    fn of(&mut self, path: &Path, metadata: &fs::Metadata) -> Option<Digest> {
        if let Some(digest) = built_hash(path, metadata) {
            return Some(digest);
        }
        let stamp = (metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino());
        if let Some((_, digest)) = self.0.get(path).filter(|(known, _)| *known == stamp) {
            return Some(*digest);
        }
        let digest = hash(path).ok()?;
        self.0.insert(path.to_owned(), (stamp, digest));
        Some(digest)
    }
}

/// Reads the hash that the build wrote beside the file, unless the file is newer. Hashing images at every start would
/// be slow, and a wrong hash does no harm, as Islands verify what they download.
fn built_hash(path: &Path, metadata: &fs::Metadata) -> Option<Digest> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".sha256");
    let hashed_at = fs::metadata(&beside).ok()?.modified().ok()?;
    if hashed_at < metadata.modified().ok()? {
        return None;
    }
    format!("sha256:{}", fs::read_to_string(&beside).ok()?.trim()).parse().ok()
}

fn hash(path: &Path) -> io::Result<Digest> {
    let mut hasher = Sha256::new();
    io::copy(&mut fs::File::open(path)?, &mut hasher)?;
    Ok(Digest::from_bytes(hasher.finalize().into()))
}

/// Returns the address of a file as an absolute one and checks that a local file exists.
fn address(check: &mut Checker<'_>, dir: &Path, url: &Spanned<String>) -> String {
    let text = url.get_ref();
    if check.origin == Origin::Publisher {
        // Checked as a whole, with hash and length. No path of an account is looked for on this machine.
        return text.clone();
    }
    let Some(path) = text.strip_prefix("file://") else {
        let hub = text
            .strip_prefix("hf://")
            .is_some_and(|rest| rest.split('/').filter(|p| !p.is_empty()).count() >= 2);
        let image = text.strip_prefix("docker://").is_some_and(|rest| rest.contains("@sha256:"));
        if !hub && !image && !text.starts_with("https://") {
            let forms =
                "an address is hf://owner/repo[:file][@revision], https://…, file://… or docker://…@sha256:…";
            check.fault(url.span(), forms);
        }
        return text.clone();
    };
    let path = dir.join(path);
    let Ok(found) = path.canonicalize() else {
        if text.starts_with(BUILT) {
            check.unbuilt = true;
        } else {
            check.fault(url.span(), format!("{} does not exist", path.display()));
        }
        return text.clone();
    };
    format!("file://{}", found.display())
}

/// Parses a digest with or without the prefix `sha256:`.
fn digest(check: &mut Checker<'_>, text: &Spanned<String>) -> Option<Digest> {
    let hex = text.get_ref().strip_prefix("sha256:").unwrap_or(text.get_ref());
    let digest = format!("sha256:{hex}").parse().ok();
    if digest.is_none() {
        check.fault(text.span(), "a hash is 64 lower-case hex digits, with or without 'sha256:'");
    }
    digest
}
