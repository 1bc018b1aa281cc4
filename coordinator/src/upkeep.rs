//! What may be written late, by one task: when keys were last used, stream slots given back and renewed, and the
//! removal of what counts no more.

use std::{collections::HashMap, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::{
    ids::{ApiKeyId, InstanceId},
    time::Timestamp,
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    time::{Interval, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    storage::{Store, StoreError, commit, counters::SlotRow, idempotency, key},
};

/// How long a stream slot is kept without a renewal: a coordinator that dies frees its slots after this.
pub(crate) const SLOT_LEASE_MS: i64 = 30_000;
const BEAT: Duration = Duration::from_secs(10);
/// Beats from one sweep to the next.
const SWEEP_EVERY: u32 = 6;
/// Keys whose last use is remembered; beyond it everything is forgotten and written again.
const REMEMBERED: usize = 10_000;

/// Something to write.
#[derive(Debug)]
pub(crate) enum Note {
    /// A key was used in this minute.
    Used(ApiKeyId, Timestamp),
    /// A stream is over.
    Freed(SlotRow),
}

/// How notes reach the task.
pub(crate) type Notes = mpsc::UnboundedSender<Note>;

/// The task.
#[derive(Debug)]
pub(crate) struct Upkeep {
    pub store: Store,
    pub clock: Clock,
    pub instance: InstanceId,
    pub notes: UnboundedReceiver<Note>,
    /// Asks for the end, with what is noted already written.
    pub stop: CancellationToken,
    /// Asks for the end at once.
    pub hard: CancellationToken,
}

#[derive(Debug, Default)]
struct Pending {
    used: HashMap<ApiKeyId, Timestamp>,
    freed: Vec<SlotRow>,
    /// Uses that are in SQL.
    written: HashMap<ApiKeyId, Timestamp>,
}

impl Upkeep {
    /// Runs until asked to stop.
    pub(crate) async fn run(mut self) {
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut pending, mut beats) = (Pending::default(), 0_u32);
        while self.next(&mut pending, &mut beat, &mut beats).await {
            pending.write(&self.store).await;
        }
        if !self.hard.is_cancelled() {
            while let Ok(note) = self.notes.try_recv() {
                pending.take(&note);
            }
            pending.write(&self.store).await;
        }
    }

    /// Waits for notes or the beat; false: the end.
    async fn next(&mut self, pending: &mut Pending, beat: &mut Interval, beats: &mut u32) -> bool {
        let mut notes = Vec::new();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            count = self.notes.recv_many(&mut notes, 256) => if count == 0 { return false },
            _ = beat.tick() => {
                *beats = beats.wrapping_add(1);
                if let Err(error) = self.beat(beats.is_multiple_of(SWEEP_EVERY)).await {
                    tracing::warn!(error = %Chain(&error), "upkeep put off");
                }
            }
        }
        for note in notes {
            pending.take(&note);
        }
        true
    }

    async fn beat(&self, sweep: bool) -> Result<(), StoreError> {
        let now = self.clock.now();
        let counters = self.store.counters();
        counters.renew_slots(self.instance, now.plus_ms(SLOT_LEASE_MS).unix_ms()).await?;
        if sweep {
            counters.sweep(now.unix_ms()).await?;
            let mut tx = self.store.begin().await?;
            idempotency::sweep(&mut tx, now).await?;
            commit(tx).await?;
        }
        Ok(())
    }
}

impl Pending {
    fn take(&mut self, note: &Note) {
        match *note {
            Note::Used(key, at) if self.written.get(&key).is_none_or(|written| *written < at) => {
                self.used.insert(key, at);
            }
            Note::Used(..) => {}
            Note::Freed(slot) => self.freed.push(slot),
        }
    }

    /// Writes everything; what fails is kept for the next time.
    async fn write(&mut self, store: &Store) {
        if let Err(error) = self.write_freed(store).await {
            tracing::warn!(error = %Chain(&error), "stream slots not freed yet");
        }
        if let Err(error) = self.write_used(store).await {
            tracing::warn!(error = %Chain(&error), "use of keys not noted yet");
        }
    }

    async fn write_freed(&mut self, store: &Store) -> Result<(), StoreError> {
        while let Some(slot) = self.freed.last() {
            store.counters().free_slot(slot).await?;
            self.freed.pop();
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
        if self.written.len() > REMEMBERED {
            self.written.clear();
        }
        self.written.extend(self.used.drain());
        Ok(())
    }
}
