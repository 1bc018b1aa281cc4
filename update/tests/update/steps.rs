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
    /// Versions that start and never answer.
    hanging: Vec<&'static str>,
    /// Versions whose installation never ends.
    stuck: Vec<&'static str>,
    /// Number of status queries, the first ones, that are never answered.
    late_for: usize,
    cannot_keep: bool,
    cannot_release: bool,
    /// Whether another program uses the package manager.
    is_locked: bool,
}

#[derive(Debug)]
struct State {
    version: String,
    looks: usize,
    did: Vec<String>,
}

impl Script {
    fn new() -> Self {
        let state = State { version: "0.1.0".to_owned(), looks: 0, did: Vec::new() };
        Self {
            state: RefCell::new(state),
            busy_for: 0,
            broken: Vec::new(),
            lonely: Vec::new(),
            hanging: Vec::new(),
            stuck: Vec::new(),
            late_for: 0,
            cannot_keep: false,
            cannot_release: false,
            is_locked: false,
        }
    }

    fn did(&self) -> Vec<String> {
        self.state.borrow().did.clone()
    }

    /// Notes a step; a repetition of the last one counts once.
    fn note(&self, what: &str) {
        let mut state = self.state.borrow_mut();
        if state.did.last().is_none_or(|last| last != what) {
            state.did.push(what.to_owned());
        }
    }
}

impl Machine for Script {
    async fn installed(&self) -> Result<Version, MachineError> {
        Ok(self.state.borrow().version.parse().expect("a version"))
    }

    async fn health(&self) -> Option<Health> {
        let is_hanging = {
            let mut state = self.state.borrow_mut();
            state.looks += 1;
            self.hanging.contains(&state.version.as_str()) || state.looks <= self.late_for
        };
        if is_hanging {
            return std::future::pending().await;
        }
        let state = self.state.borrow();
        if self.broken.contains(&state.version.as_str()) {
            return None;
        }
        Some(Health {
            version: state.version.parse().expect("a version"),
            connected: !self.lonely.contains(&state.version.as_str()),
            jobs: usize::from(state.looks <= self.busy_for),
        })
    }

    async fn hold(&self, time: Duration) -> Result<(), MachineError> {
        self.note(if time.is_zero() { "release" } else { "hold" });
        if time.is_zero() && self.cannot_release {
            return Err(MachineError { what: "hold the agent".to_owned(), why: "it is away".to_owned() });
        }
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
        if self.stuck.contains(&version.as_str()) {
            return std::future::pending().await;
        }
        if self.is_locked {
            return Err(MachineError { what: "install".to_owned(), why: "the lock is held".to_owned() });
        }
        self.state.borrow_mut().version = version;
        Ok(())
    }
}

async fn to_two(machine: &Script, folder: &Path) -> Result<Applied, ApplyError> {
    to_two_within(PATIENCE, machine, folder).await
}

async fn to_two_within(patience: Timeouts, machine: &Script, folder: &Path) -> Result<Applied, ApplyError> {
    let two = Version::new(0, 2, 0);
    let record = Record::read(folder).expect("a record");
    apply(machine, folder, record, two, Path::new("/staged/0.2.0"), patience, 1000).await
}

#[tokio::test(start_paused = true)]
async fn a_working_version_starts_and_accepts_jobs() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { busy_for: 5, ..Script::new() };
    assert_eq!(to_two(&machine, folder.path()).await.expect("done"), Applied::Done(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["hold", "keep", "install 0.2.0", "release"]);
    assert_eq!(Record::read(folder.path()).expect("a record").pending, None);
}

#[tokio::test(start_paused = true)]
async fn jobs_are_not_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { busy_for: usize::MAX, ..Script::new() };
    assert_eq!(to_two(&machine, folder.path()).await.expect("another time"), Applied::Busy(1));
    assert_eq!(machine.did(), ["hold", "release"]);
}

#[tokio::test(start_paused = true)]
async fn jobs_of_an_agent_that_answers_late_are_not_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { late_for: 4, busy_for: usize::MAX, ..Script::new() };
    assert_eq!(to_two(&machine, folder.path()).await.expect("another time"), Applied::Busy(1));
    assert_eq!(machine.did(), ["hold", "release"]);
}

#[tokio::test(start_paused = true)]
async fn jobs_of_an_agent_that_answers_late_are_not_interrupted_where_no_job_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let patience = Timeouts { drain: Duration::ZERO, ..PATIENCE };
    let late = Script { late_for: 2, busy_for: usize::MAX, ..Script::new() };
    let applied = to_two_within(patience, &late, folder.path()).await.expect("another time");
    assert_eq!(applied, Applied::Busy(1));
    assert_eq!(late.did(), ["hold", "release"]);
    let hanging = Script { hanging: vec!["0.1.0"], ..Script::new() };
    let applied = to_two_within(patience, &hanging, folder.path()).await.expect("done");
    assert_eq!(applied, Applied::Done(Version::new(0, 2, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_hangs_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { hanging: vec!["0.1.0"], ..Script::new() };
    assert_eq!(to_two(&machine, folder.path()).await.expect("done"), Applied::Done(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["keep", "install 0.2.0", "release"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_found_is_reported_although_the_hold_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let busy = Script { busy_for: usize::MAX, cannot_release: true, ..Script::new() };
    assert_eq!(to_two(&busy, folder.path()).await.expect("another time"), Applied::Busy(1));
    let full = Script { cannot_keep: true, cannot_release: true, ..Script::new() };
    let error = to_two(&full, folder.path()).await.expect_err("it cannot be reverted");
    assert_eq!(error.to_string(), "keep: no space");
}

#[tokio::test(start_paused = true)]
async fn an_installation_that_never_ends_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { stuck: vec!["0.2.0"], ..Script::new() };
    // On a clock that stands still while something can run.
    let applied = tokio::time::timeout(Duration::from_hours(24), to_two(&machine, folder.path())).await;
    let applied = applied.expect("it waits for the package manager").expect("another time");
    assert_eq!(applied, Applied::Postponed(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["hold", "keep", "install 0.2.0", "release"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_does_not_start_or_register_is_reverted_and_not_tried_again() {
    for machine in
        [Script { broken: vec!["0.2.0"], ..Script::new() }, Script { lonely: vec!["0.2.0"], ..Script::new() }]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let applied = to_two(&machine, folder.path()).await.expect("taken back");
        assert_eq!(applied, Applied::TakenBack(Version::new(0, 2, 0)));
        assert_eq!(machine.did(), ["hold", "keep", "install 0.2.0", "install 0.1.0", "release"]);
        let record = Record::read(folder.path()).expect("a record");
        assert!(record.failed.contains(&Version::new(0, 2, 0)) && record.pending.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_starts_and_never_answers_is_reverted() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { hanging: vec!["0.2.0"], ..Script::new() };
    // On a clock that stands still while something can run.
    let applied = tokio::time::timeout(Duration::from_hours(1), to_two(&machine, folder.path())).await;
    let applied = applied.expect("it waits for an answer").expect("taken back");
    assert_eq!(applied, Applied::TakenBack(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["hold", "keep", "install 0.2.0", "install 0.1.0", "release"]);
}

#[tokio::test(start_paused = true)]
async fn an_unregistered_island_may_stay_unregistered() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { lonely: vec!["0.1.0", "0.2.0"], ..Script::new() };
    assert_eq!(to_two(&machine, folder.path()).await.expect("done"), Applied::Done(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["hold", "keep", "install 0.2.0", "release"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_not_installed_is_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { is_locked: true, ..Script::new() };
    let applied = to_two(&machine, folder.path()).await.expect("another time");
    assert_eq!(applied, Applied::Postponed(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["hold", "keep", "install 0.2.0", "release"]);
    assert_eq!(Record::read(folder.path()).expect("a record"), Record::default());
}

#[tokio::test(start_paused = true)]
async fn a_version_is_not_blamed_for_a_network_that_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    // The former version was registered before, and is not after the update either.
    let machine = Script { lonely: vec!["0.1.0", "0.2.0"], ..Script::new() };
    machine.state.borrow_mut().version = "0.2.0".to_owned();
    let previous = folder.path().join("0.1.0");
    let pending = Some(Pending { version: Version::new(0, 2, 0), previous, was_connected: true });
    let record = Record { pending, ..Record::default() };
    let ended = settle(&machine, folder.path(), record, PATIENCE.start).await.expect("another time");
    assert_eq!(ended, Applied::Postponed(Version::new(0, 2, 0)));
    assert!(Record::read(folder.path()).expect("a record").failed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn jobs_that_never_end_delay_an_update_for_a_week() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { busy_for: usize::MAX, ..Script::new() };
    let two = || Version::new(0, 2, 0);
    let at = async |day: i64| {
        let record = Record::read(folder.path()).expect("a record");
        let package = Path::new("/staged/0.2.0");
        let now = 1000 + day * 24 * 3600;
        apply(&machine, folder.path(), record, two(), package, PATIENCE, now).await.expect("applied")
    };
    assert_eq!(at(0).await, Applied::Busy(1));
    assert_eq!(at(6).await, Applied::Busy(1));
    assert_eq!(at(7).await, Applied::Done(two()));
    assert_eq!(Record::read(folder.path()).expect("a record").busy_since, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_installed_that_cannot_be_reverted() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Script { cannot_keep: true, ..Script::new() };
    to_two(&machine, folder.path()).await.expect_err("it cannot be reverted");
    assert_eq!(machine.did(), ["hold", "keep", "release"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_installation_is_completed() {
    let folder = tempfile::tempdir().expect("a folder");
    let previous = folder.path().join("0.1.0");
    let pending = Pending { version: Version::new(0, 2, 0), previous, was_connected: true };
    let record = || Record { pending: Some(pending.clone()), ..Record::default() };
    // It was killed before the package was installed: the former version runs.
    let machine = Script::new();
    let ended = settle(&machine, folder.path(), record(), PATIENCE.start).await.expect("ended");
    assert_eq!(ended, Applied::Postponed(Version::new(0, 2, 0)));
    assert_eq!(machine.did(), ["release"]);
    // It was killed after that.
    let machine = Script::new();
    machine.state.borrow_mut().version = "0.2.0".to_owned();
    let ended = settle(&machine, folder.path(), record(), PATIENCE.start).await.expect("ended");
    assert_eq!(ended, Applied::Done(Version::new(0, 2, 0)));
    // No version starts any more: that is an error.
    let machine = Script { broken: vec!["0.1.0", "0.2.0"], ..Script::new() };
    let lost = settle(&machine, folder.path(), record(), PATIENCE.start).await;
    assert!(matches!(lost, Err(ApplyError::Lost(_))), "{lost:?}");
}
