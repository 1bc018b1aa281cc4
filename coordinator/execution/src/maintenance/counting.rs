//! Adds what owners of Islands earned to their balances, and karma to Islands, for all jobs that ended since the last
//! time. The ends of jobs do not, since those of one owner would wait for each other.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use island_coordinator_domain::fleet::Fleet;
use island_coordinator_storage::{Store, StoreError, host, ledger};

const INTERVAL: Duration = Duration::from_secs(2);
/// Rounds between two readings of the karma that other coordinators counted.
const KARMA_EVERY: u32 = 3;

/// The task.
#[derive(Debug)]
pub struct Counting {
    pub store: Store,
    pub fleet: Arc<Fleet>,
    pub stop: CancellationToken,
}

impl Counting {
    /// Runs until `stop` is triggered.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rounds = 0_u32;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // Every step is a transaction, so a round may end between any two of them.
            let counted = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                counted = self.round(rounds.is_multiple_of(KARMA_EVERY)) => counted,
            };
            rounds = rounds.wrapping_add(1);
            if let Err(error) = counted {
                tracing::warn!(error = %Chain(&error), "earnings not added to their balances; will retry");
            }
        }
    }

    async fn round(&self, is_karma_read: bool) -> Result<(), StoreError> {
        ledger::count_all(&self.store).await?;
        if is_karma_read {
            self.fleet.refresh_karma(host::karma(self.store.reader()).await?);
        }
        Ok(())
    }
}
