//! Writes that no answer waits for, made by one task: starts of attempts, Islands of conversations, the last use of API keys, releases of
//! stream slots. Another one renews the slots, which must not wait for a database that is slow or locked, and removes expired
//! counters.

use std::{collections::HashMap, sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::{
    ids::{ApiKeyId, AttemptKey, HostId, InstanceId, Slug},
    time::Timestamp,
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use parking_lot::Mutex;

use island_coordinator_domain::{clock::Clock, job::Times};
use island_coordinator_storage::{
    Store, StoreError, commit,
    counters::{Counters, SlotRow},
    jobs, key, network,
};

/// How long a stream slot is held without a renewal: the slots of a coordinator that was killed are free after this time.
pub const SLOT_LEASE_MS: i64 = 30_000;
/// How long the Island of a conversation is known: its cached beginning has been removed by then, or will be read again soon.
const CONVERSATION_MS: i64 = 3_600_000;
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);
/// Time in which an abandoned statement is executed or has failed, more than the database's limit for statements.
const ABANDONED: Duration = Duration::from_secs(70);
/// Renewals between two removals of expired rows.
const PURGE_EVERY: u32 = 6;
/// Maximum length of the reason for which a Cargo is disabled, characters.
const MAX_REASON: usize = 500;
/// Keys whose last use is cached. When there are more, the cache is cleared and each use is written again.
const MAX_CACHED_KEYS: usize = 10_000;

/// A write that may be delayed.
#[derive(Debug)]
pub enum DeferredWrite {
    /// An Island ran the last job of a conversation.
    Conversation { identity: String, host: HostId, at: Timestamp },
    /// Islands of several owners report that a file of a Cargo has another hash than its entry states.
    PauseCargo { cargo: Slug, message: String, at: Timestamp },
    /// An attempt began to execute.
    Started(AttemptKey, Times),
    /// A key was used in this minute.
    KeyUsed(ApiKeyId, Timestamp),
    /// A stream ended without releasing its slot.
    SlotReleased(SlotRow),
    /// A request ended before its slot was taken or refused, so that the slot may still be taken.
    SlotAbandoned(SlotRow),
}

/// Sends writes to the task.
pub type Sender = mpsc::UnboundedSender<DeferredWrite>;

/// The task.
#[derive(Debug)]
pub struct DeferredWrites {
    pub store: Store,
    pub clock: Clock,
    pub instance: InstanceId,
    pub writes: UnboundedReceiver<DeferredWrite>,
    /// Ends the task after it has written what was sent before.
    pub stop: CancellationToken,
    /// Ends the task without further writes.
    pub hard: CancellationToken,
}

/// Slots that may be taken after they were released: released again before each renewal.
type Abandoned = Arc<Mutex<Vec<(SlotRow, Instant)>>>;

#[derive(Debug, Default)]
struct Pending {
    started: Vec<(AttemptKey, Times)>,
    used: HashMap<ApiKeyId, Timestamp>,
    released: Vec<SlotRow>,
    conversations: HashMap<String, (HostId, Timestamp)>,
    paused: HashMap<Slug, (String, Timestamp)>,
    abandoned: Abandoned,
    /// Uses that are in SQL.
    written: HashMap<ApiKeyId, Timestamp>,
}

impl DeferredWrites {
    /// Runs until `stop` or `hard` is triggered.
    pub async fn run(mut self) {
        let mut pending = Pending::default();
        let renewal = renew_until_stopped(
            self.store.counters().clone(),
            self.clock.clone(),
            self.instance,
            pending.abandoned.clone(),
        );
        let hard = self.hard.clone();
        tokio::select! {
            biased;
            () = self.write_until_stopped(&mut pending) => {}
            () = renewal => {}
        }
        if !hard.is_cancelled() {
            while let Ok(write) = self.writes.try_recv() {
                pending.add(write);
            }
            pending.write(&self.store, self.instance).await;
        }
    }

    async fn write_until_stopped(&mut self, pending: &mut Pending) {
        loop {
            let mut writes = Vec::new();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                count = self.writes.recv_many(&mut writes, 256) => if count == 0 { return },
            }
            writes.into_iter().for_each(|write| pending.add(write));
            pending.write(&self.store, self.instance).await;
        }
    }
}

/// Renews the slots of this coordinator, and removes expired counters now and then. Does not return.
async fn renew_until_stopped(counters: Counters, clock: Clock, instance: InstanceId, abandoned: Abandoned) {
    let mut tick = tokio::time::interval(RENEWAL_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for renewals in 1_u32.. {
        tick.tick().await;
        let is_purged = renewals.is_multiple_of(PURGE_EVERY);
        if let Err(error) = renew(&counters, &clock, instance, &abandoned, is_purged).await {
            tracing::warn!(error = %Chain(&error), "stream slots not renewed; will retry");
        }
    }
}

async fn renew(
    counters: &Counters,
    clock: &Clock,
    instance: InstanceId,
    abandoned: &Abandoned,
    is_purged: bool,
) -> Result<(), StoreError> {
    counters.synchronize(|| clock.steady()).await?;
    let slots: Vec<_> = abandoned.lock().iter().map(|(slot, _)| *slot).collect();
    for slot in &slots {
        counters.release_slot(slot).await?;
    }
    abandoned.lock().retain(|(_, since)| since.elapsed() < ABANDONED);
    let now = clock.steady();
    counters.renew_slots(instance, now.plus_ms(SLOT_LEASE_MS).unix_ms()).await?;
    if is_purged {
        counters.purge(now.unix_ms()).await?;
    }
    Ok(())
}

impl Pending {
    fn add(&mut self, write: DeferredWrite) {
        match write {
            DeferredWrite::Conversation { identity, host, at } => {
                self.conversations.insert(identity, (host, at));
            }
            DeferredWrite::Started(key, times) => self.started.push((key, times)),
            DeferredWrite::KeyUsed(key, at) if self.written.get(&key).is_none_or(|written| *written < at) => {
                self.used.insert(key, at);
            }
            DeferredWrite::KeyUsed(..) => {}
            DeferredWrite::PauseCargo { cargo, message, at } => {
                self.paused.insert(cargo, (message, at));
            }
            DeferredWrite::SlotReleased(slot) => self.released.push(slot),
            DeferredWrite::SlotAbandoned(slot) => {
                self.released.push(slot);
                self.abandoned.lock().push((slot, Instant::now()));
            }
        }
    }

    /// Writes everything. Released slots and uses of keys that cannot be written are tried again with the next batch; starts are not,
    /// because the end of the job carries the same facts.
    async fn write(&mut self, store: &Store, instance: InstanceId) {
        if let Err(error) = self.write_started(store, instance).await {
            tracing::warn!(error = %Chain(&error), "starts of jobs not written");
        }
        if let Err(error) = self.write_conversations(store).await {
            tracing::warn!(error = %Chain(&error), "Islands of conversations not written");
        }
        if let Err(error) = self.write_paused(store).await {
            tracing::warn!(error = %Chain(&error), "Cargos not paused; will retry");
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

    async fn write_conversations(&mut self, store: &Store) -> Result<(), StoreError> {
        for (identity, (host, at)) in std::mem::take(&mut self.conversations) {
            let until = at.plus_ms(CONVERSATION_MS).unix_ms();
            store.counters().set_conversation(&identity, host, until).await?;
        }
        Ok(())
    }

    async fn write_paused(&mut self, store: &Store) -> Result<(), StoreError> {
        while let Some((cargo, (message, at))) = self.paused.iter().next() {
            let reason = format!(
                "Islands of several owners report a file that is not the one of this entry: {message}"
            );
            let reason: String = reason.chars().take(MAX_REASON).collect();
            let mut tx = store.begin().await?;
            let is_new = network::disable(&mut tx, cargo, &reason, *at).await?;
            commit(tx).await?;
            if is_new {
                tracing::error!(%cargo, reason, "Cargo disabled; correct its entry, then run `island admin cargos enable`");
            }
            let cargo = cargo.clone();
            self.paused.remove(&cargo);
        }
        Ok(())
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
    use island_coordinator_domain::config::Database;

    #[tokio::test]
    async fn slots_are_renewed_while_the_database_is_locked_and_writes_wait() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("island.db");
        let store =
            Store::open(&Database { path: path.clone(), ..Database::default() }).await.expect("database");
        let (account, instance) = (AccountId(Uuid::new_v4()), InstanceId(Uuid::new_v4()));
        let slot = |holder| SlotRow { account, holder: Uuid::from_u128(holder), instance };
        let (clock, stop, hard) = (Clock::System, CancellationToken::new(), CancellationToken::new());
        let begin = clock.now().unix_ms();
        assert!(store.counters().take_slot(&slot(1), 1, begin, begin + 5_000).await.expect("counted"));
        let other = sqlx::AnyPool::connect(&format!("sqlite://{}", path.display())).await.expect("database");
        let mut lock = other.begin().await.expect("begun");
        sqlx::query("UPDATE api_keys SET last_used_at = 0").execute(&mut *lock).await.expect("locked");
        let (sender, writes) = mpsc::unbounded_channel();
        let write =
            || sender.send(DeferredWrite::KeyUsed(ApiKeyId(Uuid::new_v4()), Timestamp::from_unix_ms(1)));
        write().expect("it runs");
        let task = DeferredWrites {
            store: store.clone(),
            clock: clock.clone(),
            instance,
            writes,
            stop: stop.clone(),
            hard: hard.clone(),
        };
        let task = tokio::spawn(task.run());
        let limits = format!("sqlite://{}", dir.path().join("island.limits.db").display());
        let limits = sqlx::AnyPool::connect(&limits).await.expect("counters");
        let renewed = async {
            let until = "SELECT expires_at FROM stream_slots";
            while sqlx::query_scalar::<_, i64>(until).fetch_one(&limits).await.expect("a slot")
                == begin + 5_000
            {
                write().expect("it runs");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // A write fails after 5 s, and the next one waits again.
        tokio::time::timeout(Duration::from_secs(20), renewed).await.expect("renewed");
        lock.rollback().await.expect("unlocked");
        hard.cancel();
        stop.cancel();
        task.await.expect("no panic");
        other.close().await;
        limits.close().await;
        store.close().await;
    }

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
        pending.add(DeferredWrite::SlotAbandoned(slot(1)));
        pending.write(&store, instance).await;
        assert!(take(1).await, "the statement of the dropped request is executed late");
        assert!(!take(2).await);
        let renewed = renew(store.counters(), &task.clock, instance, &pending.abandoned, false);
        renewed.await.expect("renewed");
        assert!(take(2).await, "the slot is free");
        store.close().await;
    }
}
