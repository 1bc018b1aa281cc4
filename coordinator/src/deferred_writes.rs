//! Writes that no answer waits for, made by one task: starts of attempts, the last use of API keys, releases and renewals of stream
//! slots, and the removal of expired counters.

use std::{collections::HashMap, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::{
    ids::{ApiKeyId, AttemptKey, InstanceId},
    time::Timestamp,
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    time::{Instant, Interval, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    storage::{Store, StoreError, commit, counters::SlotRow, jobs, key},
};

/// How long a stream slot is held without a renewal: the slots of a coordinator that was killed are free after this time.
pub(crate) const SLOT_LEASE_MS: i64 = 30_000;
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);
/// Time in which an abandoned statement is executed or has failed, more than the database's limit for statements.
const ABANDONED: Duration = Duration::from_secs(70);
/// Renewals between two removals of expired rows.
const PURGE_EVERY: u32 = 6;
/// Keys whose last use is cached. When there are more, the cache is cleared and each use is written again.
const MAX_CACHED_KEYS: usize = 10_000;

/// A write that may be delayed.
#[derive(Debug)]
pub(crate) enum DeferredWrite {
    /// An attempt began to execute.
    Started(AttemptKey, Timestamp),
    /// A key was used in this minute.
    KeyUsed(ApiKeyId, Timestamp),
    /// A stream ended without releasing its slot.
    SlotReleased(SlotRow),
    /// A request ended before its slot was taken or refused, so that the slot may still be taken.
    SlotAbandoned(SlotRow),
}

/// Sends writes to the task.
pub(crate) type Sender = mpsc::UnboundedSender<DeferredWrite>;

/// The task.
#[derive(Debug)]
pub(crate) struct DeferredWrites {
    pub store: Store,
    pub clock: Clock,
    pub instance: InstanceId,
    pub writes: UnboundedReceiver<DeferredWrite>,
    /// Ends the task after it has written what was sent before.
    pub stop: CancellationToken,
    /// Ends the task without further writes.
    pub hard: CancellationToken,
}

#[derive(Debug, Default)]
struct Pending {
    started: Vec<(AttemptKey, Timestamp)>,
    used: HashMap<ApiKeyId, Timestamp>,
    released: Vec<SlotRow>,
    /// Slots that may be taken after they were released: released again before each renewal.
    abandoned: Vec<(SlotRow, Instant)>,
    /// Uses that are in SQL.
    written: HashMap<ApiKeyId, Timestamp>,
}

impl DeferredWrites {
    /// Runs until `stop` or `hard` is triggered.
    pub(crate) async fn run(mut self) {
        let mut renewal = tokio::time::interval(RENEWAL_INTERVAL);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut pending, mut renewals) = (Pending::default(), 0_u32);
        while self.next(&mut pending, &mut renewal, &mut renewals).await {
            pending.write(&self.store, self.instance).await;
        }
        if !self.hard.is_cancelled() {
            while let Ok(write) = self.writes.try_recv() {
                pending.add(&write);
            }
            pending.write(&self.store, self.instance).await;
        }
    }

    /// Waits for writes or the next renewal. Returns `false` when the task is to end.
    async fn next(&mut self, pending: &mut Pending, renewal: &mut Interval, renewals: &mut u32) -> bool {
        let mut writes = Vec::new();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            count = self.writes.recv_many(&mut writes, 256) => if count == 0 { return false },
            _ = renewal.tick() => {
                *renewals = renewals.wrapping_add(1);
                if let Err(error) = self.renew(pending, renewals.is_multiple_of(PURGE_EVERY)).await {
                    tracing::warn!(error = %Chain(&error), "stream slots not renewed; will retry");
                }
            }
        }
        for write in writes {
            pending.add(&write);
        }
        true
    }

    async fn renew(&self, pending: &mut Pending, purge: bool) -> Result<(), StoreError> {
        let counters = self.store.counters();
        counters.synchronize(|| self.clock.now()).await?;
        for (slot, _) in &pending.abandoned {
            counters.release_slot(slot).await?;
        }
        pending.abandoned.retain(|(_, since)| since.elapsed() < ABANDONED);
        let now = self.clock.now();
        counters.renew_slots(self.instance, now.plus_ms(SLOT_LEASE_MS).unix_ms()).await?;
        if purge {
            counters.purge(now.unix_ms()).await?;
        }
        Ok(())
    }
}

impl Pending {
    fn add(&mut self, write: &DeferredWrite) {
        match *write {
            DeferredWrite::Started(key, at) => self.started.push((key, at)),
            DeferredWrite::KeyUsed(key, at) if self.written.get(&key).is_none_or(|written| *written < at) => {
                self.used.insert(key, at);
            }
            DeferredWrite::KeyUsed(..) => {}
            DeferredWrite::SlotReleased(slot) => self.released.push(slot),
            DeferredWrite::SlotAbandoned(slot) => {
                self.released.push(slot);
                self.abandoned.push((slot, Instant::now()));
            }
        }
    }

    /// Writes everything. Released slots and uses of keys that cannot be written are tried again with the next batch; starts are not,
    /// because the end of the job carries the same facts.
    async fn write(&mut self, store: &Store, instance: InstanceId) {
        if let Err(error) = self.write_started(store, instance).await {
            tracing::warn!(error = %Chain(&error), "starts of jobs not written");
        }
        if let Err(error) = self.write_released(store).await {
            tracing::warn!(error = %Chain(&error), "stream slots not released; will retry");
        }
        if let Err(error) = self.write_used(store).await {
            tracing::warn!(error = %Chain(&error), "use of keys not written; will retry");
        }
    }

    async fn write_started(&mut self, store: &Store, instance: InstanceId) -> Result<(), StoreError> {
        let mut started = std::mem::take(&mut self.started);
        if started.is_empty() { Ok(()) } else { jobs::started(store, instance, &mut started).await }
    }

    async fn write_released(&mut self, store: &Store) -> Result<(), StoreError> {
        while let Some(slot) = self.released.last() {
            store.counters().release_slot(slot).await?;
            self.released.pop();
        }
        Ok(())
    }

    async fn write_used(&mut self, store: &Store) -> Result<(), StoreError> {
        if self.used.is_empty() {
            return Ok(());
        }
        let mut tx = store.begin().await?;
        key::used(&mut tx, &self.used).await?;
        commit(tx).await?;
        if self.written.len() > MAX_CACHED_KEYS {
            self.written.clear();
        }
        self.written.extend(self.used.drain());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::ids::AccountId;
    use uuid::Uuid;

    use super::*;
    use crate::config::Database;

    #[tokio::test]
    async fn a_slot_that_is_taken_after_its_request_has_gone_is_not_renewed() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let (account, instance) = (AccountId(Uuid::new_v4()), InstanceId(Uuid::new_v4()));
        let slot = |holder| SlotRow { account, holder: Uuid::from_u128(holder), instance };
        let (_sender, writes) = mpsc::unbounded_channel();
        let (clock, stop, hard) = (Clock::System, CancellationToken::new(), CancellationToken::new());
        let task = DeferredWrites { store: store.clone(), clock, instance, writes, stop, hard };
        let take = async |holder| {
            let now = task.clock.now().unix_ms();
            let taken = store.counters().take_slot(&slot(holder), 1, now, now + SLOT_LEASE_MS).await;
            taken.expect("counted")
        };
        let mut pending = Pending::default();
        pending.add(&DeferredWrite::SlotAbandoned(slot(1)));
        pending.write(&store, instance).await;
        assert!(take(1).await, "the statement of the dropped request is executed late");
        assert!(!take(2).await);
        task.renew(&mut pending, false).await.expect("renewed");
        assert!(take(2).await, "the slot is free");
        store.close().await;
    }
}
