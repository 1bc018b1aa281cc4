//! Egress of containers whose Cargos declare where they connect. Containers have no network and workers may not open connections, so the
//! agent connects for them. It decides by name and address what their programs may reach.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use island_daemon::chain::Chain;
use island_protocol::{
    cargo::CargoSpec,
    egress::Egress,
    ids::AttemptKey,
    job::{Failure, FailureCode},
};
use island_runtimes_api::JobLog;
use island_runtimes_egress::{Bounds, Gate, GateError, Internet, Outside};
use island_runtimes_worker::launch::{egress_folder, log_file};

/// Name of the program that forwards connections out of a container; `make cargos` builds it.
const FORWARDER: &str = "island-forwarder";

/// Returns the path of the forwarder, beside the agent's programs or where `make cargos` puts it; otherwise how to obtain it.
pub fn forwarder(bin_dir: &Path) -> Result<PathBuf, String> {
    let places = [bin_dir.join(FORWARDER), bin_dir.join("../cargos/built").join(FORWARDER)];
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "{FORWARDER} is not in {}: `make cargos` builds it; until then containers cannot connect to any address",
            bin_dir.display()
        )
    })
}

/// Creates egress mounts.
pub struct EgressMounts {
    dir: PathBuf,
    log_dir: PathBuf,
    /// The owner's rule and the path of the forwarder; `None` without a forwarder.
    allowed: Egress,
    forwarder: PathBuf,
    outside: Arc<dyn Outside>,
}

impl EgressMounts {
    /// Creates mounts in `dir` for what the owner allows.
    pub fn new(
        dir: PathBuf,
        log_dir: PathBuf,
        allowed: Egress,
        forwarder: PathBuf,
        internet: Arc<Internet>,
    ) -> Self {
        Self { dir, log_dir, allowed, forwarder, outside: internet }
    }

    /// Creates the mount of an attempt whose Cargo declares addresses. Admission has checked that the owner allows all of them.
    pub fn open(&self, key: AttemptKey, cargo: &CargoSpec) -> Result<Option<EgressMount>, Failure> {
        // An invalid Cargo is rejected by its engine.
        let mut places = cargo.egress().unwrap_or_default();
        places.retain(|place| self.allowed.allows(place));
        if places.is_empty() || cargo.is_simulated() {
            return Ok(None);
        }
        let log = JobLog::default();
        let folder = egress_folder(&self.dir, key);
        let gate = Gate::open(
            folder,
            &self.forwarder,
            places,
            Arc::clone(&self.outside),
            Bounds::default(),
            log.clone(),
        );
        let gate = gate.map_err(|error| failure(key, &error))?;
        Ok(Some(EgressMount { gate, log, path: log_file(&self.log_dir, key) }))
    }

    /// What decides where containers may connect.
    #[cfg(test)]
    pub(crate) fn outside(&self) -> &dyn Outside {
        &*self.outside
    }

    /// Removes the mounts of an earlier agent, except those of attempts that still run.
    pub fn sweep(&self, holding: &[AttemptKey]) -> io::Result<()> {
        let kept: Vec<_> = holding.iter().map(|key| egress_folder(&self.dir, *key)).collect();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if !kept.contains(&path) {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for EgressMounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EgressMounts")
            .field("dir", &self.dir)
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

fn failure(key: AttemptKey, error: &GateError) -> Failure {
    tracing::warn!(%key, error = %Chain(error), "an egress mount cannot be created");
    Failure::of_host(FailureCode::InternalError, "the container's egress proxy could not be started")
}

/// The egress mount of one attempt. On drop it is closed, and the list of connections is appended to the attempt's debug log.
#[derive(Debug)]
pub struct EgressMount {
    gate: Gate,
    log: JobLog,
    path: PathBuf,
}

/// Runs `work` while the mount is open.
pub async fn beside<T>(exit: Option<&mut EgressMount>, work: impl Future<Output = T>) -> T {
    let Some(exit) = exit else { return work.await };
    tokio::select! {
        biased;
        done = work => done,
        never = exit.gate.serve() => match never {},
    }
}

impl Drop for EgressMount {
    fn drop(&mut self) {
        if self.log.is_empty() {
            return;
        }
        let file = fs::File::options().create(true).append(true).open(&self.path);
        if let Err(error) = file.and_then(|mut file| file.write_all(self.log.text().as_bytes())) {
            tracing::warn!(path = %self.path.display(), %error, "the list of connections cannot be stored");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing;

    fn exits(dir: &Path, allowed: Egress) -> EgressMounts {
        let forwarder = dir.join(FORWARDER);
        fs::write(&forwarder, "a program").expect("write");
        let folder = |name: &str| {
            let folder = dir.join(name);
            fs::create_dir_all(&folder).expect("a folder");
            folder
        };
        EgressMounts::new(folder("egress"), folder("logs"), allowed, forwarder, Arc::default())
    }

    fn cargo(engine: serde_json::Value) -> CargoSpec {
        let runtime_type = island_protocol::cargo::RuntimeType::Container;
        CargoSpec { runtime_type, engine, ..testing::assignment(1, 1).cargo }
    }

    #[tokio::test]
    async fn only_declared_and_allowed_egress_is_mounted_and_ends_with_the_attempt() {
        let dir = tempfile::tempdir().expect("a folder");
        let key = testing::assignment(1, 1).key;
        let declares = cargo(json!({"egress": ["a.org:443"]}));
        let exits = |allowed| exits(dir.path(), allowed);
        assert!(exits(Egress::None).open(key, &declares).expect("no failure").is_none());
        let exits = exits(Egress::Declared);
        for none in [json!({}), json!({"egress": []}), json!({"egress": ["127.0.0.1:80"]}), json!(null)] {
            assert!(exits.open(key, &cargo(none)).expect("no failure").is_none());
        }
        let exit = exits.open(key, &declares).expect("no failure").expect("a mount");
        let folder = egress_folder(&dir.path().join("egress"), key);
        assert!(folder.join("s").exists() && folder.join("f").exists());
        exit.log.note("a connection");
        let log = exit.path.clone();
        fs::write(&log, "output of the program\n").expect("the worker's part");
        drop(exit);
        assert!(!folder.exists());
        assert_eq!(fs::read_to_string(log).expect("a log"), "output of the program\n[island] a connection\n");
    }

    #[tokio::test]
    async fn mounts_of_a_killed_agent_are_removed_or_adopted() {
        let dir = tempfile::tempdir().expect("a folder");
        let exits = exits(dir.path(), Egress::Declared);
        let (held, gone) = (testing::assignment(1, 1).key, testing::assignment(2, 1).key);
        let declares = cargo(json!({"egress": ["a.org:443"]}));
        for key in [held, gone] {
            // As if the process were killed: nothing is dropped.
            std::mem::forget(exits.open(key, &declares).expect("no failure"));
        }
        exits.sweep(&[held]).expect("swept");
        let folder = |key| egress_folder(&dir.path().join("egress"), key);
        assert!(folder(held).exists() && !folder(gone).exists());
        let again = exits.open(held, &declares).expect("no failure");
        assert!(again.is_some(), "at the path that a container still has mounted");
    }
}
