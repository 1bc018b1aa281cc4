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
    time::{Interval, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    storage::{Store, StoreError, commit, counters::SlotRow, jobs, key},
};

/// How long a stream slot is held without a renewal: the slots of a coordinator that was killed are free after this time.
pub(crate) const SLOT_LEASE_MS: i64 = 30_000;
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);
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
                if let Err(error) = self.renew(renewals.is_multiple_of(PURGE_EVERY)).await {
                    tracing::warn!(error = %Chain(&error), "stream slots not renewed; will retry");
                }
            }
        }
        for write in writes {
            pending.add(&write);
        }
        true
    }

    async fn renew(&self, purge: bool) -> Result<(), StoreError> {
        let counters = self.store.counters();
        counters.synchronize(|| self.clock.now()).await?;
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
