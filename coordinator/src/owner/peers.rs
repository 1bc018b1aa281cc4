//! Living with other coordinators: showing that this one lives, and taking over the jobs of one that does not.

use std::sync::Arc;

use island_daemon::chain::Chain;
use island_protocol::time::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};

use super::Owner;
use crate::{
    peers::Watch,
    storage::{Pool, StoreError, coordinator, host, job as jobs},
};

/// How far the clocks of coordinators may be apart for a change not to be missed.
const SKEW_MS: i64 = 60_000;

/// Moves every open job whose owner is gone to this coordinator. `reconcile` takes them up, so that the next beat does not wait for it.
pub(super) async fn adopt(owner: &Owner) -> Result<(), StoreError> {
    let jobs = jobs::adopt(&owner.context.store, owner.context.instance).await?;
    if jobs > 0 {
        tracing::info!(jobs, "open jobs adopted");
        owner.adopted.notify_one();
    }
    Ok(())
}

/// Runs until `hard` is triggered, or others have taken this coordinator for dead.
pub(super) async fn run(owner: Arc<Owner>, pulse: Pool) {
    let mut watch = Watch::new(owner.context.instance, owner.context.takeover);
    let mut tick = tokio::time::interval(watch.beat());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refreshed = owner.context.clock.now();
    loop {
        tokio::select! {
            biased;
            () = owner.hard.cancelled() => return,
            _ = tick.tick() => {}
        }
        match round(&owner, &pulse, &mut watch).await {
            Ok(true) => {}
            Ok(false) => {
                owner.deposed.cancel();
                return;
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "the other coordinators were not seen"),
        }
        let now = owner.context.clock.now();
        match refresh(&owner, refreshed).await {
            Ok(()) => refreshed = now,
            Err(error) => tracing::warn!(error = %Chain(&error), "changes of Islands were not read"),
        }
    }
}

/// One beat and one look. False: this coordinator was struck off.
async fn round(owner: &Arc<Owner>, pulse: &Pool, watch: &mut Watch) -> Result<bool, StoreError> {
    if !coordinator::beat(pulse, owner.context.instance).await? {
        return Ok(false);
    }
    let rows = coordinator::list(pulse).await?;
    for silent in watch.look(&rows, Instant::now()) {
        if coordinator::bury(pulse, silent).await? {
            tracing::warn!(coordinator = %silent.id, "a coordinator has gone silent");
        }
    }
    adopt(owner).await?;
    Ok(true)
}

/// Names, karma and enrolments that other coordinators wrote.
async fn refresh(owner: &Owner, since: Timestamp) -> Result<(), StoreError> {
    let changed = host::changed(owner.context.store.reader(), since.plus_ms(-SKEW_MS)).await?;
    for enrolled in changed {
        owner.context.fleet.refresh(enrolled);
    }
    Ok(())
}
