//! Sends this coordinator's heartbeat, and takes over the jobs of coordinators whose heartbeats stopped.

use std::sync::Arc;

use island_daemon::chain::Chain;
use island_protocol::time::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};

use super::Execution;
use crate::{
    peers::PeerMonitor,
    storage::{Pool, StoreError, coordinator, host, jobs},
};

/// Maximum difference between the coordinators' clocks at which no change is missed.
const SKEW_MS: i64 = 60_000;

/// Moves every open job whose coordinator was removed to this one. `reconcile` resumes them, so that the next heartbeat
/// does not wait for it.
pub(super) async fn adopt(execution: &Execution) -> Result<(), StoreError> {
    let jobs = jobs::adopt(&execution.context.store, execution.context.instance).await?;
    if jobs > 0 {
        tracing::info!(jobs, "open jobs taken over");
        execution.adopted.notify_one();
    }
    Ok(())
}

/// Runs until `hard` is triggered, or other coordinators have removed this one.
pub(super) async fn run(execution: Arc<Execution>, heartbeats: Pool) {
    let mut monitor = PeerMonitor::new(execution.context.instance, execution.context.takeover);
    let mut tick = tokio::time::interval(monitor.heartbeat_interval());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refreshed = execution.context.clock.now();
    loop {
        tokio::select! {
            biased;
            () = execution.hard.cancelled() => return,
            _ = tick.tick() => {}
        }
        // A heartbeat counts from when it was sent: it may be written at once and its reply arrive late.
        let begun = Instant::now();
        match round(&execution, &heartbeats, &mut monitor).await {
            Ok(true) => execution.fence.lock().renew(begun),
            Ok(false) => {
                execution.removed.cancel();
                return;
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "heartbeats of other coordinators not read; will retry");
            }
        }
        let now = execution.context.clock.now();
        match refresh(&execution, refreshed).await {
            Ok(()) => refreshed = now,
            Err(error) => tracing::warn!(error = %Chain(&error), "changes of Islands not read; will retry"),
        }
    }
}

/// Sends one heartbeat and checks the others. Returns `false` if this coordinator was removed.
async fn round(
    execution: &Arc<Execution>,
    heartbeats: &Pool,
    monitor: &mut PeerMonitor,
) -> Result<bool, StoreError> {
    if !coordinator::heartbeat(heartbeats, execution.context.instance).await? {
        return Ok(false);
    }
    let rows = coordinator::list(heartbeats).await?;
    for silent in monitor.observe(&rows, Instant::now()) {
        if coordinator::remove(heartbeats, silent).await? {
            tracing::warn!(coordinator = %silent.id, "coordinator removed: its heartbeats stopped");
        }
    }
    adopt(execution).await?;
    Ok(true)
}

/// Reads names, karma and enrollments that other coordinators wrote.
async fn refresh(execution: &Execution, since: Timestamp) -> Result<(), StoreError> {
    let changed = host::changed(execution.context.store.reader(), since.plus_ms(-SKEW_MS)).await?;
    for enrolled in changed {
        execution.context.fleet.refresh(enrolled);
    }
    Ok(())
}
