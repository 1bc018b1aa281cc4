//! Ways out for containers whose Cargos declare where they connect to. Containers have no network, and workers may not open
//! connections, so the agent does it for them: it alone decides, by name and address, what their programs reach.

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

/// Name of the program that carries connections out of a container; `make cargos` builds it.
const FORWARDER: &str = "island-forwarder";

/// The forwarder, beside the agent's programs or where `make cargos` puts it, or what to do about it.
pub fn forwarder(bin_dir: &Path) -> Result<PathBuf, String> {
    let places = [bin_dir.join(FORWARDER), bin_dir.join("../cargos/built").join(FORWARDER)];
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "{FORWARDER} is not in {}: `make cargos` builds it; until then no container connects to anything",
            bin_dir.display()
        )
    })
}

/// Makes ways out.
pub struct EgressMounts {
    dir: PathBuf,
    log_dir: PathBuf,
    /// What the owner allows, and with what; nothing without a forwarder.
    allowed: Egress,
    forwarder: PathBuf,
    outside: Arc<dyn Outside>,
}

impl EgressMounts {
    /// Makes them in `dir`, for what the owner allows.
    pub fn new(dir: PathBuf, log_dir: PathBuf, allowed: Egress, forwarder: PathBuf) -> Self {
        Self { dir, log_dir, allowed, forwarder, outside: Arc::new(Internet) }
    }

    /// One for an attempt whose Cargo declares places; whether it may have them all was asked when it was admitted.
    pub fn open(&self, key: AttemptKey, cargo: &CargoSpec) -> Result<Option<EgressMount>, Failure> {
        // A Cargo that makes no sense is refused by its engine.
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

    /// Removes those that an earlier agent left, but for the attempts that are still here.
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
    tracing::warn!(%key, error = %Chain(error), "a way out cannot be opened");
    Failure::of_host(FailureCode::InternalError, "the container's way out could not be opened")
}

/// The way out of one attempt. Dropping it closes it, and adds what went through it to the attempt's debug log.
#[derive(Debug)]
pub struct EgressMount {
    gate: Gate,
    log: JobLog,
    path: PathBuf,
}

/// Does `work`, with the way out open meanwhile.
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
            tracing::warn!(path = %self.path.display(), %error, "what went through a way out is not noted");
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
        EgressMounts::new(folder("egress"), folder("logs"), allowed, forwarder)
    }

    fn cargo(engine: serde_json::Value) -> CargoSpec {
        let runtime_type = island_protocol::cargo::RuntimeType::Container;
        CargoSpec { runtime_type, engine, ..testing::assignment(1, 1).cargo }
    }

    #[tokio::test]
    async fn only_who_declares_and_may_gets_one_and_it_goes_with_the_attempt() {
        let dir = tempfile::tempdir().expect("a folder");
        let key = testing::assignment(1, 1).key;
        let declares = cargo(json!({"egress": ["a.org:443"]}));
        let exits = |allowed| exits(dir.path(), allowed);
        assert!(exits(Egress::None).open(key, &declares).expect("no failure").is_none());
        let exits = exits(Egress::Declared);
        for none in [json!({}), json!({"egress": []}), json!({"egress": ["127.0.0.1:80"]}), json!(null)] {
            assert!(exits.open(key, &cargo(none)).expect("no failure").is_none());
        }
        let exit = exits.open(key, &declares).expect("no failure").expect("a way out");
        let folder = egress_folder(&dir.path().join("egress"), key);
        assert!(folder.join("s").exists() && folder.join("f").exists());
        exit.log.note("somebody came");
        let log = exit.path.clone();
        fs::write(&log, "what the program said\n").expect("the worker's part");
        drop(exit);
        assert!(!folder.exists());
        assert_eq!(
            fs::read_to_string(log).expect("a log"),
            "what the program said\n[island] somebody came\n"
        );
    }

    #[tokio::test]
    async fn what_a_killed_agent_left_is_swept_or_taken_up() {
        let dir = tempfile::tempdir().expect("a folder");
        let exits = exits(dir.path(), Egress::Declared);
        let (held, gone) = (testing::assignment(1, 1).key, testing::assignment(2, 1).key);
        let declares = cargo(json!({"egress": ["a.org:443"]}));
        for key in [held, gone] {
            // Killed: nothing is dropped.
            std::mem::forget(exits.open(key, &declares).expect("no failure"));
        }
        exits.sweep(&[held]).expect("swept");
        let folder = |key| egress_folder(&dir.path().join("egress"), key);
        assert!(folder(held).exists() && !folder(gone).exists());
        let again = exits.open(held, &declares).expect("no failure");
        assert!(again.is_some(), "at the same place, which a container still sees");
    }
}
