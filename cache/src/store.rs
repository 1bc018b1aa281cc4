//! The way into the cache.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::SystemTime,
};

use island_protocol::{
    address::{Address, HubAddress},
    artifact::Artifact,
    digest::Digest,
};
use reqwest::Url;
use tokio_util::sync::CancellationToken;

use crate::{
    GetError, OpenError, Pinned,
    download::{Download, Fetched, Part, Partial},
    evict::{self, Removable},
    foreign,
    hub::Hub,
    index::{self, Reference},
    layout::{Layout, MARK},
    local, lock,
    pace::Pace,
    room::Room,
    web::Web,
};

/// Told how many bytes are done, and of how many where that is known.
pub type Progress = dyn Fn(u64, Option<u64>) + Send + Sync;

/// Settings of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Its folder; made if missing.
    pub dir: PathBuf,
    /// Bytes after which the least recently used files go.
    pub max_bytes: u64,
    /// Bytes of the disk that are never taken.
    pub min_free_bytes: u64,
    /// Address of the model hub.
    pub hub_endpoint: String,
    /// Secret for the hub, and for no other host.
    pub hub_token: Option<String>,
    /// Home of other programs' hub files on this machine, which are read but never changed.
    pub hf_home: Option<PathBuf>,
    /// Never fetch.
    pub offline: bool,
    /// Bytes a second that all fetches together may take; none: as fast as they come.
    pub max_bytes_per_second: Option<u64>,
}

/// A file that is here and verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Address it was asked for under.
    pub url: String,
    /// What it is.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Where it lies.
    pub path: PathBuf,
}

/// A file in the cache's own folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFile {
    /// What it is.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// When anybody last used it.
    pub used: SystemTime,
}

/// Handle on the store; clones share it.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: CacheConfig,
    layout: Layout,
    room: Room,
    web: Web,
    pace: Pace,
    hub: Hub,
    /// Addresses that somebody fetches right now: others wait for that.
    busy: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Cache {
    /// Opens or makes the store.
    pub fn open(config: CacheConfig) -> Result<Self, OpenError> {
        let layout = Layout::new(config.dir.clone());
        let failed = |source| OpenError::Create { path: config.dir.clone(), source };
        for folder in [layout.blobs(), layout.refs(), layout.partial(), layout.markers()] {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(layout.root().join(MARK), "Files in here may be removed at any time.\n").map_err(failed)?;
        let room = Room::new(layout.clone(), &config);
        room.sweep();
        let hub = Hub::new(&config.hub_endpoint, config.hub_token.clone())?;
        let token = config.hub_token.clone().map(|token| (hub.endpoint().clone(), token));
        let web = Web::new(token).map_err(OpenError::Web)?;
        let pace = Pace::new(config.max_bytes_per_second);
        Ok(Self(Arc::new(Inner { config, layout, room, web, pace, hub, busy: Mutex::default() })))
    }

    /// The file of `artifact`: fetched if it is not here, verified, and pinned while the answer lives.
    ///
    /// However many ask at once, it is fetched once. Giving up waiting stops the fetch, which goes on from there next
    /// time.
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
        let _in_this_process = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(GetError::Cancelled),
            turn = busy.lock() => turn,
        };
        let _on_this_machine = self.0.lock(&artifact.url, cancel).await?;
        if let Some(pinned) = self.here(artifact, &progress, cancel).await {
            return Ok(pinned);
        }
        if let Address::Hub(hub) = &address
            && let Some(pinned) = self.foreign(artifact, hub, &progress, cancel).await
        {
            return Ok(pinned);
        }
        self.fetch(artifact, &address, &progress, cancel).await
    }

    /// Whether a file lies in the cache's own folder, and not elsewhere on this machine.
    pub fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.0.config.dir)
    }

    /// The file of `artifact` if it is here and verified.
    pub fn lookup(&self, artifact: &Artifact) -> Option<Entry> {
        self.0.find(artifact)
    }

    /// Everything that is here.
    pub fn list(&self) -> Vec<Entry> {
        let entry = |reference: Reference| {
            let path = reference.path(&self.0.layout)?;
            Some(Entry { url: reference.url, digest: reference.digest, size: reference.size, path })
        };
        index::all(&self.0.layout).into_iter().filter_map(entry).collect()
    }

    /// The cache's own files, with the last use of each. Files of other programs are not among them.
    pub fn own_files(&self) -> Vec<OwnFile> {
        let own = |file: evict::Candidate| match file.what {
            Removable::Blob(digest) => Some(OwnFile { digest, size: file.size, used: file.used }),
            Removable::Partial(_) => None,
        };
        index::candidates(&self.0.layout).into_iter().filter_map(own).collect()
    }

    /// Bytes that fit without removing anything. Files that are being fetched count with their whole length.
    pub fn room(&self) -> u64 {
        self.0.room.spare()
    }

    /// Removes one of its own files, unless somebody has it pinned. Gives whether it is gone.
    pub fn remove(&self, digest: Digest) -> bool {
        self.0.layout.root().join(MARK).is_file() && evict::remove_unpinned(&self.0.layout.blob(digest))
    }

    /// Whether files that are not here could be fetched from the hub now.
    pub async fn is_hub_reachable(&self) -> bool {
        !self.0.config.offline && self.0.web.answers(self.0.hub.endpoint()).await
    }

    /// A file that is here, pinned.
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
            self.0.note(&reference);
        }
        (pinned.digest() == entry.digest).then_some(pinned)
    }

    /// A file of another program's, if it is the one wanted.
    async fn foreign(
        &self,
        artifact: &Artifact,
        address: &HubAddress,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Option<Pinned> {
        let path = foreign::find(self.0.config.hf_home.as_deref()?, address)?;
        let size = fs::metadata(&path).ok()?.len();
        if artifact.size_bytes.is_some_and(|expected| expected != size) {
            return None;
        }
        let pinned = self.pin(path, progress, cancel).await.ok()?;
        if artifact.sha256.is_some_and(|expected| expected != pinned.digest()) {
            return None;
        }
        self.0.note(&self.0.reference(&artifact.url, &pinned));
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
        judge(artifact, None, pinned.digest())?;
        self.0.note(&self.0.reference(&artifact.url, &pinned));
        Ok(pinned)
    }

    async fn fetch(
        &self,
        artifact: &Artifact,
        address: &Address,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Pinned, GetError> {
        if self.0.config.offline {
            return Err(unavailable(artifact, "this Island fetches nothing"));
        }
        let url = match address {
            Address::Hub(hub) => self.0.hub.locate(hub).await?,
            Address::Web(url) => Url::parse(url).map_err(|error| unavailable(artifact, &error))?,
            Address::Local(_) => unreachable!("local files are used where they lie"),
        };
        let path = self.0.layout.part(&artifact.url).with_extension("part");
        let part = Partial::new(&path);
        let download = Download {
            pace: &self.0.pace,
            web: &self.0.web,
            url: &url,
            stated: artifact.size_bytes,
            part: &part,
            room: &self.0.room,
            progress: &**progress,
            cancel,
        };
        let fetched = download.run().await?;
        if let Err(error) = judge(artifact, fetched.promised, fetched.digest) {
            // Nothing says which piece is bad: all of it goes.
            part.set_of_use(false);
            return Err(error);
        }
        let kept = self.keep(&path, &fetched, cancel).await;
        let kept = kept.inspect_err(|error| part.set_of_use(error.leaves_partial()))?;
        Part::remove(&path);
        let pinned = self.pin(kept, progress, cancel).await?;
        self.0.note(&self.0.reference(&artifact.url, &pinned));
        Ok(pinned)
    }

    /// Moves a verified file to its place.
    async fn keep(
        &self,
        part: &Path,
        fetched: &Fetched,
        cancel: &CancellationToken,
    ) -> Result<PathBuf, GetError> {
        let (from, to) = (part.to_owned(), self.0.layout.blob(fetched.digest));
        let (markers, blobs, digest) = (self.0.layout.markers(), self.0.layout.blobs(), fetched.digest);
        let target = to.clone();
        let synced = tokio::task::spawn_blocking(move || File::open(&from)?.sync_all().map(|()| from));
        let synced = synced.await.map_err(io::Error::other).and_then(|synced| synced);
        let from = synced.map_err(|source| GetError::Write { path: part.to_owned(), source })?;
        // A count of what is held must find the file in one place, and not in none or in both.
        let alone = self.0.room.alone(cancel).await?;
        let moved = tokio::task::spawn_blocking(move || {
            let _alone = alone;
            fs::rename(&from, &target)?;
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
    /// The verified file of `artifact`: by its digest, or by what its address was found to be.
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

    /// A reference that cannot be written costs a second search, nothing else.
    fn note(&self, reference: &Reference) {
        if let Err(error) = reference.store(&self.layout) {
            tracing::warn!(%error, "cannot remember where a file lies");
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

    /// The lock that keeps other processes from fetching the same address. Ends with the process, however it ends.
    async fn lock(&self, url: &str, cancel: &CancellationToken) -> Result<File, GetError> {
        lock::wait(&self.layout.part(url).with_extension("lock"), cancel).await
    }
}

fn unavailable(artifact: &Artifact, reason: &(impl ToString + ?Sized)) -> GetError {
    GetError::Unavailable { url: artifact.url.clone(), reason: reason.to_string() }
}

/// Whether a file is the one that the artifact names, or that the hub promised.
fn judge(artifact: &Artifact, promised: Option<Digest>, found: Digest) -> Result<(), GetError> {
    match artifact.sha256.or(promised) {
        Some(expected) if expected != found => Err(GetError::HashMismatch { expected, found }),
        _ => Ok(()),
    }
}
