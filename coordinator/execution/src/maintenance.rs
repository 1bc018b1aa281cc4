//! Work that no request waits for: sums of the market and of usage, earnings that are added to balances, the deletion of old data,
//! and the revocation of fabric credentials. Every coordinator does it; each step is done by one of them.

mod counting;
mod revocations;

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::time::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

pub use counting::Counting;
use island_coordinator_domain::{
    clock::Clock,
    clock_trust,
    config::{DatabaseUrl, Retention},
    fleet::Fleet,
    metrics::Metrics,
};
use island_coordinator_storage::{
    Store, StoreError, books, commit, file, idempotency, indexes, market,
    progress::{self, Task},
    retention, revocation, usage, webhook,
};
pub use revocations::Revocations;

const INTERVAL: Duration = Duration::from_mins(1);
/// Pause between two batches of deletions, in which others write.
const BATCH_PAUSE: Duration = Duration::from_millis(20);
const DAY_MS: i64 = 24 * 3_600_000;

/// The task for sums and deletions.
#[derive(Debug)]
pub struct Maintenance {
    pub store: Store,
    pub clock: Clock,
    pub retention: Retention,
    /// Maximum life of fabric credentials.
    pub credentials_ms: i64,
    /// PostgreSQL, until its indexes of large tables are complete.
    pub unindexed: Option<DatabaseUrl>,
    pub metrics: Metrics,
    pub fleet: Arc<Fleet>,
    pub stop: CancellationToken,
}

impl Maintenance {
    /// Runs until `stop` is triggered.
    pub async fn run(mut self) {
        let stop = self.stop.clone();
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // Every step is a transaction, so a round may end between any two of them.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                done = self.round() => if let Err(error) = done {
                    tracing::warn!(error = %Chain(&error), "maintenance of the database interrupted; will retry");
                }
            }
        }
    }

    async fn round(&mut self) -> Result<(), StoreError> {
        self.build_indexes().await;
        // A span is not over, and nothing is deleted, because a clock is ahead.
        let now = self.clock.earliest();
        let is_trusted = self.is_clock_trusted(now).await?;
        self.metrics.state.set_clock_trusted(is_trusted);
        if is_trusted {
            self.sum_and_delete(now).await?;
        }
        let sums = books::sums(self.store.reader()).await?;
        self.metrics.books.checked(sums.balances, sums.holds, self.clock.now());
        Ok(())
    }

    /// Whether nothing speaks against this time, or other machines confirm it. Then it becomes the newest time that the database has seen.
    async fn is_clock_trusted(&self, now: Timestamp) -> Result<bool, StoreError> {
        let seen = progress::get(self.store.reader(), Task::Clock).await?;
        let seen = Some(seen).filter(|ms| *ms > 0).map(Timestamp::from_unix_ms);
        let mut differences = self.fleet.clock_differences(self.clock.now(), Instant::now());
        differences.extend(progress::clock_difference(&self.store, &self.clock).await?);
        if !clock_trust::is_trusted(now, seen, &differences) {
            tracing::error!(
                %now, seen = ?seen, witnesses = differences.len(),
                "this machine's clock is far ahead of the newest time in the database, and no Island and no database server on another machine \
                 confirms it: nothing is deleted or summed; if the clock is right, run `island-coordinator admin confirm-clock`"
            );
            return Ok(false);
        }
        let mut tx = self.store.begin().await?;
        progress::see(&mut tx, now.unix_ms()).await?;
        commit(tx).await?;
        Ok(true)
    }

    async fn sum_and_delete(&self, now: Timestamp) -> Result<(), StoreError> {
        while market::sum_hour(&self.store, now).await? {}
        while usage::sum_next(&self.store, now).await? {}
        for (task, days) in [
            (Task::Events, self.retention.events_d),
            (Task::Outputs, self.retention.outputs_d),
            (Task::Inputs, self.retention.inputs_d),
        ] {
            let Some(cutoff) = cutoff(now, days) else { continue };
            while let Some(jobs) = retention::delete_ended_before(&self.store, task, cutoff, now).await? {
                self.metrics.jobs.deleted(task.into(), jobs);
                tokio::time::sleep(BATCH_PAUSE).await;
            }
        }
        self.delete_files_and_deliveries(now).await?;
        let mut tx = self.store.begin().await?;
        let life_ms = i64::from(self.retention.idempotency_h) * 3_600_000;
        idempotency::purge(&mut tx, now.plus_ms(-life_ms)).await?;
        revocation::purge(&mut tx, now, self.credentials_ms).await?;
        commit(tx).await
    }
}

impl Maintenance {
    /// Statements are right without these indexes, so the other work goes on if they cannot be built.
    async fn build_indexes(&mut self) {
        let Some(url) = &self.unindexed else { return };
        match indexes::build(url).await {
            Ok(true) => self.unindexed = None,
            Ok(false) => tracing::debug!("another coordinator builds indexes"),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "indexes not built; will retry");
            }
        }
    }

    /// Deletes files whose time is over, uploads that were not finished, and old deliveries, some at a time.
    async fn delete_files_and_deliveries(&self, now: Timestamp) -> Result<(), StoreError> {
        loop {
            let mut tx = self.store.begin().await?;
            let files = file::delete_expired(&mut tx, now).await?;
            let deliveries = match cutoff(now, self.retention.deliveries_d) {
                Some(cutoff) => webhook::delete_ended(&mut tx, cutoff).await?,
                None => 0,
            };
            commit(tx).await?;
            if files + deliveries == 0 {
                return Ok(());
            }
            tokio::time::sleep(BATCH_PAUSE).await;
        }
    }
}

/// The time of completion up to which data is deleted.
fn cutoff(now: Timestamp, days: u32) -> Option<Timestamp> {
    (days > 0).then(|| now.plus_ms(-i64::from(days) * DAY_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_days_keep_data_for_ever() {
        let now = Timestamp::from_unix_ms(10 * DAY_MS);
        assert_eq!(cutoff(now, 0), None);
        assert_eq!(cutoff(now, 3), Some(Timestamp::from_unix_ms(7 * DAY_MS)));
    }
}
