//! Downloads the files of a release, within limits.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt as _;
use island_protocol::digest::Digest;
use reqwest::{Client, Response, Url};
use sha2::{Digest as _, Sha256};

use crate::manifest;

/// Maximum time without a byte from a server.
const SILENCE: Duration = Duration::from_mins(1);
/// Time limit of a manifest.
const MANIFEST_TIME: Duration = Duration::from_mins(1);

/// A download that failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is invalid.
    #[error("{0:?} is not an address")]
    Address(String),
    /// The server did not answer, or answered with an error.
    #[error("fetch {0}")]
    Web(Url, #[source] reqwest::Error),
    /// It took too long.
    #[error("{0} was not downloaded within a minute")]
    Slow(Url),
    /// More bytes than announced arrive.
    #[error("{0} sends more than the expected {1} bytes")]
    Endless(Url, u64),
    /// Another file than the one in the release.
    #[error("{0} sends another file than the one in the release")]
    OtherFile(Url),
    /// The file cannot be written.
    #[error("write {0}")]
    Write(PathBuf, #[source] io::Error),
}

/// Downloads files.
#[derive(Debug)]
pub struct Web(Client);

impl Web {
    /// Creates one with timeouts.
    pub fn new() -> Result<Self, reqwest::Error> {
        Client::builder().connect_timeout(SILENCE).read_timeout(SILENCE).build().map(Self)
    }

    /// Downloads the manifest at `url`, at most one byte more than its maximum.
    pub async fn manifest(&self, url: &str) -> Result<(Url, Vec<u8>), FetchError> {
        let url: Url = url.parse().map_err(|_| FetchError::Address(url.to_owned()))?;
        let fetched = async {
            let mut body = self.get(&url).await?.bytes_stream();
            let mut bytes = Vec::new();
            while let Some(chunk) = body.next().await {
                bytes.extend_from_slice(&chunk.map_err(|error| FetchError::Web(url.clone(), error))?);
                if bytes.len() > manifest::MAX_BYTES {
                    return Err(FetchError::Endless(url.clone(), manifest::MAX_BYTES as u64));
                }
            }
            Ok(bytes)
        };
        let bytes = tokio::time::timeout(MANIFEST_TIME, fetched).await;
        let bytes = bytes.map_err(|_| FetchError::Slow(url.clone()))??;
        Ok((url, bytes))
    }

    /// Downloads the file into `folder` and verifies it meanwhile; an existing one is only verified. Those of other releases, which earlier runs
    /// downloaded and did not install, are removed.
    pub async fn file(
        &self,
        from: &Url,
        file: &manifest::File,
        folder: &Path,
    ) -> Result<PathBuf, FetchError> {
        let url = from.join(&file.url).map_err(|_| FetchError::Address(file.url.clone()))?;
        let path = folder.join(format!("{}.deb", file.sha256.hex()));
        let failed = |error| FetchError::Write(path.clone(), error);
        remove_downloads_but(&path, folder);
        if path.exists() && hash(&path).map_err(failed)? == file.sha256 {
            return Ok(path);
        }
        let part = path.with_extension("part");
        let mut out = File::create(&part).map_err(failed)?;
        let (mut hasher, mut length) = (Sha256::new(), 0);
        let mut body = self.get(&url).await?.bytes_stream();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|error| FetchError::Web(url.clone(), error))?;
            length += chunk.len() as u64;
            if length > file.size {
                let _ = fs::remove_file(&part);
                return Err(FetchError::Endless(url, file.size));
            }
            hasher.update(&chunk);
            out.write_all(&chunk).map_err(failed)?;
        }
        if length != file.size || digest(hasher) != file.sha256 {
            let _ = fs::remove_file(&part);
            return Err(FetchError::OtherFile(url));
        }
        out.sync_all().and_then(|()| fs::rename(&part, &path)).map_err(failed)?;
        Ok(path)
    }

    async fn get(&self, url: &Url) -> Result<Response, FetchError> {
        let answer = self.0.get(url.clone()).send().await.and_then(Response::error_for_status);
        answer.map_err(|error| FetchError::Web(url.clone(), error))
    }
}

/// Removes what was downloaded into `folder`, whole or in part, except `kept`. One that cannot be removed is tried again by the next run.
fn remove_downloads_but(kept: &Path, folder: &Path) {
    let is_download = |path: &PathBuf| {
        let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        let is_digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest && path.extension().is_some_and(|kind| kind == "deb" || kind == "part")
    };
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in paths.filter(|path| path != kept && is_download(path)) {
        let _ = fs::remove_file(path);
    }
}

/// Hashes a file.
pub fn hash(path: &Path) -> io::Result<Digest> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(digest(hasher))
}

fn digest(hasher: Sha256) -> Digest {
    Digest::from_bytes(hasher.finalize().into())
}
