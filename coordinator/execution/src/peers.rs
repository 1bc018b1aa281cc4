//! Drives [`Peers`](island_coordinator_domain::peers::Peers): sends this coordinator's heartbeat, and takes over the jobs of coordinators
//! whose heartbeats stopped.

use std::{collections::VecDeque, sync::Arc};

use island_daemon::chain::Chain;
use island_protocol::time::Timestamp;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};

use super::Execution;
use island_coordinator_domain::peers::{Effect, Input, PeerHeartbeat, Share};
use island_coordinator_storage::{
    Pool, StoreError, coordinator, host,
    jobs::{self, Adopted},
};

/// Maximum difference between the coordinators' clocks at which no change is missed.
const SKEW_MS: i64 = 60_000;

/// Moves open jobs whose coordinator was removed to this one. `reconcile` resumes them, so that the next heartbeat does
/// not wait for it.
pub(super) async fn adopt(execution: &Execution, share: &Share) -> Result<Adopted, StoreError> {
    let adopted = jobs::adopt(&execution.context.store, execution.context.instance, share).await?;
    if adopted.taken > 0 {
        tracing::info!(jobs = adopted.taken, "open jobs taken over");
        execution.adopted.notify_one();
    }
    Ok(adopted)
}

/// Sends heartbeats until `hard` is triggered, or other coordinators have removed this one.
pub(super) async fn run(execution: Arc<Execution>, heartbeats: Pool) {
    let interval = execution.peers.lock().interval();
    let mut tick = tokio::time::interval(interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // One takeover at most is under way.
    let (takeovers, due) = mpsc::channel(1);
    let taking_over = take_over(&execution, due);
    let beating = async {
        loop {
            tick.tick().await;
            if let Err(error) = round(&execution, &heartbeats, &takeovers).await {
                tracing::warn!(error = %Chain(&error), "heartbeats of other coordinators not read; will retry");
            }
        }
    };
    tokio::select! {
        biased;
        () = execution.hard.cancelled() => {}
        () = execution.removed.cancelled() => {}
        () = async { tokio::join!(beating, taking_over); } => {}
    }
}

/// Reads changes of Islands that other coordinators wrote, until `hard` is triggered.
pub(super) async fn refresh(execution: Arc<Execution>) {
    let interval = execution.peers.lock().interval();
    let mut tick = tokio::time::interval(interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since = execution.context.clock.now();
    let refreshing = async {
        loop {
            tick.tick().await;
            let now = execution.context.clock.now();
            match read_changes(&execution, since).await {
                Ok(()) => since = now,
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "changes of Islands not read; will retry");
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = execution.hard.cancelled() => {}
        () = refreshing => {}
    }
}

/// A takeover that is due.
#[derive(Debug)]
struct Takeover {
    silent: Vec<PeerHeartbeat>,
    share: Share,
}

/// Sends one heartbeat and does what follows from it.
async fn round(
    execution: &Execution,
    heartbeats: &Pool,
    takeovers: &mpsc::Sender<Takeover>,
) -> Result<(), StoreError> {
    let mut effects = VecDeque::from(step(execution, Input::Due));
    while let Some(effect) = effects.pop_front() {
        let result = match effect {
            Effect::Beat => {
                let is_registered = coordinator::heartbeat(heartbeats, execution.context.instance).await?;
                Input::Beaten { is_registered }
            }
            Effect::List => Input::Listed { rows: coordinator::list(heartbeats).await? },
            Effect::TakeOver { silent, share } => {
                // The channel is empty: the last one has a result.
                let _ = takeovers.try_send(Takeover { silent, share });
                continue;
            }
            Effect::Stop => {
                execution.removed.cancel();
                continue;
            }
        };
        effects.extend(step(execution, result));
    }
    Ok(())
}

/// Performs the takeovers that are due, one after the other.
async fn take_over(execution: &Execution, mut due: mpsc::Receiver<Takeover>) {
    while let Some(takeover) = due.recv().await {
        let has_others = match remove_and_adopt(execution, takeover).await {
            Ok(adopted) => Some(adopted.has_others),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "jobs without a coordinator not taken over; will retry");
                None
            }
        };
        step(execution, Input::TakenOver { has_others });
    }
}

/// Uses the connections of all writes: the only one for heartbeats must not wait for a row.
async fn remove_and_adopt(execution: &Execution, takeover: Takeover) -> Result<Adopted, StoreError> {
    for silent in takeover.silent {
        if coordinator::remove(&execution.context.store, silent).await? {
            tracing::warn!(coordinator = %silent.id, "coordinator removed: its heartbeats stopped");
        }
    }
    adopt(execution, &takeover.share).await
}

fn step(execution: &Execution, input: Input) -> Vec<Effect> {
    execution.peers.lock().step(input, Instant::now())
}

/// Reads names, speeds and enrollments that other coordinators wrote after `since`.
async fn read_changes(execution: &Execution, since: Timestamp) -> Result<(), StoreError> {
    let now = execution.context.clock.now();
    let changed = host::changed(execution.context.store.reader(), since.plus_ms(-SKEW_MS), now).await?;
    for enrolled in changed {
        execution.context.fleet.refresh(enrolled);
    }
    Ok(())
}
