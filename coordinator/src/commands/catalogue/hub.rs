//! Reads revisions, hashes and lengths of a repository's files from a model hub.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use island_protocol::{address::HubAddress, artifact::Artifact, digest::Digest};
use reqwest::{Client, StatusCode, Url, header::RETRY_AFTER};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::online::Listed;
use island_coordinator_domain::catalogue::pins::Pin;

/// The default hub.
pub(super) const PUBLIC: &str = "https://huggingface.co";
/// Maximum length of a file that is downloaded for its hash. Larger ones are stored by their hash, which the hub
/// reports.
const MAX_PLAIN_BYTES: u64 = 64 << 20;
const TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum time that is waited once if the hub accepts no more requests, and how often.
const MAX_WAIT: Duration = Duration::from_mins(10);
const MAX_WAITS: u32 = 5;

/// A hub.
#[derive(Debug)]
pub(super) struct Hub {
    client: Client,
    endpoint: Url,
    token: Option<String>,
}

/// A repository at a commit.
#[derive(Debug, Deserialize)]
struct Info {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<Lfs>,
}

/// A file that is stored by its hash.
#[derive(Debug, Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Hub {
    pub(super) fn new(endpoint: &str) -> anyhow::Result<Self> {
        let endpoint =
            Url::parse(endpoint).with_context(|| format!("{endpoint:?} is not an address of a hub"))?;
        let client = Client::builder().timeout(TIMEOUT).build().context("set up HTTP")?;
        Ok(Self { client, endpoint, token: std::env::var("HF_TOKEN").ok() })
    }

    /// Returns the pins of files of one repository, or an error if one of them cannot be pinned.
    pub(super) async fn pins(
        &self,
        owner: &str,
        repo: &str,
        revision: Option<&str>,
        files: &[(HubAddress, Artifact)],
    ) -> anyhow::Result<Vec<(HubAddress, Pin)>> {
        let info = self.info(owner, repo, revision.unwrap_or("main")).await?;
        ensure!(
            !info.sha.is_empty() && info.sha.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "the hub names no commit"
        );
        let known: HashMap<&str, &Sibling> =
            info.siblings.iter().map(|sibling| (sibling.rfilename.as_str(), sibling)).collect();
        let mut pins = Vec::with_capacity(files.len());
        for (address, artifact) in files {
            let file = address.file.as_deref().unwrap_or_default();
            let sibling = known.get(file).with_context(|| format!("it has no file {file}"))?;
            let (sha256, size_bytes) = match &sibling.lfs {
                Some(lfs) => {
                    let digest = format!("sha256:{}", lfs.sha256).parse();
                    (
                        digest.with_context(|| format!("the hub returned an invalid hash for {file}"))?,
                        lfs.size,
                    )
                }
                None => self.measure(owner, repo, &info.sha, file, sibling.size).await?,
            };
            let differs = artifact.sha256.is_some_and(|known| known != sha256)
                || artifact.size_bytes.is_some_and(|known| known != size_bytes);
            ensure!(
                !differs,
                "{file} differs from its catalogue entry: the hub has {sha256}, {size_bytes} bytes"
            );
            pins.push((address.clone(), Pin { revision: info.sha.clone(), sha256, size_bytes }));
        }
        Ok(pins)
    }

    /// Returns the files of a repository at a revision by path.
    pub(super) async fn list(
        &self,
        owner: &str,
        repo: &str,
        revision: &str,
    ) -> anyhow::Result<BTreeMap<String, Listed>> {
        let info = self.info(owner, repo, revision).await?;
        let listed = |sibling: Sibling| {
            let size = sibling.lfs.as_ref().map(|lfs| lfs.size).or(sibling.size);
            let sha256 = sibling.lfs.map(|lfs| lfs.sha256);
            (sibling.rfilename, Listed { size, sha256, content: sibling.blob })
        };
        Ok(info.siblings.into_iter().map(listed).collect())
    }

    async fn info(&self, owner: &str, repo: &str, revision: &str) -> anyhow::Result<Info> {
        let mut url = self.url(&["api", "models", owner, repo, "revision"], revision);
        url.set_query(Some("blobs=true"));
        self.get(url).await?.json().await.context("read the hub's reply")
    }

    /// Computes hash and length of a small file, for which the hub reports another kind of hash.
    async fn measure(
        &self,
        owner: &str,
        repo: &str,
        commit: &str,
        file: &str,
        size: Option<u64>,
    ) -> anyhow::Result<(Digest, u64)> {
        let mut answer = self.get(self.url(&[owner, repo, "resolve", commit], file)).await?;
        let (mut hash, mut length) = (Sha256::new(), 0);
        while let Some(chunk) = answer.chunk().await.with_context(|| format!("fetch {file}"))? {
            length += chunk.len() as u64;
            ensure!(length <= MAX_PLAIN_BYTES, "{file} is longer than {MAX_PLAIN_BYTES} bytes");
            hash.update(&chunk);
        }
        ensure!(size.is_none_or(|size| size == length), "{file}: received {length} bytes of {size:?}");
        Ok((Digest::from_bytes(hash.finalize().into()), length))
    }

    async fn get(&self, url: Url) -> anyhow::Result<reqwest::Response> {
        let mut waits_left = MAX_WAITS;
        let answer = loop {
            let request = self.client.get(url.clone());
            let request = match &self.token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            let answer = request.send().await.with_context(|| format!("request {url}"))?;
            let after = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
            let wait = Duration::from_secs(after.unwrap_or(60));
            if answer.status() != StatusCode::TOO_MANY_REQUESTS || wait > MAX_WAIT || waits_left == 0 {
                break answer;
            }
            eprintln!("the hub accepts no more requests for {} s", wait.as_secs());
            tokio::time::sleep(wait).await;
            waits_left -= 1;
        };
        let status = answer.status();
        ensure!(
            status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN,
            "the repository requires a token (HF_TOKEN), or does not exist"
        );
        answer.error_for_status().context("the hub returned an error")
    }

    fn url(&self, parts: &[&str], last: &str) -> Url {
        let mut url = self.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts).extend(last.split('/'));
        }
        url
    }
}
