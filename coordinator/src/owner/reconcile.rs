//! Takes up every open job of this coordinator that has no runner: after a start, after a takeover from a coordinator that is gone,
//! and after an answer of the database was lost, so that a row was written and its runner never started.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, future, stream};
use island_daemon::chain::Chain;
use island_protocol::ids::JobId;
use tokio::time::MissedTickBehavior;

use super::{Owner, accept::Reservation, recover};
use crate::storage::{StoreError, job as jobs};

/// Time between two looks, well below the time that a cancellation waits for a job without a runner.
const EVERY: Duration = Duration::from_secs(2);
/// Jobs that are taken up at once: each waits for the fabric a few times.
const AT_ONCE: usize = 16;

/// Runs until `hard` is triggered.
pub(super) async fn run(owner: Arc<Owner>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = owner.hard.cancelled() => return,
            () = owner.adopted.notified() => {}
            _ = tick.tick() => {}
        }
        let reconciled = tokio::select! {
            biased;
            () = owner.hard.cancelled() => return,
            reconciled = round(&owner) => reconciled,
        };
        if let Err(error) = reconciled {
            tracing::warn!(error = %Chain(&error), "open jobs without a runner were not looked for");
        }
    }
}

/// Compares SQL with the runners once. Oldest jobs first.
pub(super) async fn round(owner: &Arc<Owner>) -> Result<(), StoreError> {
    let open = jobs::open(owner.context.store.reader(), owner.context.instance).await?;
    let mut reserved: Vec<_> =
        open.into_iter().filter_map(|id| Some((id, Reservation::of_stored(owner, id)?))).collect();
    reserved.sort_unstable_by_key(|(id, _)| *id);
    let taken =
        stream::iter(reserved).map(|(id, reservation)| take_up(id, reservation)).buffer_unordered(AT_ONCE);
    let jobs = taken.filter(|is_taken| future::ready(*is_taken)).count().await;
    if jobs > 0 {
        tracing::info!(jobs, "open jobs taken up");
    }
    Ok(())
}

/// Takes up a job that had no runner when it was reserved. False: there was nothing to take up, as the job may have ended just before.
/// The row is read after the reservation: an end is committed before its runner goes, so what is open now has none.
async fn take_up(id: JobId, reservation: Reservation) -> bool {
    let context = &reservation.owner.context;
    match jobs::open_of(context.store.reader(), id, context.instance).await {
        Ok(Some(job)) => {
            recover::take_up(reservation, job).await;
            true
        }
        Ok(None) => false,
        Err(error) => {
            tracing::error!(job = %id, error = %Chain(&error), "open job not taken up yet");
            false
        }
    }
}
