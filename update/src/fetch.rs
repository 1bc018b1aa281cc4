//! Downloads the files of a release, within limits.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use futures::{Stream, StreamExt as _};
use island_protocol::digest::Digest;
use reqwest::{Client, Response, Url};
use sha2::{Digest as _, Sha256};

use crate::manifest;

/// Maximum time without a byte from a server.
const SILENCE: Duration = Duration::from_mins(1);
/// Time limit of a manifest.
const MANIFEST_TIME: Duration = Duration::from_mins(1);
/// Time that the download of any file may take.
const FILE_TIME: Duration = Duration::from_mins(10);
/// Bytes per second for which it may take more time: less than the slowest lines have on which an Island is of use.
const LEAST_RATE: u64 = 16 << 10;

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
    #[error("{0} was not downloaded within {1} min")]
    Slow(Url, u64),
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
        let bytes = within(MANIFEST_TIME, &url, fetched).await?;
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
        let body = async { self.get(&url).await.map(Response::bytes_stream) };
        save(&url, file, &part, body).await?;
        fs::rename(&part, &path).and_then(|()| File::open(folder)?.sync_all()).map_err(failed)?;
        Ok(path)
    }

    async fn get(&self, url: &Url) -> Result<Response, FetchError> {
        let answer = self.0.get(url.clone()).send().await.and_then(Response::error_for_status);
        answer.map_err(|error| FetchError::Web(url.clone(), error))
    }
}

/// Ends `work` on what is at `url` after this time.
async fn within<T>(
    limit: Duration,
    url: &Url,
    work: impl Future<Output = Result<T, FetchError>>,
) -> Result<T, FetchError> {
    let done = tokio::time::timeout(limit, work).await;
    done.unwrap_or_else(|_| Err(FetchError::Slow(url.clone(), limit.as_secs().div_ceil(60))))
}

/// Time limit of a file of this length. Without it, a server that sends a byte from time to time would hold the run for ever, and with it the
/// lock that every other run needs.
fn file_time(bytes: u64) -> Duration {
    FILE_TIME + Duration::from_secs(bytes / LEAST_RATE)
}

/// Writes the file whose `body` arrives to `part`, within its time limit. Leaves nothing if it fails.
async fn save<B: AsRef<[u8]>, S: Stream<Item = Result<B, reqwest::Error>>>(
    url: &Url,
    file: &manifest::File,
    part: &Path,
    body: impl Future<Output = Result<S, FetchError>>,
) -> Result<(), FetchError> {
    let received = async { receive(url, file, part, body.await?).await };
    let saved = within(file_time(file.size), url, received).await;
    if saved.is_err() {
        let _ = fs::remove_file(part);
    }
    saved
}

/// Writes a body to `part`, and verifies it meanwhile.
async fn receive<B: AsRef<[u8]>>(
    url: &Url,
    file: &manifest::File,
    part: &Path,
    body: impl Stream<Item = Result<B, reqwest::Error>>,
) -> Result<(), FetchError> {
    let failed = |error| FetchError::Write(part.to_owned(), error);
    let mut out = File::create(part).map_err(failed)?;
    let (mut hasher, mut length) = (Sha256::new(), 0);
    let mut body = pin!(body);
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| FetchError::Web(url.clone(), error))?;
        let bytes = chunk.as_ref();
        length += bytes.len() as u64;
        if length > file.size {
            return Err(FetchError::Endless(url.clone(), file.size));
        }
        hasher.update(bytes);
        out.write_all(bytes).map_err(failed)?;
    }
    if length != file.size || digest(hasher) != file.sha256 {
        return Err(FetchError::OtherFile(url.clone()));
    }
    out.sync_all().map_err(failed)
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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures::stream;
    use tokio::time::{Instant, sleep};

    use super::*;

    fn url() -> Url {
        "http://localhost/package.deb".parse().expect("an address")
    }

    fn file(size: u64, sha256: Digest) -> manifest::File {
        manifest::File { url: "package.deb".to_owned(), size, sha256 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_sends_a_byte_from_time_to_time_holds_a_run_for_a_limited_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = folder.path().join("package.part");
        let body = stream::unfold((), |()| async {
            // It never counts as silent.
            sleep(SILENCE.mul_f64(0.9)).await;
            Some((Ok::<_, reqwest::Error>(b"x"), ()))
        });
        let (file, begin) = (file(100_000, Digest::from_bytes([0; 32])), Instant::now());
        let refused = save(&url(), &file, &part, ready(Ok(body))).await.expect_err("too slow");
        assert!(matches!(refused, FetchError::Slow(..)), "{refused:?}");
        assert_eq!(refused.to_string(), "http://localhost/package.deb was not downloaded within 11 min");
        assert!((FILE_TIME..FILE_TIME + SILENCE).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        assert!(!part.exists(), "a part of it is left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_file_on_a_slow_line_has_the_time_that_it_needs() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = folder.path().join("package.part");
        let second = vec![b'x'; LEAST_RATE as usize];
        let content = second.repeat(2 * FILE_TIME.as_secs() as usize);
        let body = stream::iter(content.chunks(second.len())).then(|chunk| async move {
            sleep(Duration::from_secs(1)).await;
            Ok::<_, reqwest::Error>(chunk)
        });
        let sha256 = Digest::from_bytes(Sha256::digest(&content).into());
        let begin = Instant::now();
        let saved = save(&url(), &file(content.len() as u64, sha256), &part, ready(Ok(body))).await;
        saved.expect("it is fast enough");
        assert!(begin.elapsed() > FILE_TIME);
        assert_eq!(hash(&part).expect("its hash"), sha256);
    }
}
