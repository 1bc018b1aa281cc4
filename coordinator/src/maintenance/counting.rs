//! Adds what owners of Islands earned to their balances, and karma to Islands, for all jobs that ended since the last
//! time. The ends of jobs do not, since those of one owner would wait for each other.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::{
    fleet::Fleet,
    storage::{Store, StoreError, commit, host, ledger},
};

const INTERVAL: Duration = Duration::from_secs(2);
/// Rounds between two readings of the karma that other coordinators counted.
const KARMA_EVERY: u32 = 3;

/// The task.
#[derive(Debug)]
pub(crate) struct Counting {
    pub store: Store,
    pub fleet: Arc<Fleet>,
    pub stop: CancellationToken,
}

impl Counting {
    /// Runs until `stop` is triggered.
    pub(crate) async fn run(self) {
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
        count(&self.store).await?;
        if is_karma_read {
            self.fleet.refresh_karma(host::karma(self.store.reader()).await?);
        }
        Ok(())
    }
}

/// Counts every entry and all karma that were committed before.
pub(crate) async fn count(store: &Store) -> Result<(), StoreError> {
    loop {
        let accounts = ledger::uncounted(store.reader()).await?;
        for account in &accounts {
            let mut tx = store.begin_locked([*account]).await?;
            ledger::count(&mut tx, *account).await?;
            commit(tx).await?;
        }
        if accounts.is_empty() {
            break;
        }
    }
    while host::has_uncounted_karma(store.reader()).await? {
        let mut tx = store.begin().await?;
        host::count_karma(&mut tx).await?;
        commit(tx).await?;
    }
    Ok(())
}
