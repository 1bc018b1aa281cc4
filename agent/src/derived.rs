//! Files made from Cargos' files, such as compiled modules: made once for each file, engine version and setting, kept and reused.
//!
//! A worker's program makes them in a process of its own, behind the same walls as a run. They never come from elsewhere: a
//! compiled module is machine code, and only what was made here is trusted to run here.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use island_daemon::chain::Chain;
use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    digest::Digest,
    ids::InstanceId,
    job::{Failure, FailureCode},
};
use island_runtimes_worker::{host, launch::Launch};
use parking_lot::Mutex;

/// Memory of a process that derives, megabytes.
const MEMORY_MB: u64 = 512;
/// Processor time of one, seconds.
const CPU_S: u64 = 10;
/// Most bytes kept; past it the least recently used go.
const KEPT_BYTES: u64 = 4 << 30;

/// The store of derived files.
#[derive(Debug)]
pub struct Derived {
    dir: PathBuf,
    allow_weak_sandbox: bool,
    /// One derivation of a file at a time.
    busy: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
}

/// The program that derives.
#[derive(Debug, Clone)]
pub struct Engine {
    /// Where it lies.
    pub binary: PathBuf,
    /// Version of the engine underneath; another one cannot read what this one made.
    pub version: String,
}

/// Whether runs of this Cargo read a derived file instead of its own.
pub fn wanted(cargo: &CargoSpec) -> bool {
    cargo.runtime_type == RuntimeType::Wasm && !cargo.is_simulated()
}

impl Derived {
    /// A store in `dir`, which exists.
    pub fn new(dir: PathBuf, allow_weak_sandbox: bool) -> Self {
        Self { dir, allow_weak_sandbox, busy: Mutex::default() }
    }

    /// What runs of `cargo` read instead of `source`, made if need be.
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
        // Whoever waits still holds its own; the last one takes it off the list.
        self.busy().retain(|_, turn| Arc::strong_count(turn) > 1);
        made.map(|()| path)
    }

    /// A place for `source` where shared workers may read it: they are walled in before they know whose files they will run.
    pub async fn adopt(&self, source: &Path, digest: Digest) -> Result<PathBuf, Failure> {
        let (dir, source) = (self.dir.clone(), source.to_owned());
        // From another file system it is copied, which takes as long as the file is large.
        let adopted = tokio::task::spawn_blocking(move || adopt(&dir, &source, digest)).await;
        adopted.unwrap_or_else(|_| {
            Err(Failure::of_host(FailureCode::InternalError, "taking over the Cargo's file broke down"))
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
        keep(&made, path, &self.dir).map_err(|error| {
            tracing::warn!(path = %path.display(), %error, "a derived file cannot be kept");
            Failure::of_host(FailureCode::DiskFull, "no room for the Cargo's prepared file")
        })?;
        drop(cleaned);
        tracing::info!(cargo = %cargo.slug, path = %path.display(), "prepared a Cargo's file");
        Ok(())
    }

    fn busy(&self) -> parking_lot::MutexGuard<'_, HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>> {
        self.busy.lock()
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
        tracing::warn!(source = %source.display(), %error, "a local file cannot be taken over");
        Failure::of_host(FailureCode::DiskFull, "no room for the Cargo's file")
    })?;
    Ok(path)
}

/// Everything that makes a difference to the file is in its name.
fn name(engine: &Engine, cargo: &CargoSpec, digest: Digest) -> String {
    let what = (cargo.runtime_type.as_str(), &engine.version, &cargo.engine);
    let what = serde_json::to_vec(&what).expect("plain values serialise");
    let settings = island_cache::digest_of(&what).hex();
    format!("{}-{}", digest.hex(), &settings[..16])
}

/// Whether the file is there; marks it as used.
fn touch(path: &Path) -> bool {
    fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now())).is_ok()
}

/// Moves a finished file to its place, read-only, and lets the least recently used go.
fn keep(made: &Path, path: &Path, dir: &Path) -> io::Result<()> {
    fs::rename(made, path)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let (entry, about) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        if about.is_file() && entry != path {
            files.push((about.modified()?, about.len(), entry));
        }
    }
    files.sort_by_key(|(used, ..)| std::cmp::Reverse(*used));
    let mut kept = fs::metadata(path)?.len();
    for (_, bytes, file) in files {
        kept += bytes;
        if kept > KEPT_BYTES {
            // Whoever has it mapped goes on with it.
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn names_differ_with_all_that_matters() {
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
    fn the_least_recently_used_goes_first() {
        let dir = tempfile::tempdir().expect("a folder");
        let sparse = |name: &str, bytes: u64, age_s: u64| {
            let path = dir.path().join(name);
            let file = fs::File::create(&path).expect("make a file");
            file.set_len(bytes).expect("size it");
            let used = SystemTime::now() - std::time::Duration::from_secs(age_s);
            file.set_modified(used).expect("date it");
            path
        };
        let (old, young) = (sparse("old", KEPT_BYTES / 2, 100), sparse("young", KEPT_BYTES / 2, 10));
        keep(&sparse("made", KEPT_BYTES / 4, 0), &dir.path().join("new"), dir.path()).expect("keep");
        assert!(!old.exists() && young.exists() && dir.path().join("new").exists());
    }
}
