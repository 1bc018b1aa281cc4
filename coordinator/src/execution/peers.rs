//! Drives [`Peers`](crate::peers::Peers): sends this coordinator's heartbeat, and takes over the jobs of coordinators
//! whose heartbeats stopped.

use std::{collections::VecDeque, sync::Arc};

use island_daemon::chain::Chain;
use island_protocol::time::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};

use super::Execution;
use crate::{
    peers::{Effect, Input, Share},
    storage::{
        Pool, StoreError, coordinator, host,
        jobs::{self, Adopted},
    },
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

/// Runs until `hard` is triggered, or other coordinators have removed this one.
pub(super) async fn run(execution: Arc<Execution>, heartbeats: Pool) {
    let interval = execution.peers.lock().interval();
    let mut tick = tokio::time::interval(interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refreshed = execution.context.clock.now();
    loop {
        tokio::select! {
            biased;
            () = execution.hard.cancelled() => return,
            () = execution.removed.cancelled() => return,
            _ = tick.tick() => {}
        }
        if let Err(error) = round(&execution, &heartbeats).await {
            tracing::warn!(error = %Chain(&error), "heartbeats of other coordinators not read; will retry");
        }
        let now = execution.context.clock.now();
        match refresh(&execution, refreshed).await {
            Ok(()) => refreshed = now,
            Err(error) => tracing::warn!(error = %Chain(&error), "changes of Islands not read; will retry"),
        }
    }
}

/// Sends one heartbeat and does what follows from it.
async fn round(execution: &Execution, heartbeats: &Pool) -> Result<(), StoreError> {
    let mut effects = VecDeque::from(step(execution, Input::Due));
    while let Some(effect) = effects.pop_front() {
        let result = match effect {
            Effect::Beat => {
                let is_registered = coordinator::heartbeat(heartbeats, execution.context.instance).await?;
                Input::Beaten { is_registered }
            }
            Effect::List => Input::Listed { rows: coordinator::list(heartbeats).await? },
            Effect::Remove(silent) => {
                if coordinator::remove(heartbeats, silent).await? {
                    tracing::warn!(coordinator = %silent.id, "coordinator removed: its heartbeats stopped");
                }
                continue;
            }
            Effect::Adopt(share) => Input::Adopted { has_others: adopt(execution, &share).await?.has_others },
            Effect::Stop => {
                execution.removed.cancel();
                continue;
            }
        };
        effects.extend(step(execution, result));
    }
    Ok(())
}

fn step(execution: &Execution, input: Input) -> Vec<Effect> {
    execution.peers.lock().step(input, Instant::now())
}

/// Reads names, speeds and enrollments that other coordinators wrote.
async fn refresh(execution: &Execution, since: Timestamp) -> Result<(), StoreError> {
    let now = execution.context.clock.now();
    let changed = host::changed(execution.context.store.reader(), since.plus_ms(-SKEW_MS), now).await?;
    for enrolled in changed {
        execution.context.fleet.refresh(enrolled);
    }
    Ok(())
}
