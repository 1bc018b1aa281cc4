//! Downloads and pins the artifacts of a Cargo.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use island_cache::{Cache, Entry, GetError, Pinned, Progress, Transfer};
use island_daemon::chain::Chain;
use island_protocol::{
    artifact::Artifact,
    digest::Digest,
    job::{Failure, FailureCode},
};
use island_protocol_api::PREFIX;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Verified files by artifact name. They are pinned until this is dropped.
#[derive(Debug, Default)]
pub struct Files {
    /// Path of each file, or of the file derived from it.
    pub paths: BTreeMap<String, PathBuf>,
    pins: BTreeMap<String, Pinned>,
}

impl Files {
    /// Hashes the files again; returns whether one of them was damaged on the disk, and was removed. `progress` is called with numbers of bytes.
    pub async fn find_damage(
        &self,
        cache: &Cache,
        progress: impl Fn(u64) + Clone + Send + Sync + 'static,
    ) -> bool {
        let mut is_damaged = false;
        for (name, pin) in &self.pins {
            let path = pin.path().to_owned();
            let entry = Entry { url: name.clone(), digest: pin.digest(), size: pin.size(), path };
            let progress = progress.clone();
            let checked = cache.is_intact(&entry, move |done| {
                progress(done);
                true
            });
            match checked.await {
                Ok(is_intact) => is_damaged |= !is_intact,
                Err(error) => {
                    tracing::warn!(name, error = %Chain(&error), "a file of a model cannot be read again");
                    is_damaged = true;
                }
            }
        }
        is_damaged
    }

    /// Hashes of the files as they were downloaded, by artifact name.
    pub fn digests(&self) -> impl Iterator<Item = (&str, Digest)> {
        self.pins.iter().map(|(name, pin)| (name.as_str(), pin.digest()))
    }
}

/// Whether the engine downloads this artifact: an image in a registry.
pub fn is_image_reference(artifact: &Artifact) -> bool {
    artifact.url.starts_with("docker://")
}

/// Downloaded bytes of a file, and its size if known.
type Share = (u64, Option<u64>);

/// Downloaded bytes of all files together.
#[derive(Debug, Clone, Default)]
pub struct Fetched(Arc<Mutex<Shares>>);

#[derive(Debug, Default)]
struct Shares {
    files: BTreeMap<String, Share>,
    wait: Option<Wait>,
}

/// A server that accepts no more requests for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Its name.
    pub host: String,
    /// Until when.
    pub until: Instant,
}

impl Fetched {
    /// The downloaded bytes, and the total if the size of every file is known.
    pub fn sum(&self) -> (u64, Option<u64>) {
        let files = &self.0.lock().files;
        let done = files.values().map(|(done, _)| done).sum();
        (done, files.values().map(|(_, total)| *total).sum())
    }

    /// The server for which the downloads wait now.
    pub fn wait(&self) -> Option<Wait> {
        self.0.lock().wait.clone().filter(|wait| wait.until > Instant::now())
    }

    fn of(&self, name: &str) -> Arc<Progress> {
        let (all, name) = (Arc::clone(&self.0), name.to_owned());
        Arc::new(move |transfer| {
            let mut shares = all.lock();
            match transfer {
                Transfer::Bytes { done, total } => {
                    shares.files.insert(name.clone(), (done, total));
                }
                Transfer::Waiting { host, time } => {
                    shares.wait = Some(Wait { host, until: Instant::now() + time });
                }
            }
        })
    }
}

/// Returns the artifact with its address at the coordinator if it is a file there and not on this machine. Requires a hash, so that the
/// content is verified.
fn from_coordinator(artifact: &Artifact, api_url: &str) -> Option<Artifact> {
    let path = artifact.url.strip_prefix("file://")?;
    let digest = artifact.sha256.filter(|_| !Path::new(path).exists())?;
    let url = format!("{}{PREFIX}/artifacts/{}", api_url.trim_end_matches('/'), digest.hex());
    Some(Artifact { url, ..artifact.clone() })
}

/// Folders of the system that contain settings, secrets and states of processes.
const SYSTEM: [&str; 5] = ["/dev", "/etc", "/proc", "/run", "/sys"];

/// Returns the first artifact that is a file of this agent or of the system and has no hash. A coordinator that does not know the content
/// could read it in the output of a job.
fn hidden(artifacts: &[Artifact], private: &Path) -> Option<GetError> {
    let is_hidden = |path: &Path| {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let path = whole(path);
        path.starts_with(whole(private)) || SYSTEM.iter().any(|folder| path.starts_with(folder))
    };
    let mut paths = artifacts
        .iter()
        .filter(|artifact| artifact.sha256.is_none())
        .filter_map(|artifact| artifact.url.strip_prefix("file://").map(Path::new));
    paths.find(|path| is_hidden(path)).map(|path| GetError::NoHash { path: path.into() })
}

/// Downloads and pins all of `artifacts`; files on the coordinator's machine are downloaded from `api_url`. Files in `private`, the folder of
/// this agent, and of the system are used only if their hash is stated.
pub async fn fetch(
    cache: &Cache,
    api_url: &str,
    private: &Path,
    artifacts: &[Artifact],
    fetched: &Fetched,
    cancel: &CancellationToken,
) -> Result<Files, GetError> {
    if let Some(error) = hidden(artifacts, private) {
        return Err(error);
    }
    let one = |artifact: &Artifact| {
        let progress = fetched.of(&artifact.name);
        let artifact = from_coordinator(artifact, api_url).unwrap_or_else(|| artifact.clone());
        async move {
            let pinned = cache.get(&artifact, progress, cancel).await?;
            Ok::<_, GetError>((artifact.name, pinned))
        }
    };
    let files = artifacts.iter().filter(|artifact| !is_image_reference(artifact));
    let pinned = futures::future::try_join_all(files.map(one)).await?;
    let paths = pinned.iter().map(|(name, pin)| (name.clone(), pin.path().to_owned())).collect();
    Ok(Files { paths, pins: pinned.into_iter().collect() })
}

/// Megabytes still to be downloaded, as far as sizes are known.
pub fn missing_mb(cache: &Cache, artifacts: &[Artifact]) -> u64 {
    let missing = artifacts
        .iter()
        .filter(|artifact| !artifact.url.starts_with("file://") && !is_image_reference(artifact))
        .filter(|artifact| cache.lookup(artifact).is_none());
    missing.filter_map(|artifact| artifact.size_bytes).map(|bytes| bytes >> 20).sum()
}

/// Converts a failed download into the failure of the job.
pub fn failure(error: &GetError) -> Failure {
    if error.is_disk_full() {
        return Failure::of_host(FailureCode::DiskFull, "no disk space for the model's files");
    }
    match error {
        GetError::Address(_) => Failure::of_job(FailureCode::ModelRejected, error.to_string()),
        GetError::NoHash { .. } => Failure::of_job(
            FailureCode::ModelRejected,
            "a file of an Island or of its system is used only if its hash is stated",
        ),
        // Without the digest that was found: it may be that of a file on this machine.
        GetError::HashMismatch { expected, .. } => {
            let message = format!("a file of the model does not have the digest {expected}");
            Failure::of_host(FailureCode::ModelHashMismatch, message)
        }
        // The server's file, which is as public as its address.
        GetError::Changed { .. } => Failure::of_host(FailureCode::ModelHashMismatch, error.to_string()),
        GetError::Read { .. } | GetError::Write { .. } => Failure::of_host(
            FailureCode::ModelUnavailable,
            "a file of the model cannot be read or stored on this Island",
        ),
        // The message contains hosts and numbers of bytes, no complete addresses.
        GetError::Fetch { source, .. } => {
            Failure::of_host(FailureCode::ModelUnavailable, format!("{error}: {source}"))
        }
        _ => Failure::of_host(FailureCode::ModelUnavailable, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use island_cache::WebError;
    use island_protocol::job::Fault;

    use super::*;
    use crate::testing;

    #[test]
    fn an_invalid_download_fails_the_attempt_with_the_reason() {
        let host = || "files.example".to_owned();
        let sources = [
            (
                WebError::Size { host: host(), stated: 5, announced: u64::MAX },
                "files.example announced 18446744073709551615 bytes for a file of 5",
            ),
            (
                WebError::Excess { host: host(), expected: 5, got: 6 },
                "files.example sent at least 6 bytes where 5 were due",
            ),
            (WebError::Changed { host: host() }, "the file on files.example changed while it was fetched"),
        ];
        for (source, reason) in sources {
            let failure = failure(&GetError::Fetch { host: host(), source });
            // The Island's failure, not the job's: another Island may be able to download the file.
            assert_eq!((failure.fault, failure.code), (Fault::Host, FailureCode::ModelUnavailable));
            assert_eq!(failure.message, format!("fetch the file from files.example: {reason}"));
        }
    }

    #[tokio::test]
    async fn a_coordinator_names_no_file_here_of_which_it_knows_no_hash() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(testing::cache(folder.path())).expect("a cache");
        let secret = folder.path().join("identity.json");
        std::fs::write(&secret, "secret").expect("written");
        let url = format!("file://{}", secret.display());
        let get = async |sha256| {
            let artifact = Artifact { name: "vocab.txt".into(), url: url.clone(), sha256, size_bytes: None };
            let cancel = CancellationToken::new();
            fetch(&cache, "http://127.0.0.1:9", folder.path(), &[artifact], &Fetched::default(), &cancel)
                .await
        };
        let refused = get(None).await.expect_err("any file could be named");
        assert!(matches!(refused, GetError::NoHash { .. }), "{refused:?}");
        assert_eq!(failure(&refused).code, FailureCode::ModelRejected);
        assert!(cache.list().is_empty(), "it was not read");
        let refused = get(Some(island_cache::digest_of(b"a guess"))).await.expect_err("another file");
        let (found, message) = (island_cache::digest_of(b"secret"), failure(&refused).message);
        assert!(!message.contains(&found.hex()), "{message}");
        let files = get(Some(found)).await.expect("its content is known");
        assert_eq!(files.paths["vocab.txt"], secret);
        let artifact = |path: &Path| {
            let url = format!("file://{}", path.display());
            Artifact { name: "vocab.txt".into(), url, sha256: None, size_bytes: None }
        };
        let elsewhere = tempfile::tempdir().expect("a folder");
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(&secret, &link).expect("a link");
        for path in [Path::new("/proc/self/environ"), Path::new("/etc/hostname"), &link] {
            assert!(hidden(&[artifact(path)], folder.path()).is_some(), "{}", path.display());
        }
        assert!(hidden(&[artifact(&elsewhere.path().join("model"))], folder.path()).is_none());
    }

    #[test]
    fn only_missing_files_with_a_hash_are_downloaded_from_the_coordinator() {
        let digest = island_cache::digest_of(b"a");
        let artifact =
            |url: &str, sha256| Artifact { name: "model".into(), url: url.into(), sha256, size_bytes: None };
        let elsewhere = artifact("file:///nowhere/a.wasm", Some(digest));
        let fetched = from_coordinator(&elsewhere, "http://127.0.0.1:80/").expect("an address");
        assert_eq!(fetched.url, format!("http://127.0.0.1:80/api/v1/artifacts/{}", digest.hex()));
        assert_eq!(fetched.sha256, Some(digest));
        assert_eq!(from_coordinator(&artifact("file:///nowhere/a", None), "http://x"), None);
        let here = format!("file://{}", std::env::temp_dir().display());
        assert_eq!(from_coordinator(&artifact(&here, Some(digest)), "http://x"), None);
        assert_eq!(from_coordinator(&artifact("hf://a/b", Some(digest)), "http://x"), None);
    }
}
