//! Evaluates the owner's rules and orders against the state of the machine, and makes the supervisor enforce the result.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use island_daemon::{chain::Chain, files::write_atomic, latest::Latest};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::policy::{
    OwnerOrder, Rules, Stance, Verdict, decide,
    gpus::paused_gpus,
    schedule::Moment,
    sensors::{InputDevices, SensorReadings},
};
use crate::{inventory::meter::Sample, supervisor::Supervisor};

/// Time between two evaluations if an owner may return to the machine, which must be free within a second.
const QUICK: Duration = Duration::from_millis(400);
/// Time between two evaluations otherwise.
const SLOW: Duration = Duration::from_secs(5);
/// File of the owner's order, so that it survives restarts.
const FILE: &str = "owner.json";

/// Evaluates the rules and orders of the owner.
#[derive(Debug)]
pub struct Governor {
    rules: Rules,
    input_devices: InputDevices,
    load: watch::Receiver<Arc<Sample>>,
    file: PathBuf,
    order: Mutex<OwnerOrder>,
    changed: Notify,
    stance: watch::Sender<Stance>,
}

impl Governor {
    /// Loads the order that is stored in the folder `state`. An order that cannot be read counts as a pause.
    pub fn load(rules: Rules, state: &Path, load: watch::Receiver<Arc<Sample>>) -> Self {
        let file = state.join(FILE);
        let order = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %file.display(), %error, "the owner's last order cannot be read: pausing");
                OwnerOrder::Pause { until: None }
            }),
            Err(_) => OwnerOrder::None,
        };
        let governor = Self {
            rules,
            input_devices: InputDevices::default(),
            load,
            file,
            order: Mutex::new(order),
            changed: Notify::new(),
            stance: watch::Sender::default(),
        };
        governor.evaluate();
        governor
    }

    /// Returns the owner's latest order.
    pub fn order(&self) -> OwnerOrder {
        *self.order.lock()
    }

    /// Applies an order of the owner. When this returns, the order is on disk and no job is accepted against it.
    pub fn set_order(&self, order: OwnerOrder) -> io::Result<Verdict> {
        write_atomic(&self.file, &serde_json::to_vec(&order).map_err(io::Error::other)?, 0o600)?;
        *self.order.lock() = order;
        self.evaluate();
        self.changed.notify_one();
        Ok(self.stance.latest().verdict)
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
        loop {
            self.evaluate();
            let stance = self.stance.latest();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = supervisor.enforce(&stance) => {}
            }
            // A worker that was starting while the others were stopped is found by the next evaluation.
            let leaves = matches!(stance.verdict, Verdict::Leave { .. }) || !stance.paused_gpus.is_empty();
            let every = if leaves || self.rules.idle_minutes > 0 { QUICK } else { SLOW };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                Ok(()) = load.changed() => {}
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    /// Evaluates once. Receivers are notified only if the result changed.
    fn evaluate(&self) {
        let idle =
            (self.rules.idle_minutes > 0).then(|| self.input_devices.idle(SystemTime::now())).flatten();
        let load = self.load.latest();
        let readings = SensorReadings::of(&load, idle, &self.rules.gpu);
        let (moment, order) = (Moment::now(), self.order());
        let before = self.stance.latest();
        let verdict = decide(&self.rules, order, moment, &readings, &before.verdict);
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
            let is_new = stance.verdict != verdict || stance.paused_gpus != paused_gpus;
            (stance.verdict, stance.paused_gpus) = (verdict, paused_gpus);
            is_new
        });
        if let OwnerOrder::Pause { until: Some(until) } = order
            && moment.now >= until
        {
            // The pause is over; its file is removed.
            *self.order.lock() = OwnerOrder::None;
            if let Err(error) = fs::remove_file(&self.file) {
                tracing::warn!(path = %self.file.display(), error = %Chain(&error), "cannot remove a pause that is over");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Cause;

    fn governor(state: &Path) -> Governor {
        Governor::load(Rules::default(), state, watch::channel(Arc::new(Sample::default())).1)
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
    fn a_pause_that_is_over_is_removed() {
        let state = tempfile::tempdir().expect("a folder");
        let until = Some(island_protocol::time::Timestamp::from_unix_ms(1));
        governor(state.path()).set_order(OwnerOrder::Pause { until }).expect("stored");
        assert!(!state.path().join(FILE).exists());
    }
}
