//! Resumes every open job of this coordinator that has no runner: after a start, after a takeover from a coordinator
//! that is gone, and after a reply of the database was lost, so that the job was stored but its runner never started. Ends
//! the runners of jobs that moved away, so that who reads them here follows them.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, future, stream};
use island_daemon::chain::Chain;
use island_protocol::ids::JobId;
use tokio::time::MissedTickBehavior;

use super::{Execution, accept::Reservation, machine::Input, recover};
use island_coordinator_storage::{StoreError, jobs};

/// Time between two rounds, well below the time that a cancellation waits for a job without a runner.
const INTERVAL: Duration = Duration::from_secs(2);
/// Jobs that are resumed concurrently: each waits for the fabric a few times.
const CONCURRENCY: usize = 16;

/// Runs until `hard` is triggered.
pub(super) async fn run(execution: Arc<Execution>) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = execution.hard.cancelled() => return,
            () = execution.adopted.notified() => {}
            _ = tick.tick() => {}
        }
        let reconciled = tokio::select! {
            biased;
            () = execution.hard.cancelled() => return,
            reconciled = round(&execution) => reconciled,
        };
        if let Err(error) = reconciled {
            tracing::warn!(error = %Chain(&error), "open jobs without a runner not listed; will retry");
        }
    }
}

/// Compares SQL with the runners once. Oldest jobs first.
async fn round(execution: &Arc<Execution>) -> Result<(), StoreError> {
    // Listed before SQL is read: those were stored by then.
    let running = execution.all();
    let open = jobs::open(execution.context.store.reader(), execution.context.instance).await?;
    let open: HashSet<JobId> = open.into_iter().collect();
    for moved in running.iter().filter(|handle| !open.contains(&handle.id)) {
        // One that has just ended here ignores it.
        moved.send(Input::Moved);
    }
    let mut reserved: Vec<_> =
        open.into_iter().filter_map(|id| Some((id, Reservation::stored_job(execution, id)?))).collect();
    reserved.sort_unstable_by_key(|(id, _)| *id);
    let resumed =
        stream::iter(reserved).map(|(id, reservation)| resume(id, reservation)).buffer_unordered(CONCURRENCY);
    let jobs = resumed.filter(|is_resumed| future::ready(*is_resumed)).count().await;
    if jobs > 0 {
        tracing::info!(jobs, "open jobs resumed");
    }
    Ok(())
}

/// Resumes a job that had no runner when it was reserved. Returns `false` if the job had ended just before. The row is
/// read after the reservation: an end is committed before its runner goes, so a job that is open then has no runner.
async fn resume(id: JobId, reservation: Reservation) -> bool {
    let context = &reservation.execution.context;
    let read = async {
        let Some(job) = jobs::open_of(context.store.reader(), id, context.instance).await? else {
            return Ok(None);
        };
        let cargo = context.network.cargo_of_job(&job).await?;
        Ok::<_, StoreError>(Some((job, cargo)))
    };
    match read.await {
        Ok(Some((job, cargo))) => {
            recover::resume(reservation, job, cargo).await;
            true
        }
        Ok(None) => false,
        Err(error) => {
            tracing::error!(job = %id, error = %Chain(&error), "open job not resumed; will retry");
            false
        }
    }
}
