//! The cache.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use fail::fail_point;
use island_protocol::{
    address::{Address, HubAddress},
    artifact::Artifact,
    digest::Digest,
};
use reqwest::Url;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use crate::{
    GetError, OpenError, Pinned,
    download::{Download, Fetched, Part, Partial},
    evict::{self, Removable},
    foreign, hash,
    hub::Hub,
    index::{self, Reference},
    layout::{Layout, MARK},
    local, lock,
    mismatch::{Mismatch, Mismatches},
    pace::Pace,
    space::{Reservation, Space},
    web::{Destinations, Web, WebError},
};

/// What a download reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transfer {
    /// Bytes that are here.
    Bytes {
        /// Their number.
        done: u64,
        /// That of the whole file, if known.
        total: Option<u64>,
    },
    /// A server accepts no more requests, and the download waits.
    Waiting {
        /// The server.
        host: String,
        /// How long.
        time: Duration,
    },
}

/// Called with each report of a download.
pub type Progress = dyn Fn(Transfer) + Send + Sync;

/// Settings of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Its folder; created if it does not exist.
    pub dir: PathBuf,
    /// Size in bytes; beyond it the least recently used files are removed.
    pub max_bytes: u64,
    /// Bytes of the disk that stay free.
    pub min_free_bytes: u64,
    /// Folders whose files count within the same limits.
    pub beside: Vec<Beside>,
    /// Address of the model hub.
    pub hub_endpoint: String,
    /// Token for the hub, sent to no other host.
    pub hub_token: Option<String>,
    /// Folder of other programs' hub files on this machine, one folder for each repository; they are read but never changed.
    pub hub_files: Option<PathBuf>,
    /// Download nothing.
    pub offline: bool,
    /// Bytes per second of all downloads together; `None` means no limit.
    pub max_bytes_per_second: Option<u64>,
}

/// A folder beside the cache, on the same disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    /// The folder.
    pub dir: PathBuf,
    /// Whether files directly in it may be removed like those of the cache, the least recently modified first. Only files are removed whose
    /// names begin with a digest.
    pub is_evictable: bool,
}

/// A verified file on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Address for which it was requested.
    pub url: String,
    /// Its digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Its path.
    pub path: PathBuf,
}

/// A file in the cache's own folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFile {
    /// Its digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last used.
    pub used: SystemTime,
}

/// The folder of the verified files in a cache's folder. It contains nothing else.
pub fn verified_files(dir: &Path) -> PathBuf {
    Layout::new(dir.to_owned()).blobs()
}

/// A handle on the cache; clones share it.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: CacheConfig,
    layout: Layout,
    space: Space,
    web: Web,
    pace: Pace,
    hub: Hub,
    damaged: AtomicU64,
    mismatches: Mismatches,
    /// Addresses that are being downloaded; other requests wait.
    busy: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

/// Permission to download an address: in this process, and on this machine, which is given up first.
#[derive(Debug)]
struct Turn {
    _on_this_machine: File,
    _in_this_process: OwnedMutexGuard<()>,
}

impl Cache {
    /// Opens or creates the cache, which downloads from any host.
    pub fn open(config: CacheConfig) -> Result<Self, OpenError> {
        Self::build(config, None)
    }

    /// Opens or creates the cache, which downloads only from where `destinations` permits.
    pub fn open_for(config: CacheConfig, destinations: Arc<dyn Destinations>) -> Result<Self, OpenError> {
        Self::build(config, Some(destinations))
    }

    fn build(config: CacheConfig, destinations: Option<Arc<dyn Destinations>>) -> Result<Self, OpenError> {
        let layout = Layout::new(config.dir.clone());
        let failed = |source| OpenError::Create { path: config.dir.clone(), source };
        for folder in [layout.blobs(), layout.refs(), layout.partial(), layout.markers()] {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(layout.root().join(MARK), "Files in here may be removed at any time.\n").map_err(failed)?;
        let space = Space::new(layout.clone(), &config);
        space.sweep();
        let hub = Hub::new(&config.hub_endpoint, config.hub_token.clone())?;
        let web = Web::new(hub.endpoint().clone(), config.hub_token.clone(), destinations);
        let web = web.map_err(OpenError::Web)?;
        let pace = Pace::new(config.max_bytes_per_second);
        let mismatches = Mismatches::load(layout.mismatches());
        Ok(Self(Arc::new(Inner {
            config,
            layout,
            space,
            web,
            pace,
            hub,
            damaged: AtomicU64::new(0),
            mismatches,
            busy: Mutex::default(),
        })))
    }

    /// Returns the file of `artifact`: downloaded if it is not cached, verified, and pinned until the result is dropped.
    ///
    /// Concurrent requests download it once. Dropping the future stops the download, which continues from there next time.
    pub async fn get(
        &self,
        artifact: &Artifact,
        progress: Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Pinned, GetError> {
        let address = artifact.url.parse()?;
        if let Address::Local(path) = address {
            return self.pin_elsewhere(artifact, path, progress, cancel).await;
        }
        if let Some(pinned) = self.here(artifact, &progress, cancel).await {
            return Ok(pinned);
        }
        let busy = self.0.busy(&artifact.url);
        let in_this_process = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(GetError::Cancelled),
            turn = busy.lock_owned() => turn,
        };
        let on_this_machine = self.0.lock(&artifact.url, cancel).await?;
        let turn = Arc::new(Turn { _on_this_machine: on_this_machine, _in_this_process: in_this_process });
        if let Some(pinned) = self.here(artifact, &progress, cancel).await {
            return Ok(pinned);
        }
        if let Some(pinned) = self.unrecorded(artifact, &progress, cancel).await {
            return Ok(pinned);
        }
        if let Address::Hub(hub) = &address
            && let Some(pinned) = self.foreign(artifact, hub, &progress, cancel).await
        {
            return Ok(pinned);
        }
        self.fetch(artifact, &address, &progress, cancel, &turn).await
    }

    /// Whether a file is in the cache's own folder.
    pub fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.0.config.dir)
    }

    /// Returns the file of `artifact` if it is cached and verified.
    pub fn lookup(&self, artifact: &Artifact) -> Option<Entry> {
        self.0.find(artifact)
    }

    /// Returns all known files.
    pub fn list(&self) -> Vec<Entry> {
        let entry = |reference: Reference| {
            let path = reference.path(&self.0.layout)?;
            Some(Entry { url: reference.url, digest: reference.digest, size: reference.size, path })
        };
        index::all(&self.0.layout).into_iter().filter_map(entry).collect()
    }

    /// Returns the cache's own files, with the last use of each, without those of other programs.
    pub fn own_files(&self) -> Vec<OwnFile> {
        let own = |file: evict::Candidate| match file.what {
            Removable::Blob(digest) => Some(OwnFile { digest, size: file.size, used: file.used }),
            Removable::Partial(_) | Removable::Beside(_) => None,
        };
        index::candidates(&self.0.layout).into_iter().filter_map(own).collect()
    }

    /// Returns the bytes that fit without removing anything. Files that are being downloaded count with their whole length.
    pub fn free_bytes(&self) -> u64 {
        self.0.space.spare()
    }

    /// Returns the bytes that fit if everything is removed that may be.
    pub fn available_bytes(&self) -> u64 {
        self.0.space.available()
    }

    /// Keeps disk space free for files beside the cache until the result is dropped. Removes files if needed.
    ///
    /// Reservations are of this process: others that use the same cache do not see them.
    pub async fn reserve(&self, bytes: u64, cancel: &CancellationToken) -> Result<Reservation, GetError> {
        self.0.space.reserve(bytes, cancel).await
    }

    /// Hashes a verified file again. One that has changed is removed if it is the cache's own, and otherwise no longer counts as verified; it
    /// is downloaded when it is needed. `go_on` is called with the number of bytes that were read, may block, and ends the check by `false`:
    /// then the file counts as intact.
    pub async fn is_intact(
        &self,
        entry: &Entry,
        go_on: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Result<bool, GetError> {
        let (markers, own, entry) =
            (self.0.layout.markers(), self.0.layout.blob(entry.digest), entry.clone());
        let path = entry.path.clone();
        let checked = tokio::task::spawn_blocking(move || {
            let stop = CancellationToken::new();
            let go_on = |done| {
                if !go_on(done) {
                    stop.cancel();
                }
            };
            let found = File::open(&entry.path).and_then(|file| hash::file(&file, &go_on, &stop));
            // Bytes that cannot be read are as wrong as others.
            let is_intact = found.is_ok_and(|found| found.is_none_or(|found| found == entry.digest));
            if !is_intact {
                local::forget(&markers, &entry.path);
                if entry.path == own {
                    // Also while it is in use: a pin protects a good file.
                    let _ = fs::remove_file(&own);
                }
            }
            is_intact
        });
        let checked = checked.await.map_err(io::Error::other);
        let is_intact = checked.map_err(|source| GetError::Read { path, source })?;
        if !is_intact {
            self.0.damaged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_intact)
    }

    /// Number of files that were found damaged since it was opened.
    pub fn damaged(&self) -> u64 {
        self.0.damaged.load(Ordering::Relaxed)
    }

    /// Files that are not requested for some time, because their hash is not the one that their Cargo states, by address without parameters.
    pub fn mismatches(&self) -> Vec<(String, Mismatch)> {
        let all = self.0.mismatches.list().into_iter();
        all.map(|(url, mismatch)| (without_parameters(&url), mismatch)).collect()
    }

    /// Removes one of its own files unless it is pinned. Returns whether it does not exist any more.
    pub fn remove(&self, digest: Digest) -> bool {
        self.0.layout.root().join(MARK).is_file() && evict::remove_unpinned(&self.0.layout.blob(digest))
    }

    /// Whether files could be downloaded from the hub now.
    pub async fn is_hub_reachable(&self) -> bool {
        !self.0.config.offline && self.0.web.answers(self.0.hub.endpoint()).await
    }

    /// Returns a cached file, pinned.
    async fn here(
        &self,
        artifact: &Artifact,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Option<Pinned> {
        let entry = self.0.find(artifact)?;
        let pinned = self.pin(entry.path, progress, cancel).await.ok()?;
        let reference = self.0.reference(&artifact.url, &pinned);
        if index::find(&self.0.layout, &artifact.url).as_ref() == Some(&reference) {
            index::touch(&self.0.layout, &artifact.url);
        } else {
            self.0.note(reference).await;
        }
        (pinned.digest() == entry.digest).then_some(pinned)
    }

    /// Returns a file of the cache that its record does not describe any more, such as after the folder was copied to another disk: it is
    /// hashed again.
    async fn unrecorded(
        &self,
        artifact: &Artifact,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Option<Pinned> {
        let resolved = || index::find(&self.0.layout, &artifact.url).map(|reference| reference.digest);
        let digest = artifact.sha256.or_else(resolved)?;
        let pinned = self.pin(self.0.layout.blob(digest), progress, cancel).await.ok()?;
        if pinned.digest() != digest {
            return None;
        }
        self.0.note(self.0.reference(&artifact.url, &pinned)).await;
        Some(pinned)
    }

    /// Returns a file of another program, if it is the requested one.
    async fn foreign(
        &self,
        artifact: &Artifact,
        address: &HubAddress,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Option<Pinned> {
        let path = foreign::find(self.0.config.hub_files.as_deref()?, address)?;
        let size = fs::metadata(&path).ok()?.len();
        if artifact.size_bytes.is_some_and(|expected| expected != size) {
            return None;
        }
        let pinned = self.pin(path, progress, cancel).await.ok()?;
        if artifact.sha256.is_some_and(|expected| expected != pinned.digest()) {
            return None;
        }
        self.0.note(self.0.reference(&artifact.url, &pinned)).await;
        Some(pinned)
    }

    async fn pin_elsewhere(
        &self,
        artifact: &Artifact,
        path: PathBuf,
        progress: Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Pinned, GetError> {
        let pinned = self.pin(path, &progress, cancel).await?;
        verify(artifact, None, pinned.digest())?;
        self.0.note(self.0.reference(&artifact.url, &pinned)).await;
        Ok(pinned)
    }

    async fn fetch(
        &self,
        artifact: &Artifact,
        address: &Address,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
        turn: &Arc<Turn>,
    ) -> Result<Pinned, GetError> {
        if self.0.config.offline {
            return Err(unavailable(artifact, "downloads are disabled on this Island"));
        }
        let changed =
            |expected, found| GetError::Changed { file: without_parameters(&artifact.url), expected, found };
        if let Some(expected) = artifact.sha256
            && let Some(known) = self.0.mismatches.refused(&artifact.url, expected)
        {
            return Err(changed(expected, known.found));
        }
        let url = match address {
            Address::Hub(hub) => tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(GetError::Cancelled),
                url = self.0.hub.locate(hub, &**progress) => url?,
            },
            Address::Web(url) => Url::parse(url).map_err(|error| unavailable(artifact, &error))?,
            Address::Local(_) => unreachable!("local files are used in place"),
        };
        let path = self.0.layout.part(&artifact.url).with_extension("part");
        let part = Partial::new(&path);
        let download = Download {
            pace: &self.0.pace,
            web: &self.0.web,
            url: &url,
            stated: artifact.size_bytes,
            expected: artifact.sha256,
            part: &part,
            space: &self.0.space,
            progress: &**progress,
            cancel,
        };
        let fetched = match (download.run().await, artifact.sha256) {
            (Ok(Fetched { digest: found, .. }), Some(expected)) if expected != found => {
                Err(changed(expected, found))
            }
            (Err(GetError::Fetch { source: WebError::Hash { stated, .. }, .. }), Some(expected)) => {
                Err(changed(expected, stated))
            }
            (Ok(fetched), _) => verify(artifact, fetched.promised, fetched.digest).map(|()| fetched),
            (Err(error), _) => Err(error),
        };
        let fetched = fetched.inspect_err(|error| {
            if let GetError::Changed { file, expected, found } = error {
                tracing::warn!(file, %expected, %found, "a file is not what its Cargo states, and is not requested for some time");
                self.0.mismatches.note(&artifact.url, *expected, *found);
            }
            // Of a file with a wrong hash it is unknown which piece is wrong: all of them are removed.
            if matches!(error, GetError::Changed { .. } | GetError::HashMismatch { .. }) {
                part.set_of_use(false);
            }
        })?;
        self.0.mismatches.forget(&artifact.url);
        let kept = self.keep(&path, &fetched, cancel, turn).await;
        let kept = kept.inspect_err(|error| part.set_of_use(error.leaves_partial()))?;
        Part::remove(&path);
        let pinned = self.pin(kept, progress, cancel).await?;
        self.0.note(self.0.reference(&artifact.url, &pinned)).await;
        Ok(pinned)
    }

    /// Moves a verified file to its final path.
    async fn keep(
        &self,
        part: &Path,
        fetched: &Fetched,
        cancel: &CancellationToken,
        turn: &Arc<Turn>,
    ) -> Result<PathBuf, GetError> {
        let (from, to) = (part.to_owned(), self.0.layout.blob(fetched.digest));
        let (markers, blobs, digest) = (self.0.layout.markers(), self.0.layout.blobs(), fetched.digest);
        let target = to.clone();
        let synced = tokio::task::spawn_blocking(move || sync(&from).map(|()| from));
        let synced = synced.await.map_err(io::Error::other).and_then(|synced| synced);
        let from = synced.map_err(|source| GetError::Write { path: part.to_owned(), source })?;
        // A count of the held bytes must find the file exactly once.
        let exclusive = self.0.space.lock_exclusively(cancel).await?;
        // Also if this is dropped: until the file is moved, nobody else may use the partial file of its address.
        let turn = Arc::clone(turn);
        let moved = tokio::task::spawn_blocking(move || {
            let (_exclusive, _turn) = (exclusive, turn);
            move_to(&from, &target)?;
            File::open(blobs)?.sync_all()?;
            local::remember(&markers, &target, digest)
        });
        let moved = moved.await.map_err(io::Error::other).and_then(|moved| moved);
        moved.map_err(|source| GetError::Write { path: to.clone(), source })?;
        Ok(to)
    }

    async fn pin(
        &self,
        path: PathBuf,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Pinned, GetError> {
        let (markers, progress, cancel) = (self.0.layout.markers(), Arc::clone(progress), cancel.clone());
        tokio::task::spawn_blocking(move || local::pin(&markers, &path, &*progress, &cancel))
            .await
            .expect("hashing does not panic")
    }
}

impl Inner {
    /// Returns the verified file of `artifact`: by its digest, or by what its address resolved to.
    fn find(&self, artifact: &Artifact) -> Option<Entry> {
        let entry = |digest, path: PathBuf, size| Entry { url: artifact.url.clone(), digest, size, path };
        if let Some(digest) = artifact.sha256 {
            let path = self.layout.blob(digest);
            if let Some((found, size)) = local::Marker::lookup(&self.layout.markers(), &path)
                && found == digest
            {
                return Some(entry(digest, path, size));
            }
        }
        let reference = index::find(&self.layout, &artifact.url)?;
        let path = reference.path(&self.layout)?;
        let is_wanted = artifact.sha256.is_none_or(|expected| expected == reference.digest);
        is_wanted.then(|| entry(reference.digest, path, reference.size))
    }

    fn reference(&self, url: &str, pinned: &Pinned) -> Reference {
        let is_ours = pinned.path() == self.layout.blob(pinned.digest());
        let elsewhere = (!is_ours).then(|| pinned.path().to_owned());
        Reference { url: url.to_owned(), digest: pinned.digest(), size: pinned.size(), elsewhere }
    }

    /// If the entry cannot be written, the file is searched for again next time.
    async fn note(&self, reference: Reference) {
        let layout = self.layout.clone();
        let stored = tokio::task::spawn_blocking(move || reference.store(&layout)).await;
        if let Err(error) = stored.map_err(io::Error::other).and_then(|stored| stored) {
            tracing::warn!(%error, "cannot record the path of a file");
        }
    }

    fn busy(&self, url: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut busy = self.busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        busy.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = busy.get(url).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        busy.insert(url.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// Prevents that other processes download the same address. Released when the process ends, in any way.
    async fn lock(&self, url: &str, cancel: &CancellationToken) -> Result<File, GetError> {
        lock::wait(&self.layout.part(url).with_extension("lock"), cancel).await
    }
}

/// An address for people: its parameters may be secrets.
fn without_parameters(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// Writes the bytes of a file to the disk.
fn sync(path: &Path) -> io::Result<()> {
    fail_point!("cache.sync", |action: Option<String>| {
        if action.as_deref() == Some("crash") {
            std::process::abort();
        }
        Err(rustix::io::Errno::NOSPC.into())
    });
    File::open(path)?.sync_all()
}

/// Gives a file, whose bytes are on the disk, its final name.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    fail_point!("cache.rename", |action: Option<String>| {
        if action.as_deref() == Some("crash") {
            std::process::abort();
        }
        Err(rustix::io::Errno::IO.into())
    });
    fs::rename(from, to)
}

fn unavailable(artifact: &Artifact, reason: &(impl ToString + ?Sized)) -> GetError {
    GetError::Unavailable { url: artifact.url.clone(), reason: reason.to_string() }
}

/// Whether a file has the digest in the artifact, or that of the hub.
fn verify(artifact: &Artifact, promised: Option<Digest>, found: Digest) -> Result<(), GetError> {
    match artifact.sha256.or(promised) {
        Some(expected) if expected != found => Err(GetError::HashMismatch { expected, found }),
        _ => Ok(()),
    }
}
