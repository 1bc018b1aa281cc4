//! Evaluates the owner's rules and orders against the state of the machine, and makes the supervisor enforce the result.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use island_daemon::{chain::Chain, files::write_atomic, latest::Latest};
use island_protocol::{
    host::{ControlState, Order},
    time::Timestamp,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::owner::policy::{
    Cause, Orders, OwnerOrder, Rules, Stance, Verdict, decide,
    gpus::paused_gpus,
    presence::{LoginManager, Presence},
    schedule::Moment,
    sensors::{SensorReadings, Terminals},
};
use crate::{clock, disk::journal::boot_id, inventory::meter::Sample, supervisor::Supervisor};

mod remote;

use remote::RemoteOrders;
pub use remote::RemoteRefusal;

/// Time between two evaluations if an owner may return to the machine, which must be free within a second.
const QUICK: Duration = Duration::from_millis(400);
/// The same while jobs run: limits of workers are enforced with each evaluation.
const WATCHED: Duration = Duration::from_secs(1);
/// Time between two evaluations otherwise.
const SLOW: Duration = Duration::from_secs(5);
/// File of the owner's order, so that it survives restarts.
const FILE: &str = "owner.json";
/// Longest time for which the agent may be held for an update with one request.
const MAX_HOLD: Duration = Duration::from_mins(10);

/// The owner's order, and when it ends on the clock that counts from the start of the machine: nobody can set that one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Kept {
    order: OwnerOrder,
    ends_ms: Option<u64>,
}

/// [`Kept`] on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    order: OwnerOrder,
    /// When it ends, in the run of the machine in which it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends: Option<BootMoment>,
}

/// A moment in one run of the machine.
#[derive(Debug, Serialize, Deserialize)]
struct BootMoment {
    boot_id: String,
    at_ms: u64,
}

impl Kept {
    /// Converts the end in local time of an order that is given now. `now` and `boot_ms` are the present times of both clocks.
    fn new(order: OwnerOrder, now: Timestamp, boot_ms: u64) -> Self {
        let ends_ms = match order {
            OwnerOrder::Pause { until: Some(until) } => {
                let left_ms = until.unix_ms().saturating_sub(now.unix_ms()).max(0);
                Some(boot_ms.saturating_add(left_ms.unsigned_abs()))
            }
            _ => None,
        };
        Self { order, ends_ms }
    }

    /// What an order that cannot be read counts as.
    fn pause() -> Self {
        Self { order: OwnerOrder::Pause { until: None }, ends_ms: None }
    }

    /// Reads the file. Its time of day counts only if the machine was started again since.
    fn read(file: &Path) -> Self {
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                tracing::warn!(path = %file.display(), %error, "the owner's last order cannot be read: pausing");
                return Self::pause();
            }
        };
        match serde_json::from_slice::<Stored>(&text) {
            Ok(Stored { order, ends: Some(ends) }) if ends.boot_id == boot_id() => {
                Self { order, ends_ms: Some(ends.at_ms) }
            }
            Ok(Stored { order, .. }) => Self::new(order, clock::now(), clock::boot_ms()),
            Err(error) => {
                tracing::warn!(path = %file.display(), %error, "the owner's last order cannot be read: pausing");
                Self::pause()
            }
        }
    }

    fn write(&self, file: &Path) -> io::Result<()> {
        let ends = self.ends_ms.map(|at_ms| BootMoment { boot_id: boot_id(), at_ms });
        let text = serde_json::to_vec(&Stored { order: self.order, ends }).map_err(io::Error::other)?;
        write_atomic(file, &text, 0o600)
    }

    fn is_over(&self, boot_ms: u64) -> bool {
        self.ends_ms.is_some_and(|ends_ms| boot_ms >= ends_ms)
    }
}

/// Evaluates the rules and orders of the owner.
#[derive(Debug)]
pub struct Governor {
    rules: Rules,
    terminals: Terminals,
    login_manager: LoginManager,
    load: watch::Receiver<Arc<Sample>>,
    file: PathBuf,
    /// Held while the file is written or removed: file and memory change together.
    kept: Mutex<Kept>,
    /// Orders of the owner's account, if the settings allow them.
    remote: Option<RemoteOrders>,
    /// Until when an update holds the agent, in milliseconds since boot. Beside the owner's order, which it never changes.
    held_until_ms: Mutex<Option<u64>>,
    presence: Mutex<Presence>,
    /// Held while it is evaluated: a result from before an order must not replace the one after it.
    evaluating: Mutex<()>,
    changed: Notify,
    stance: watch::Sender<Stance>,
}

impl Governor {
    /// Loads the orders that are stored in the folder `state`; remote ones only if they are allowed. An order that cannot be read
    /// counts as a pause.
    pub fn load(rules: Rules, state: &Path, allow_remote: bool, load: watch::Receiver<Arc<Sample>>) -> Self {
        let file = state.join(FILE);
        let kept = Mutex::new(Kept::read(&file));
        let governor = Self {
            rules,
            terminals: Terminals::default(),
            login_manager: LoginManager::default(),
            load,
            file,
            kept,
            remote: allow_remote.then(|| RemoteOrders::read(state)),
            held_until_ms: Mutex::default(),
            presence: Mutex::default(),
            evaluating: Mutex::default(),
            changed: Notify::new(),
            stance: watch::Sender::default(),
        };
        governor.evaluate();
        governor
    }

    /// Returns the owner's latest order, unless it is over.
    pub fn order(&self) -> OwnerOrder {
        let mut kept = self.kept.lock();
        if kept.is_over(clock::boot_ms()) {
            *kept = Kept::default();
            // Under the lock, so that a pause which was just renewed keeps its file.
            if let Err(error) = fs::remove_file(&self.file)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %self.file.display(), error = %Chain(&error), "cannot remove a pause that is over");
            }
        }
        kept.order
    }

    /// The order on this machine and the remote one.
    pub fn orders(&self) -> Orders {
        Orders { local: self.order(), remote: self.remote.as_ref().and_then(RemoteOrders::get) }
    }

    /// What is reported about orders.
    pub fn control(&self) -> ControlState {
        self.orders().state(self.remote.is_some())
    }

    /// Applies an order of the owner's account, signed at `sent_at`. It never changes an order that was given on this machine.
    pub fn set_remote(&self, order: Order, sent_at: Timestamp) -> Result<(), RemoteRefusal> {
        self.remote.as_ref().ok_or(RemoteRefusal::NotAllowed)?.set(order, sent_at)?;
        self.evaluate();
        self.changed.notify_one();
        Ok(())
    }

    /// Applies an order of the owner, which ends a remote one. When this returns, the order is on disk and no job is accepted
    /// against it.
    ///
    /// # Errors
    /// The order could not be stored, and nothing has changed; or it applies, and the end of the remote one could not be stored.
    pub fn set_order(&self, order: OwnerOrder) -> io::Result<Verdict> {
        {
            let new = Kept::new(order, clock::now(), clock::boot_ms());
            let mut kept = self.kept.lock();
            new.write(&self.file)?;
            *kept = new;
        }
        let ended = self.remote.as_ref().map_or(Ok(()), RemoteOrders::end);
        // The order applies by now, whatever became of the remote one.
        self.evaluate();
        self.changed.notify_one();
        ended?;
        Ok(self.stance.latest().verdict)
    }

    /// Accepts no new jobs for this time, at most ten minutes, because an update is due; zero ends that. Not stored: an agent that was
    /// replaced is not held any more, and an updater that was killed holds it no longer than it requested.
    pub fn hold_for(&self, time: Duration) -> Verdict {
        let ms = time.min(MAX_HOLD).as_millis() as u64;
        *self.held_until_ms.lock() = (ms > 0).then(|| clock::boot_ms().saturating_add(ms));
        self.evaluate();
        self.changed.notify_one();
        self.stance.latest().verdict
    }

    fn is_held(&self) -> bool {
        self.held_until_ms.lock().is_some_and(|until_ms| clock::boot_ms() < until_ms)
    }

    /// Follows the result of the evaluation.
    pub fn stance(&self) -> watch::Receiver<Stance> {
        self.stance.subscribe()
    }

    /// Stops accepting jobs: the agent is stopping.
    pub fn stop_accepting(&self) {
        self.stance.send_modify(|stance| stance.is_stopping = true);
    }

    /// Evaluates until stopped, and makes the supervisor enforce the result.
    pub async fn run(&self, supervisor: Arc<Supervisor>, stop: CancellationToken) {
        let mut load = self.load.clone();
        let mut is_ordered = false;
        loop {
            // An order is enforced before the login manager is asked.
            if !is_ordered {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = self.refresh_presence() => {}
                }
            }
            self.evaluate();
            let stance = self.stance.latest();
            // Workers that are stopped have some seconds for it. An order that arrives meanwhile does not wait for their ends.
            is_ordered = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = supervisor.enforce(&stance) => false,
                () = self.changed.notified() => true,
            };
            if is_ordered {
                continue;
            }
            // A worker that was starting while the others were stopped is found by the next evaluation.
            let leaves = matches!(stance.verdict, Verdict::Leave { .. }) || !stance.paused_gpus.is_empty();
            let every = if leaves || self.rules.idle_minutes > 0 {
                QUICK
            } else if supervisor.is_idle() {
                SLOW
            } else {
                WATCHED
            };
            is_ordered = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.changed.notified() => true,
                Ok(()) = load.changed() => false,
                () = tokio::time::sleep(every) => false,
            };
        }
    }

    /// Asks the login manager whether a person uses the machine, if the rules depend on that. An order that arrives meanwhile comes first: the
    /// login manager may not answer for seconds.
    async fn refresh_presence(&self) {
        if self.rules.idle_minutes == 0 {
            return;
        }
        let before = self.presence.lock().clone();
        tokio::select! {
            biased;
            () = self.changed.notified() => {}
            now = before.refreshed(&self.login_manager) => *self.presence.lock() = now,
        }
    }

    /// Evaluates once. Receivers are notified only if the result changed.
    fn evaluate(&self) {
        let _one_at_a_time = self.evaluating.lock();
        let idle = || self.presence.lock().idle(self.terminals.idle(SystemTime::now()));
        let idle = (self.rules.idle_minutes > 0).then(idle).flatten();
        let load = self.load.latest();
        let readings = SensorReadings::of(&load, idle, &self.rules.gpu);
        let (moment, orders) = (Moment::now(), self.orders());
        let control = orders.state(self.remote.is_some());
        let before = self.stance.latest();
        let mut verdict = decide(&self.rules, orders, moment, &readings, &before.verdict);
        if verdict == Verdict::Yes && self.is_held() {
            verdict =
                Verdict::Finish { cause: Cause::Updating, reason: "an update is about to start".into() };
        }
        let paused_gpus = paused_gpus(&self.rules.gpu, &load.gpus, &before.paused_gpus);
        if verdict != before.verdict {
            tracing::info!(%verdict, "the owner's rules");
        }
        for (index, reason) in paused_gpus.iter().filter(|(index, _)| !before.paused_gpus.contains_key(index))
        {
            tracing::info!(gpu = index, reason, "a GPU is paused");
        }
        for index in before.paused_gpus.keys().filter(|index| !paused_gpus.contains_key(index)) {
            tracing::info!(gpu = index, "a GPU is no longer paused");
        }
        self.stance.send_if_modified(|stance| {
            let is_new =
                stance.verdict != verdict || stance.paused_gpus != paused_gpus || stance.control != control;
            (stance.verdict, stance.paused_gpus, stance.control) = (verdict, paused_gpus, control);
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::cargo::RuntimeType;
    use tokio::sync::mpsc;

    use super::*;
    use crate::{
        owner::policy::Cause,
        pool::ModelKey,
        testing,
        worker::{Command, WorkerExit, WorkerHandle, WorkerState},
    };

    fn governor(state: &Path) -> Governor {
        Governor::load(Rules::default(), state, true, watch::channel(Arc::new(Sample::default())).1)
    }

    #[test]
    fn a_pause_survives_a_restart() {
        let state = tempfile::tempdir().expect("a folder");
        let first = governor(state.path());
        assert_eq!(first.stance().latest().verdict, Verdict::Yes);
        first.set_order(OwnerOrder::Pause { until: None }).expect("stored");
        assert_eq!(first.stance().latest().verdict.cause(), Some(Cause::Paused), "at once");
        drop(first);
        let next = governor(state.path());
        assert_eq!(next.stance().latest().verdict.cause(), Some(Cause::Paused));
        next.set_order(OwnerOrder::None).expect("stored");
        assert_eq!(governor(state.path()).stance().latest().verdict, Verdict::Yes);
    }

    #[test]
    fn an_order_that_cannot_be_read_is_a_pause() {
        let state = tempfile::tempdir().expect("a folder");
        fs::write(state.path().join(FILE), "{").expect("write");
        assert_eq!(governor(state.path()).stance().latest().verdict.cause(), Some(Cause::Paused));
    }

    #[test]
    fn an_order_is_a_pause_if_its_file_cannot_be_opened() {
        let state = tempfile::tempdir().expect("a folder");
        // Also for root, reading a folder fails, and not because nothing is there.
        fs::create_dir(state.path().join(FILE)).expect("a folder");
        assert_eq!(governor(state.path()).stance().latest().verdict.cause(), Some(Cause::Paused));
    }

    #[test]
    fn a_pause_that_is_over_is_removed() {
        let state = tempfile::tempdir().expect("a folder");
        let until = Some(Timestamp::from_unix_ms(1));
        governor(state.path()).set_order(OwnerOrder::Pause { until }).expect("stored");
        assert!(!state.path().join(FILE).exists());
    }

    #[test]
    fn a_step_of_the_system_clock_ends_no_pause() {
        let at = Timestamp::from_unix_ms;
        let hour = Kept::new(OwnerOrder::Pause { until: Some(at(3_600_000)) }, at(0), 500);
        assert!(!hour.is_over(3_600_499) && hour.is_over(3_600_500), "an hour after it was given");
        let state = tempfile::tempdir().expect("a folder");
        let file = state.path().join(FILE);
        // Its end has passed on the system clock, as after a step, and not on the other clock.
        let ends_ms = Some(clock::boot_ms() + 3_600_000);
        let kept = Kept { order: OwnerOrder::Pause { until: Some(at(1)) }, ends_ms };
        kept.write(&file).expect("stored");
        assert_eq!(governor(state.path()).stance().latest().verdict.cause(), Some(Cause::Paused));
        // After a start of the machine only the system clock is known.
        let text = r#"{"order":"pause","until":"1970-01-01T00:00:01Z","ends":{"boot_id":"other","at_ms":0}}"#;
        fs::write(&file, text).expect("stored");
        assert_eq!(governor(state.path()).stance().latest().verdict, Verdict::Yes);
    }

    #[test]
    fn a_pause_that_is_renewed_while_it_ends_is_kept() {
        let state = tempfile::tempdir().expect("a folder");
        let governor = governor(state.path());
        for _ in 0..100 {
            let until = Some(clock::now());
            governor.set_order(OwnerOrder::Pause { until }).expect("stored");
            std::thread::scope(|scope| {
                scope.spawn(|| governor.order());
                governor.set_order(OwnerOrder::Pause { until: None }).expect("stored");
            });
            assert_eq!(governor.order(), OwnerOrder::Pause { until: None });
            assert!(state.path().join(FILE).exists());
        }
    }

    #[test]
    fn an_evaluation_from_before_an_order_does_not_replace_it() {
        let state = tempfile::tempdir().expect("a folder");
        let governor = governor(state.path());
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                        governor.evaluate();
                    }
                });
            }
            // Nothing panics here: the others would never end.
            let pairs: Vec<_> = (0..100)
                .map(|_| {
                    let resumed = governor.set_order(OwnerOrder::None);
                    let verdict = resumed.and_then(|_| governor.set_order(OwnerOrder::Pause { until: None }));
                    (verdict, governor.stance().latest().verdict)
                })
                .collect();
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
            for (verdict, then) in pairs {
                let verdict = verdict.expect("stored");
                assert_eq!(verdict.cause(), Some(Cause::Paused), "no job is accepted from here on");
                assert_eq!(then, verdict);
            }
        });
    }

    #[tokio::test]
    async fn an_order_does_not_wait_for_the_login_manager() {
        let state = tempfile::tempdir().expect("a folder");
        let rules = Rules { idle_minutes: 5, ..Rules::default() };
        let load = watch::channel(Arc::new(Sample::default())).1;
        let governor = Governor::load(rules, state.path(), false, load);
        governor.set_order(OwnerOrder::Pause { until: None }).expect("stored");
        governor.refresh_presence().await;
        assert!(!governor.presence.lock().was_asked(), "the order is enforced first");
        governor.refresh_presence().await;
        assert!(governor.presence.lock().was_asked());
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_does_not_wait_for_the_ends_of_workers() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_fabric, supervisor) = testing::supervisor(folder.path(), load).await;
        let mut cargo = testing::assignment(1, 1).cargo;
        (cargo.runtime_type, cargo.engine) = (RuntimeType::Container, serde_json::Value::Null);
        let key = ModelKey::of(&cargo, None);
        let (_lives, state) = watch::channel(WorkerState::Ready);
        // It waits for its daemon, which removes none of its containers.
        let (slow, mut to_slow) = WorkerHandle::in_state(cargo.clone(), Vec::new(), state.clone());
        supervisor.pool().list(key.clone(), slow);
        let governor = Arc::new(governor(folder.path()));
        let pause = OwnerOrder::Pause { until: None };
        governor.set_order(pause).expect("stored");
        let (evaluating, stop) = (Arc::clone(&governor), CancellationToken::new());
        let (enforced, stopped) = (Arc::clone(&supervisor), stop.clone());
        let evaluated = tokio::spawn(async move { evaluating.run(enforced, stopped).await });
        stopped_by(&mut to_slow).await;
        // It was starting while the other one was stopped.
        let (late, mut to_late) = WorkerHandle::in_state(cargo, Vec::new(), state);
        supervisor.pool().list(key, late);
        governor.set_order(pause).expect("stored");
        stopped_by(&mut to_late).await;
        while let Ok(command) = to_slow.try_recv() {
            let is_killed = matches!(command, Command::Kill(WorkerExit::Stalled));
            assert!(!is_killed, "the order waited until the time of the slow one was over");
        }
        stop.cancel();
        evaluated.await.expect("no panic");
    }

    /// Waits until a worker is stopped at once.
    async fn stopped_by(commands: &mut mpsc::UnboundedReceiver<Command>) {
        while !matches!(commands.recv().await.expect("the pool lists it"), Command::Stop { now: true }) {}
    }

    #[test]
    fn an_update_holds_the_agent_beside_the_owners_order() {
        let state = tempfile::tempdir().expect("a folder");
        let governor = governor(state.path());
        let pause = OwnerOrder::Pause { until: None };
        governor.set_order(pause).expect("stored");
        assert_eq!(governor.hold_for(Duration::from_mins(1)).cause(), Some(Cause::Paused));
        governor.set_order(OwnerOrder::None).expect("stored");
        assert_eq!(governor.stance().latest().verdict.cause(), Some(Cause::Updating));
        governor.set_order(pause).expect("stored");
        assert_eq!(governor.hold_for(Duration::ZERO).cause(), Some(Cause::Paused), "the pause remains");
        governor.set_order(OwnerOrder::None).expect("stored");
        assert_eq!(governor.stance().latest().verdict, Verdict::Yes);
        governor.hold_for(Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(5));
        governor.evaluate();
        assert_eq!(governor.stance().latest().verdict, Verdict::Yes, "it expires");
    }

    #[test]
    fn a_local_order_overrides_a_remote_one() {
        let state = tempfile::tempdir().expect("a folder");
        let at = Timestamp::from_unix_ms;
        let governor = governor(state.path());
        governor.set_remote(Order::Pause, at(1)).expect("stored");
        assert_eq!(governor.stance().latest().verdict.cause(), Some(Cause::Paused), "at once");
        assert!(governor.stance().latest().control.remote);
        // A command on this machine ends it.
        governor.set_order(OwnerOrder::None).expect("stored");
        assert_eq!(governor.stance().latest().verdict, Verdict::Yes);
        // A local pause is not ended remotely.
        governor.set_order(OwnerOrder::Pause { until: None }).expect("stored");
        governor.set_remote(Order::Resume, at(2)).expect("stored");
        assert_eq!(governor.stance().latest().verdict.cause(), Some(Cause::Paused));
        assert!(!governor.control().remote);
    }

    #[test]
    fn an_order_applies_also_if_the_end_of_a_remote_one_cannot_be_stored() {
        let state = tempfile::tempdir().expect("a folder");
        let governor = governor(state.path());
        governor.set_remote(Order::Drain, Timestamp::from_unix_ms(1)).expect("stored");
        // Also for root, a file cannot take the place of a folder.
        let file = state.path().join("remote-order.json");
        fs::remove_file(&file).expect("it was stored");
        fs::create_dir(&file).expect("a folder");
        governor.set_order(OwnerOrder::Pause { until: None }).expect_err("the remote order is still stored");
        assert_eq!(governor.stance().latest().verdict.cause(), Some(Cause::Paused), "at once");
        assert!(state.path().join(FILE).exists());
    }

    #[test]
    fn remote_orders_need_permission() {
        let state = tempfile::tempdir().expect("a folder");
        governor(state.path()).set_remote(Order::Drain, Timestamp::from_unix_ms(1)).expect("stored");
        let closed = Governor::load(Rules::default(), state.path(), false, watch::channel(Arc::default()).1);
        assert_eq!(closed.stance().latest().verdict, Verdict::Yes, "what was ordered before has no effect");
        let refused = closed.set_remote(Order::Pause, Timestamp::from_unix_ms(2));
        assert!(matches!(refused, Err(RemoteRefusal::NotAllowed)), "{refused:?}");
        assert_eq!(closed.control(), ControlState::default());
    }
}
