//! Updates on a scripted machine: the order of the steps, and failures of each.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    time::Duration,
};

use island_update::{
    apply::{Applied, ApplyError, Timeouts, apply, settle},
    machine::{Health, Machine, MachineError},
    record::{Pending, Record},
};
use semver::Version;

const PATIENCE: Timeouts = Timeouts { drain: Duration::from_mins(1), start: Duration::from_secs(30) };

/// A machine that records the steps.
#[derive(Debug)]
struct Script {
    state: RefCell<State>,
    /// Number of status queries after which its jobs have ended.
    busy_for: usize,
    /// Versions that do not start.
    broken: Vec<&'static str>,
    /// Versions that start and are never registered.
    lonely: Vec<&'static str>,
    held: bool,
    cannot_keep: bool,
}

#[derive(Debug)]
struct State {
    version: String,
    looks: usize,
    draining: bool,
    did: Vec<String>,
}

impl Script {
    fn new() -> Self {
        let state = State { version: "0.1.0".to_owned(), looks: 0, draining: false, did: Vec::new() };
        Self {
            state: RefCell::new(state),
            busy_for: 0,
            broken: Vec::new(),
            lonely: Vec::new(),
            held: false,
            cannot_keep: false,
        }
    }

    fn did(&self) -> Vec<String> {
        self.state.borrow().did.clone()
    }

    fn note(&self, what: &str) {
        self.state.borrow_mut().did.push(what.to_owned());
    }
}

impl Machine for Script {
    async fn installed(&self) -> Result<Version, MachineError> {
        Ok(self.state.borrow().version.parse().expect("a version"))
    }

    async fn health(&self) -> Option<Health> {
        let mut state = self.state.borrow_mut();
        state.looks += 1;
        if self.broken.contains(&state.version.as_str()) {
            return None;
        }
        Some(Health {
            version: state.version.parse().expect("a version"),
            connected: !self.lonely.contains(&state.version.as_str()),
            jobs: usize::from(state.looks <= self.busy_for),
            held: self.held || state.draining,
        })
    }

    async fn drain(&self) -> Result<(), MachineError> {
        self.note("drain");
        self.state.borrow_mut().draining = true;
        Ok(())
    }

    async fn resume(&self) -> Result<(), MachineError> {
        self.note("resume");
        self.state.borrow_mut().draining = false;
        Ok(())
    }

    async fn keep(&self, folder: &Path) -> Result<PathBuf, MachineError> {
        self.note("keep");
        if self.cannot_keep {
            return Err(MachineError { what: "keep".to_owned(), why: "no space".to_owned() });
        }
        Ok(folder.join(&self.state.borrow().version))
    }

    async fn install(&self, package: &Path) -> Result<(), MachineError> {
        let version = package.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        self.note(&format!("install {version}"));
        self.state.borrow_mut().version = version;
        Ok(())
    }
}

async fn to_two(machine: &Script, folder: &Path) -> Result<Applied, ApplyError> {
    let two = Version::new(0, 2, 0);
    apply(machine, folder, Record::default(), two, Path::new("/staged/0.2.0"), PATIENCE).await
}

#[tokio::test(start_paused = true)]
async fn a_working_version_starts_and_accepts_jobs() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { busy_for: 5, ..Script::new() };
    assert_eq!(to_two(&machine, folder.path()).await.expect("done"), Applied::Done(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["drain", "keep", "install 0.2.0", "resume"]);
    assert_eq!(Record::read(folder.path()).expect("a record").pending, None);
}

#[tokio::test(start_paused = true)]
async fn jobs_are_not_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { busy_for: usize::MAX, ..Script::new() };
    assert_eq!(to_two(&machine, folder.path()).await.expect("another time"), Applied::Busy(1));
    assert_eq!(machine.did(), ["drain", "resume"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_does_not_start_or_register_is_reverted_and_not_tried_again() {
    for machine in
        [Script { broken: vec!["0.2.0"], ..Script::new() }, Script { lonely: vec!["0.2.0"], ..Script::new() }]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let applied = to_two(&machine, folder.path()).await.expect("taken back");
        assert_eq!(applied, Applied::TakenBack(Version::new(0, 2, 0)));
        assert_eq!(machine.did(), ["drain", "keep", "install 0.2.0", "install 0.1.0", "resume"]);
        let record = Record::read(folder.path()).expect("a record");
        assert!(record.failed.contains(&Version::new(0, 2, 0)) && record.pending.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unregistered_island_may_stay_unregistered_and_a_paused_one_stays_paused() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { lonely: vec!["0.1.0", "0.2.0"], held: true, ..Script::new() };
    assert_eq!(to_two(&machine, folder.path()).await.expect("done"), Applied::Done(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["drain", "keep", "install 0.2.0"], "it is not resumed");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_installed_that_cannot_be_reverted() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { cannot_keep: true, ..Script::new() };
    to_two(&machine, folder.path()).await.expect_err("it cannot be reverted");
    assert_eq!(machine.did(), ["drain", "keep", "resume"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_installation_is_completed() {
    let folder = tempfile::tempdir().expect("a folder");
    let pending = |held| Pending {
        version: Version::new(0, 2, 0),
        previous: folder.path().join("0.1.0"),
        was_connected: true,
        held,
    };
    let record = |held| Record { pending: Some(pending(held)), ..Record::default() };
    // It was killed before the package was installed: the former version runs.
    let machine = Script::new();
    let ended = settle(&machine, folder.path(), record(false), PATIENCE.start).await.expect("ended");
    assert_eq!(ended, Applied::TakenBack(Version::new(0, 2, 0)));
    // It was killed after that.
    let machine = Script::new();
    machine.state.borrow_mut().version = "0.2.0".to_owned();
    let ended = settle(&machine, folder.path(), record(true), PATIENCE.start).await.expect("ended");
    assert_eq!(ended, Applied::Done(Version::new(0, 2, 0)));
    // No version starts any more: that is an error.
    let machine = Script { broken: vec!["0.1.0", "0.2.0"], ..Script::new() };
    let lost = settle(&machine, folder.path(), record(false), PATIENCE.start).await;
    assert!(matches!(lost, Err(ApplyError::Lost(_))), "{lost:?}");
}
