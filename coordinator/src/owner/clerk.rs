//! Writes what may be written late, many rows to a transaction: that attempts began to execute.

use island_protocol::{
    ids::{AttemptKey, InstanceId},
    time::Timestamp,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::storage::{Store, job};

/// An attempt and when it began to execute.
pub(super) type Started = (AttemptKey, Timestamp);

/// Runs until `hard` is triggered. A failed write is logged only: the end of the job carries the same facts.
pub(super) async fn run(
    store: Store,
    owner: InstanceId,
    mut notes: mpsc::UnboundedReceiver<Started>,
    hard: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = hard.cancelled() => return,
            count = notes.recv_many(&mut batch, 256) => if count == 0 { return },
        }
        if let Err(error) = job::started(&store, owner, &mut batch).await {
            tracing::warn!(error = %island_daemon::chain::Chain(&error), "starts of jobs not written");
        }
        batch.clear();
    }
}
