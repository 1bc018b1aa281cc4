//! Files derived from Cargos' files, such as compiled modules: derived once per file, engine version and settings, then stored and reused.
//!
//! A worker's program derives them in a separate process, in the same sandbox as a job. They are never downloaded: a compiled module is
//! machine code, and only code that was compiled on this machine is trusted here.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use fail::fail_point;
use island_daemon::chain::Chain;
use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    digest::Digest,
    ids::InstanceId,
    job::{Failure, FailureCode},
};
use island_runtimes_worker::{host, launch::Launch};
use parking_lot::Mutex;

/// Memory limit of a deriving process, megabytes.
const MEMORY_MB: u64 = 512;
/// Limit of its processor time, seconds.
const CPU_S: u64 = 10;
/// Maximum size of all stored files, bytes; beyond it the least recently used are removed.
const KEPT_BYTES: u64 = 4 << 30;

/// Beginnings of the names of what is not finished.
const UNFINISHED: [&str; 2] = ["making-", "adopting-"];

/// The store of derived files.
#[derive(Debug)]
pub struct Derived {
    dir: PathBuf,
    /// Copies of files outside of the cache.
    adopted: PathBuf,
    allow_weak_sandbox: bool,
    /// Held while a file is derived.
    busy: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
}

/// The program that derives files.
#[derive(Debug, Clone)]
pub struct Engine {
    /// Its path.
    pub binary: PathBuf,
    /// Version of its engine; other versions cannot read the derived files.
    pub version: String,
}

/// Bytes on the disk that deriving a file of `length` bytes may need: machine code is a few times as long as a module.
pub fn bytes_needed(length: u64) -> u64 {
    length.saturating_mul(8).saturating_add(1 << 20)
}

/// Whether jobs of this Cargo read a derived file instead of the original.
pub fn wanted(cargo: &CargoSpec) -> bool {
    cargo.runtime_type == RuntimeType::Wasm && !cargo.is_simulated()
}

impl Derived {
    /// Opens the store in `dir` and `adopted`, which must exist. What an agent that was killed left half made is removed.
    pub fn new(dir: PathBuf, adopted: PathBuf, allow_weak_sandbox: bool) -> Self {
        sweep(&dir);
        sweep(&adopted);
        Self { dir, adopted, allow_weak_sandbox, busy: Mutex::default() }
    }

    /// Returns the path that jobs of `cargo` read instead of `source`; derives the file if it does not exist.
    pub async fn get(
        &self,
        engine: &Engine,
        cargo: &CargoSpec,
        source: &Path,
        digest: Digest,
    ) -> Result<PathBuf, Failure> {
        let path = self.dir.join(name(engine, cargo, digest));
        let turn = Arc::clone(self.busy().entry(path.clone()).or_default());
        let held = turn.lock().await;
        let found = touch(&path);
        let made = if found { Ok(()) } else { self.make(engine, cargo, source, &path).await };
        drop(held);
        drop(turn);
        // Tasks that wait hold a reference; the last one removes the entry.
        self.busy().retain(|_, turn| Arc::strong_count(turn) > 1);
        made.map(|()| path)
    }

    /// Returns a path of `source` that shared workers may read: their sandbox is applied before it is known whose files they will run.
    pub async fn adopt(&self, source: &Path, digest: Digest) -> Result<PathBuf, Failure> {
        let (dir, source) = (self.adopted.clone(), source.to_owned());
        // Copied if it is on another file system, which takes long for a large file.
        let adopted = tokio::task::spawn_blocking(move || adopt(&dir, &source, digest)).await;
        adopted.unwrap_or_else(|_| {
            Err(Failure::of_host(FailureCode::InternalError, "storing the Cargo's file failed"))
        })
    }

    async fn make(
        &self,
        engine: &Engine,
        cargo: &CargoSpec,
        source: &Path,
        path: &Path,
    ) -> Result<(), Failure> {
        let instance = InstanceId(uuid::Uuid::new_v4());
        let work = self.dir.join(format!("making-{}", instance.0.simple()));
        let launch = Launch {
            artifacts: [("model".to_owned(), source.to_owned())].into(),
            memory_limit_mb: MEMORY_MB,
            cpu_limit_s: CPU_S,
            allow_weak_sandbox: self.allow_weak_sandbox,
            ..Launch::new(instance, cargo.clone())
        };
        let cleaned = RemoveOnDrop(&work);
        let made = host::derive(&engine.binary, &work, &launch).await.map_err(|error| {
            tracing::warn!(cargo = %cargo.slug, error = %Chain(&error), "a derivation could not be started");
            Failure::of_host(FailureCode::RuntimeCrashed, "the engine could not prepare the Cargo's file")
        })??;
        let (place, dir) = (path.to_owned(), self.dir.clone());
        // It waits for the disk.
        let kept = tokio::task::spawn_blocking(move || keep(&made, &place, &dir)).await;
        kept.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| {
            tracing::warn!(path = %path.display(), %error, "a derived file cannot be stored");
            Failure::of_host(FailureCode::DiskFull, "no disk space for the Cargo's prepared file")
        })?;
        drop(cleaned);
        tracing::info!(cargo = %cargo.slug, path = %path.display(), "derived a file from a Cargo's file");
        Ok(())
    }

    fn busy(&self) -> parking_lot::MutexGuard<'_, HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>> {
        self.busy.lock()
    }
}

fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if UNFINISHED.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes())) {
            let path = entry.path();
            let removed = if path.is_dir() { host::folder::remove(&path) } else { fs::remove_file(&path) };
            if let Err(error) = removed {
                tracing::warn!(path = %path.display(), %error, "an unfinished file cannot be removed");
            }
        }
    }
}

fn adopt(dir: &Path, source: &Path, digest: Digest) -> Result<PathBuf, Failure> {
    let path = dir.join(format!("{}-whole", digest.hex()));
    if touch(&path) {
        return Ok(path);
    }
    let made = dir.join(format!("adopting-{}", uuid::Uuid::new_v4().simple()));
    let linked = fs::hard_link(source, &made).or_else(|_| fs::copy(source, &made).map(drop));
    linked.and_then(|()| keep(&made, &path, dir)).map_err(|error| {
        let _ = fs::remove_file(&made);
        tracing::warn!(source = %source.display(), %error, "a local file cannot be copied");
        Failure::of_host(FailureCode::DiskFull, "no disk space for the Cargo's file")
    })?;
    Ok(path)
}

/// The name depends on everything that the content depends on.
fn name(engine: &Engine, cargo: &CargoSpec, digest: Digest) -> String {
    let what = (cargo.runtime_type.as_str(), &engine.version, &cargo.engine);
    let what = serde_json::to_vec(&what).expect("plain values are valid JSON");
    let settings = island_cache::digest_of(&what).hex();
    format!("{}-{}", digest.hex(), &settings[..16])
}

/// Whether the file exists; marks it as used. The time of one that has another name is the original's, by which the
/// cache recognizes what it has hashed, and a coordinator on this machine, too.
fn touch(path: &Path) -> bool {
    let Ok(about) = fs::metadata(path) else { return false };
    is_of_another(&about)
        || fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now())).is_ok()
}

/// Whether the file has another name elsewhere, and takes no space.
fn is_of_another(about: &fs::Metadata) -> bool {
    about.nlink() > 1
}

/// Writes the bytes of a file to the disk.
fn sync(path: &Path) -> io::Result<()> {
    fail_point!("derived.sync", |_| Err(rustix::io::Errno::NOSPC.into()));
    fs::File::open(path)?.sync_all()
}

/// Moves a finished file into the store, read-only, and removes the least recently used files beyond the limit.
///
/// A file of the store is used by its name alone: its bytes are on the disk before it has that name, and the name before anyone uses it, so that
/// a power cut leaves no zeros in its place.
fn keep(made: &Path, path: &Path, dir: &Path) -> io::Result<()> {
    sync(made)?;
    fs::rename(made, path)?;
    fs::File::open(dir)?.sync_all()?;
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let (entry, about) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        if about.is_file() && entry != path && !is_of_another(&about) {
            files.push((about.modified()?, about.len(), entry));
        }
    }
    files.sort_by_key(|(used, ..)| std::cmp::Reverse(*used));
    let about = fs::metadata(path)?;
    let mut kept = if is_of_another(&about) { 0 } else { about.len() };
    for (_, bytes, file) in files {
        kept += bytes;
        if kept > KEPT_BYTES {
            // Processes that have mapped it keep it.
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        let _ = host::folder::remove(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn names_depend_on_everything_the_content_depends_on() {
        let engine = |version: &str| Engine { binary: "x".into(), version: version.into() };
        let mut cargo = testing::assignment(1, 1).cargo;
        let digest = island_cache::digest_of(b"a");
        let first = name(&engine("1"), &cargo, digest);
        assert_eq!(first, name(&engine("1"), &cargo.clone(), digest));
        assert_ne!(first, name(&engine("2"), &cargo, digest));
        assert_ne!(first, name(&engine("1"), &cargo, island_cache::digest_of(b"b")));
        cargo.engine = serde_json::json!({ "fuel": true });
        assert_ne!(first, name(&engine("1"), &cargo, digest));
    }

    #[test]
    fn what_a_killed_agent_left_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(dir.path().join("making-1/scratch")).expect("a folder");
        fs::write(dir.path().join("making-1/scratch/derived"), "half").expect("write");
        fs::write(dir.path().join("adopting-2"), "half").expect("write");
        fs::write(dir.path().join("abc-def"), "whole").expect("write");
        Derived::new(dir.path().to_owned(), dir.path().to_owned(), false);
        let left: Vec<_> =
            fs::read_dir(dir.path()).expect("list").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["abc-def"]);
    }

    #[test]
    fn the_least_recently_used_is_removed_first() {
        let dir = tempfile::tempdir().expect("a folder");
        let sparse = |name: &str, bytes: u64, age_s: u64| {
            let path = dir.path().join(name);
            let file = fs::File::create(&path).expect("create a file");
            file.set_len(bytes).expect("set its size");
            let used = SystemTime::now() - std::time::Duration::from_secs(age_s);
            file.set_modified(used).expect("set its time");
            path
        };
        let (old, young) = (sparse("old", KEPT_BYTES / 2, 100), sparse("young", KEPT_BYTES / 2, 10));
        keep(&sparse("made", KEPT_BYTES / 4, 0), &dir.path().join("new"), dir.path()).expect("keep");
        assert!(!old.exists() && young.exists() && dir.path().join("new").exists());
    }

    #[test]
    fn a_file_that_is_adopted_keeps_its_time_of_modification() {
        let dir = tempfile::tempdir().expect("a folder");
        let adopted = dir.path().join("adopted");
        fs::create_dir(&adopted).expect("a folder");
        let source = dir.path().join("module.wasm");
        let built = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let file = fs::File::create(&source).expect("create a file");
        file.set_modified(built).expect("set its time");
        let modified = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).expect("a time");
        let digest = island_cache::digest_of(b"");
        // The second job uses what the first one adopted.
        let paths = [(); 2].map(|()| adopt(&adopted, &source, digest).expect("adopted"));
        assert_eq!(paths[0], paths[1]);
        assert_eq!(modified(&source), built);
        // The original is gone. From now on the time is that of its last use.
        fs::remove_file(&source).expect("removed");
        assert!(touch(&paths[0]));
        assert!(modified(&paths[0]) > built);
    }

    #[test]
    fn files_that_take_no_space_are_neither_counted_nor_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let kept = dir.path().join("kept");
        fs::create_dir(&kept).expect("a folder");
        let original = dir.path().join("original");
        let file = fs::File::create(&original).expect("create a file");
        file.set_len(2 * KEPT_BYTES).expect("set its size");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("set its time");
        fs::hard_link(&original, kept.join("link")).expect("a link");
        let (old, made) = (kept.join("old"), kept.join("made"));
        fs::write(&old, "x").expect("write");
        fs::hard_link(&original, &made).expect("a link");
        keep(&made, &kept.join("new"), &kept).expect("keep");
        assert!(old.exists() && kept.join("link").exists() && kept.join("new").exists());
    }
}
