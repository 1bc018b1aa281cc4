//! Images: each is loaded into the daemon once, however many jobs wait for it, under a name that contains its content hash.

mod feed;
mod reference;
mod retention;

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::UNIX_EPOCH,
};

use bollard::{
    body_try_stream,
    query_parameters::{
        CreateImageOptionsBuilder, ImportImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptions,
        TagImageOptionsBuilder,
    },
};
use futures::{Stream, StreamExt};
use island_protocol::{
    cargo::CargoSpec,
    job::{Failure, FailureCode},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::watch, time::Instant};
use tokio_util::task::TaskTracker;

pub use reference::Reference;
use retention::{MAX_BYTES, StoredImage, excess, is_too_large};

use crate::{
    archive::{Archive, ArchiveError},
    daemon::{Daemon, failed, is_missing},
    engine_config::invalid_cargo,
    labels::short_hash,
};

/// Name of the artifact that is the image.
const IMAGE: &str = "model";
/// Prefix of the names of our images.
const PREFIX: &str = "island/";
/// Beginnings of the names of variables of images that are cleared.
const CLEARED: [&str; 3] = ["LD_", "GLIBC_", "NVIDIA_"];

/// Source of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A verified file on this machine.
    File(PathBuf),
    /// A registry that the owner allows.
    Registry(Reference),
}

/// An image that a Cargo needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    name: String,
    origin: Origin,
}

/// Progress of loading an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// `done` of `total` bytes are loaded.
    Coming {
        /// Loaded bytes.
        done: u64,
        /// Total bytes; 0 if unknown.
        total: u64,
    },
    /// It is loaded; this is the daemon's name for its content.
    Here(Image),
    /// It could not be loaded.
    Failed(Failure),
}

/// A loaded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The daemon's name for its content.
    pub id: String,
    /// Whether it has an entry point.
    pub has_program: bool,
    /// Names of its variables that must not have an effect, in order.
    pub cleared: Vec<String>,
}

/// The images of one daemon.
#[derive(Debug)]
pub struct Images {
    daemon: Daemon,
    known: Mutex<HashMap<String, Known>>,
    /// Unpacked bytes of the image files that are being loaded.
    coming: AtomicU64,
    bringing: TaskTracker,
}

#[derive(Debug)]
struct Known {
    state: watch::Receiver<State>,
    used: Instant,
}

impl Wanted {
    /// Returns the image of a Cargo: the file it came with, or a reference to a registry that the owner allows.
    pub fn of(cargo: &CargoSpec, file: Option<&Path>, registries: &[String]) -> Result<Self, Failure> {
        let artifact = cargo.artifacts.iter().find(|artifact| artifact.name == IMAGE);
        let reference = artifact.and_then(|artifact| artifact.url.strip_prefix("docker://"));
        if let Some(reference) = reference {
            let reference = Reference::parse(reference).map_err(invalid_cargo)?;
            if !reference.is_allowed(registries) {
                let message = format!("the owner of this Island allows no images from {}", reference.name());
                return Err(Failure::of_host(FailureCode::ModelUnavailable, message));
            }
            return Ok(Self {
                name: format!("{PREFIX}{}", reference.digest().hex()),
                origin: Origin::Registry(reference),
            });
        }
        let file = file.ok_or_else(|| invalid_cargo("the Cargo names no image file"))?;
        let key = match artifact.and_then(|artifact| artifact.sha256) {
            Some(digest) => digest.hex(),
            None => unnamed(file)?,
        };
        Ok(Self { name: format!("{PREFIX}{key}"), origin: Origin::File(file.to_owned()) })
    }
}

/// Stands for a file without a known digest: it changes when the file does.
fn unnamed(file: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::of_host(FailureCode::ModelUnavailable, format!("look at the image file: {error}"))
    };
    let about = std::fs::metadata(file).map_err(unreadable)?;
    let changed = about.modified().map_err(unreadable)?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let parts =
        [file.as_os_str().as_encoded_bytes(), &about.len().to_be_bytes(), &changed.as_nanos().to_be_bytes()];
    Ok(format!("file-{}", short_hash(&parts)))
}

impl Images {
    /// Creates one without images.
    pub fn new(daemon: Daemon) -> Self {
        Self { daemon, known: Mutex::default(), coming: AtomicU64::default(), bringing: TaskTracker::new() }
    }

    /// Follows the loading of an image; completes at once if it is loaded.
    pub fn follow(self: &Arc<Self>, wanted: &Wanted) -> watch::Receiver<State> {
        let mut known = self.known();
        if let Some(image) = known.get_mut(&wanted.name) {
            image.used = Instant::now();
            return image.state.clone();
        }
        let (sender, state) = watch::channel(State::Coming { done: 0, total: 0 });
        known.insert(wanted.name.clone(), Known { state: state.clone(), used: Instant::now() });
        let (images, wanted) = (Arc::clone(self), wanted.clone());
        self.bringing.spawn(async move {
            let loaded = images.load(&wanted, &sender).await;
            if loaded.is_err() {
                // The next job tries again.
                images.known().remove(&wanted.name);
            }
            sender.send_replace(loaded.map_or_else(State::Failed, State::Here));
        });
        state
    }

    /// Removes an image from the list that the daemon has no longer.
    pub fn forget(&self, wanted: &Wanted) {
        self.known().remove(&wanted.name);
    }

    /// Waits for images that are being loaded; a daemon does not cancel that.
    pub async fn stop(&self) {
        self.bringing.close();
        self.bringing.wait().await;
    }

    async fn load(&self, wanted: &Wanted, state: &watch::Sender<State>) -> Result<Image, Failure> {
        if let Some((image, _)) = self.inspect(&wanted.name).await? {
            return Ok(image);
        }
        match &wanted.origin {
            Origin::File(path) => self.unpack(&wanted.name, path, state).await?,
            Origin::Registry(reference) => self.pull(&wanted.name, reference, state).await?,
        }
        self.remove_excess(None).await;
        let missing = || {
            Failure::of_host(
                FailureCode::RuntimeCrashed,
                "the container daemon removed the image immediately",
            )
        };
        let (image, bytes) = self.inspect(&wanted.name).await?.ok_or_else(missing)?;
        if is_too_large(bytes) {
            // How far an image of a registry unpacks is known only afterwards.
            let pulled = match &wanted.origin {
                Origin::File(_) => None,
                Origin::Registry(reference) => Some(reference.to_string()),
            };
            self.remove(wanted.name.clone(), pulled).await;
            return Err(too_large());
        }
        Ok(image)
    }

    /// Returns the image of this name and its size in bytes, if the daemon has it and it is acceptable.
    async fn inspect(&self, name: &str) -> Result<Option<(Image, u64)>, Failure> {
        let found = match self.daemon.quick.inspect_image(name).await {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(failed("look for the image", &error)),
        };
        let config = found.config.unwrap_or_default();
        // Checked in files before they are loaded; here for images from a registry.
        if config.volumes.is_some_and(|volumes| !volumes.is_empty()) {
            return Err(invalid_cargo("the image declares volumes; only /tmp can be written in a container"));
        }
        let some = |words: Option<Vec<String>>| words.is_some_and(|words| !words.is_empty());
        let has_program = some(config.entrypoint) || some(config.cmd);
        let cleared = cleared(&config.env.unwrap_or_default());
        let bytes = found.size.unwrap_or(0).max(0) as u64;
        Ok(found.id.map(|id| (Image { id, has_program, cleared }, bytes)))
    }

    async fn unpack(&self, name: &str, path: &Path, state: &watch::Sender<State>) -> Result<(), Failure> {
        let examined = {
            let path = path.to_owned();
            tokio::task::spawn_blocking(move || Archive::examine(&path)).await
        };
        let archive = examined.map_err(|_| reading_failed())?.map_err(|error| unusable(&error))?;
        let coming = Coming::new(&self.coming, archive.unpacked_bytes());
        self.make_room(coming.all()).await?;
        let total = archive.file_bytes();
        let report = {
            let state = state.clone();
            move |done| drop(state.send_replace(State::Coming { done, total }))
        };
        let is_rootfs = matches!(archive, Archive::Rootfs { .. });
        let (bytes, writing) = feed::feed(archive, report);
        let body = body_try_stream(bytes);
        let loading = async {
            if is_rootfs {
                let options = CreateImageOptionsBuilder::new().from_src("-").repo(name).tag("latest").build();
                last(self.daemon.slow.create_image(Some(options), Some(body), None), |_| None).await
            } else {
                let options = ImportImageOptionsBuilder::new().quiet(true).build();
                let loaded = self.daemon.slow.import_image(options, body, None);
                last(loaded, |info| loaded_id(info.stream.as_deref()?)).await
            }
        };
        let (loaded, written) = tokio::join!(loading, writing);
        let id = match (loaded, written) {
            (Ok(id), _) => id,
            (Err(_), Ok(Err(error @ ArchiveError::Unsound(_)))) => return Err(unusable(&error)),
            (Err(error), _) => return Err(rejected(&error)),
        };
        match id {
            Some(id) => self.tag(&id, name).await,
            None => Ok(()),
        }
    }

    async fn pull(
        &self,
        name: &str,
        reference: &Reference,
        state: &watch::Sender<State>,
    ) -> Result<(), Failure> {
        let whole = reference.to_string();
        let options = CreateImageOptionsBuilder::new().from_image(&whole).build();
        let mut parts = Parts::default();
        let mut reports = std::pin::pin!(self.daemon.slow.create_image(Some(options), None, None));
        while let Some(report) = reports.next().await {
            let info = report.map_err(|error| {
                let failure = failed("pull the image", &error);
                Failure { code: FailureCode::ModelUnavailable, ..failure }
            })?;
            let (Some(id), Some(progress)) = (info.id, info.progress_detail) else { continue };
            let bytes = |number: Option<i64>| number.map(|number| number.max(0) as u64);
            let (Some(done), Some(total)) = (bytes(progress.current), bytes(progress.total)) else {
                continue;
            };
            let (done, total) = parts.note(id, done, total);
            if is_too_large(total) {
                // The end of the request ends the download.
                return Err(too_large());
            }
            state.send_replace(State::Coming { done, total });
        }
        self.tag(&whole, name).await
    }

    /// Removes images until one of this size can be unpacked.
    ///
    /// # Errors
    /// The images in use leave no place for it, or it is unknown which there are.
    async fn make_room(&self, coming: u64) -> Result<(), Failure> {
        let left = self.remove_excess(Some(coming)).await.ok_or_else(|| {
            Failure::of_host(FailureCode::RuntimeCrashed, "the container daemon does not list its images")
        })?;
        if is_too_large(left.saturating_add(coming)) {
            let message = "the images of running containers leave no space for this one";
            return Err(Failure::of_host(FailureCode::DiskFull, message));
        }
        Ok(())
    }

    /// Removes images that were not used for long, so that images of `coming` bytes fit. An image in use stays: the daemon refuses to remove
    /// it. Returns the bytes of the images that are left; `None` if the daemon does not list them.
    async fn remove_excess(&self, coming: Option<u64>) -> Option<u64> {
        let ours = [("reference".to_owned(), vec![format!("{PREFIX}*")])].into_iter().collect();
        let options = ListImagesOptionsBuilder::new().filters(&ours).build();
        let found = match self.daemon.quick.list_images(Some(options)).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "images cannot be listed");
                return None;
            }
        };
        let kept: Vec<_> = {
            let known = self.known();
            let now = Instant::now();
            let used = |name: &str| {
                known.get(name).map(|image| u64::MAX - now.duration_since(image.used).as_millis() as u64)
            };
            let named = found.into_iter().filter_map(|image| {
                let name = image.repo_tags.first()?.strip_suffix(":latest")?.to_owned();
                let references = pulled_as(&name, &image.repo_tags, image.repo_digests);
                Some(StoredImage { bytes: image.size.max(0) as u64, used: used(&name), name, references })
            });
            named.collect()
        };
        let mut left = kept.iter().fold(0_u64, |sum, image| sum.saturating_add(image.bytes));
        for StoredImage { name, references, bytes, .. } in excess(kept, coming) {
            if self.remove(name, references).await {
                left = left.saturating_sub(bytes);
            }
        }
        Some(left)
    }

    /// Removes an image and other references to it. Returns whether all were removed.
    async fn remove(&self, name: String, references: impl IntoIterator<Item = String>) -> bool {
        self.known().remove(&name);
        // The last one removes the content.
        for reference in std::iter::once(name).chain(references) {
            let removed = self.daemon.quick.remove_image(&reference, None::<RemoveImageOptions>, None);
            if let Err(error) = removed.await {
                tracing::debug!(image = reference, %error, "an image could not be removed");
                return false;
            }
        }
        true
    }

    async fn tag(&self, image: &str, name: &str) -> Result<(), Failure> {
        let options = TagImageOptionsBuilder::new().repo(name).tag("latest").build();
        self.daemon
            .quick
            .tag_image(image, Some(options))
            .await
            .map_err(|error| failed("name the image", &error))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock()
    }
}

/// Bytes of an image that is being unpacked, as a part of all of them.
struct Coming<'a> {
    all: &'a AtomicU64,
    bytes: u64,
}

impl<'a> Coming<'a> {
    fn new(all: &'a AtomicU64, bytes: u64) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { all, bytes }
    }

    /// Bytes of all images that are being unpacked.
    fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The parts of an image that is being pulled: loaded and total bytes of each, as the daemon reports them.
#[derive(Debug, Default)]
struct Parts(HashMap<String, (u64, u64)>);

impl Parts {
    /// Notes a report about one part, and returns the sums. The total of a part never decreases.
    fn note(&mut self, id: String, done: u64, total: u64) -> (u64, u64) {
        let part = self.0.entry(id).or_default();
        *part = (done, part.1.max(total));
        let add =
            |sum: (u64, u64), part: &(u64, u64)| (sum.0.saturating_add(part.0), sum.1.saturating_add(part.1));
        self.0.values().fold((0, 0), add)
    }
}

fn too_large() -> Failure {
    invalid_cargo(format!("the image has more than {} GB", MAX_BYTES >> 30))
}

/// The references that pulling an image by its digest left beside our name. None if it has a name of others: then it is not ours alone.
fn pulled_as(name: &str, names: &[String], digests: Vec<String>) -> Vec<String> {
    let Some(digest) = name.strip_prefix(PREFIX).filter(|_| names.len() == 1) else { return Vec::new() };
    let end = format!("@sha256:{digest}");
    digests.into_iter().filter(|reference| reference.ends_with(&end)).collect()
}

/// Names of variables that load code into programs of the host, such as hooks that run with the environment of a container, or that configure
/// NVIDIA's toolkit.
fn cleared(variables: &[String]) -> Vec<String> {
    let names = variables.iter().map(|variable| variable.split('=').next().unwrap_or_default());
    let acts = |name: &&str| CLEARED.iter().any(|start| name.starts_with(start));
    let names: BTreeSet<&str> = names.filter(acts).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Reads a daemon's reports to their end, and returns the last value that `find` returned.
async fn last<T>(
    reports: impl Stream<Item = Result<T, bollard::errors::Error>>,
    mut find: impl FnMut(T) -> Option<String>,
) -> Result<Option<String>, bollard::errors::Error> {
    let mut reports = std::pin::pin!(reports);
    let mut found = None;
    while let Some(report) = reports.next().await {
        found = find(report?).or(found);
    }
    Ok(found)
}

/// The image that was loaded. It has no name, because the archive contains none.
fn loaded_id(line: &str) -> Option<String> {
    let id = line
        .trim()
        .strip_prefix("Loaded image ID: ")
        .or_else(|| line.trim().strip_prefix("Loaded image: "))?;
    Some(id.to_owned())
}

fn unusable(error: &ArchiveError) -> Failure {
    if error.is_of_file() {
        return invalid_cargo(error.to_string());
    }
    Failure::of_host(FailureCode::ModelUnavailable, error.to_string())
}

/// A file that passed the check and was refused by the daemon is at fault, unless the daemon itself has problems.
fn rejected(error: &bollard::errors::Error) -> Failure {
    let failure = failed("unpack the image", error);
    let is_daemons = failure.code != FailureCode::RuntimeCrashed;
    match error {
        bollard::errors::Error::DockerStreamError { .. }
        | bollard::errors::Error::DockerResponseServerError { .. }
            if !is_daemons =>
        {
            invalid_cargo("the container daemon cannot unpack the image")
        }
        _ => failure,
    }
}

fn reading_failed() -> Failure {
    Failure::of_host(FailureCode::InternalError, "reading the image file failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_act_on_the_host_are_cleared() {
        let image = [
            "PATH=/bin",
            "NVIDIA_VISIBLE_DEVICES=all",
            "NVIDIA_REQUIRE_CUDA=cuda>=12",
            "LD_LIBRARY_PATH=/evil",
            "LD_DEBUG",
            "GLIBC_TUNABLES=x=y",
            "OLD_LD_=1",
            "LD_LIBRARY_PATH=/twice",
        ];
        let names = [
            "GLIBC_TUNABLES",
            "LD_DEBUG",
            "LD_LIBRARY_PATH",
            "NVIDIA_REQUIRE_CUDA",
            "NVIDIA_VISIBLE_DEVICES",
        ];
        assert_eq!(cleared(&image.map(str::to_owned)), names);
    }

    #[test]
    fn totals_of_parts_are_added_and_never_decrease() {
        let mut parts = Parts::default();
        assert_eq!(parts.note("a".to_owned(), 5, 10), (5, 10));
        assert_eq!(parts.note("b".to_owned(), 1, 30), (6, 40));
        assert_eq!(parts.note("a".to_owned(), 2, 0), (3, 40), "it is being extracted");
        assert_eq!(parts.note("c".to_owned(), u64::MAX, u64::MAX), (u64::MAX, u64::MAX));
    }

    #[test]
    fn images_that_are_unpacked_at_one_time_count_together() {
        let all = AtomicU64::new(0);
        let first = Coming::new(&all, 5);
        let second = Coming::new(&all, 7);
        assert_eq!((first.all(), second.all()), (12, 12));
        drop(first);
        assert_eq!(second.all(), 7);
        drop(second);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn only_what_pulling_left_is_removed_with_a_name() {
        let digest = "a".repeat(64);
        let name = format!("island/{digest}");
        let own = format!("registry.example/tool@sha256:{digest}");
        let all = || vec![own.clone(), format!("registry.example/tool@sha256:{}", "b".repeat(64))];
        let names = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        assert_eq!(pulled_as(&name, &names(&["island/a:latest"]), all()), std::slice::from_ref(&own));
        let shared = names(&["island/a:latest", "busybox:latest"]);
        assert_eq!(pulled_as(&name, &shared, all()), Vec::<String>::new(), "the owner uses it, too");
        assert_eq!(
            pulled_as("island/file-1", &names(&["island/file-1:latest"]), all()),
            Vec::<String>::new()
        );
    }
}
