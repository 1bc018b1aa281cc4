//! Counters of limits, requests of the last minute and open streams, the nonces of signed requests, and the Islands of conversations. Separate from the ledger's database,
//! because they are written at every request and may be lost in a crash of the machine.

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use island_protocol::{
    ids::{AccountId, HostId, InstanceId, Nonce},
    time::Timestamp,
};
use sqlx::{AssertSqlSafe, Row as _, sqlite::SqliteConnectOptions};
use uuid::Uuid;

use super::{Dialect, Pool, QueryContext as _, StoreError, integer, open};
use island_coordinator_domain::{
    metrics::Storage,
    sliding_window::{Admission, SlidingWindow},
};

/// Settings of the connection to the file.
const SETUP: &str = "PRAGMA busy_timeout = 5000; PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL;";
/// Created if absent: nothing in it is valid longer than a few minutes. On PostgreSQL a migration creates the same tables.
const SCHEMA: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS request_windows (\
     who TEXT PRIMARY KEY, turn BIGINT NOT NULL, hits TEXT NOT NULL, changed_at BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS stream_slots (\
     account_id TEXT NOT NULL, slot BIGINT NOT NULL, holder TEXT NOT NULL, instance TEXT NOT NULL, \
     expires_at BIGINT NOT NULL, PRIMARY KEY (account_id, slot))",
    "CREATE TABLE IF NOT EXISTS claim_nonces (\
     public_key TEXT NOT NULL, nonce TEXT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (public_key, nonce))",
    "CREATE TABLE IF NOT EXISTS conversations (\
     identity TEXT PRIMARY KEY, host_id TEXT NOT NULL, expires_at BIGINT NOT NULL)",
];

/// The counters. Clones share them.
#[derive(Debug, Clone)]
pub struct Counters {
    pool: Pool,
    /// Milliseconds by which the clock of a shared database is ahead of this machine's. All coordinators count by the
    /// database's clock; times of callers are those of [`Clock::steady`](island_coordinator_domain::clock::Clock::steady).
    ahead: Arc<AtomicI64>,
}

impl Counters {
    /// Opens the file beside `database`. It survives a crash of the process but not of the machine, as it is never
    /// synced.
    pub(super) async fn open_beside(database: &Path, metrics: &Storage) -> Result<Self, StoreError> {
        let file = SqliteConnectOptions::new().filename(Self::beside(database)).create_if_missing(true);
        let pool = open::pool(&file, 1, &[SETUP]).await?.measured(metrics, open::COUNTING);
        let counters = Self { pool, ahead: Arc::default() };
        counters.prepare().await?;
        Ok(counters)
    }

    /// The file beside the embedded database.
    pub(super) fn beside(database: &Path) -> PathBuf {
        database.with_extension("limits.db")
    }

    /// Uses the unlogged tables of the database that coordinators share.
    pub(super) fn shared(pool: Pool) -> Self {
        Self { pool, ahead: Arc::default() }
    }

    /// Compares the clock of a shared database with this machine's.
    pub async fn synchronize(&self, now: impl Fn() -> Timestamp) -> Result<(), StoreError> {
        let mut conn = self.pool.acquire().await.context("take the counters")?;
        if Dialect::of(&conn) == Dialect::Sqlite {
            return Ok(());
        }
        let before = now().unix_ms();
        let row = sqlx::query("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now")
            .fetch_one(&mut *conn)
            .await
            .context("read the clock of the database")?;
        let middle = before + (now().unix_ms() - before) / 2;
        self.ahead.store(integer(&row, "now")? - middle, Ordering::Relaxed);
        Ok(())
    }

    /// A time of this machine's clock, by the clock that counts.
    fn counted(&self, time: i64) -> i64 {
        time.saturating_add(self.ahead.load(Ordering::Relaxed))
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        for statement in SCHEMA {
            sqlx::query(statement).execute(&self.pool).await.context("prepare the counters")?;
        }
        Ok(())
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Counts a request of `who` if its window admits one more.
    pub async fn admit(&self, who: &str, window: SlidingWindow, now: i64) -> Result<Admission, StoreError> {
        let caller = now;
        let now = self.counted(now);
        let of_caller =
            |admission: Admission| Admission { frees_at: admission.frees_at - now + caller, ..admission };
        let mut conn = self.pool.acquire().await.context("take the counters")?;
        loop {
            let row = sqlx::query("SELECT turn, hits FROM request_windows WHERE who = $1")
                .bind(who)
                .fetch_optional(&mut *conn)
                .await
                .context("read a count")?;
            let (turn, hits) = match &row {
                Some(row) => (integer(row, "turn")?, row.try_get("hits").context("read a column")?),
                None => (0, String::new()),
            };
            let (admission, hits) = window.admit(&hits, now);
            let Some(hits) = hits else { return Ok(of_caller(admission)) };
            let counted = sqlx::query(
                "INSERT INTO request_windows (who, turn, hits, changed_at) VALUES ($1, $2 + 1, $3, $4) \
                 ON CONFLICT (who) DO UPDATE SET turn = excluded.turn, hits = excluded.hits, \
                 changed_at = excluded.changed_at WHERE request_windows.turn = $2",
            )
            .bind(who)
            .bind(turn)
            .bind(hits)
            .bind(now)
            .execute(&mut *conn)
            .await
            .context("count a request")?;
            if counted.rows_affected() == 1 {
                return Ok(of_caller(admission));
            }
            // Another coordinator counted a request meanwhile.
        }
    }

    /// Takes the first free one of an account's `limit` slots until `expires_at`. Returns `false` if none is free.
    pub async fn take_slot(
        &self,
        slot: &SlotRow,
        limit: u32,
        now: i64,
        expires_at: i64,
    ) -> Result<bool, StoreError> {
        let (now, expires_at) = (self.counted(now), self.counted(expires_at));
        let mut conn = self.pool.acquire().await.context("take the counters")?;
        let taken = sqlx::query("SELECT slot FROM stream_slots WHERE account_id = $1 AND expires_at > $2")
            .bind(slot.account.to_string())
            .bind(now)
            .fetch_all(&mut *conn)
            .await
            .context("read stream slots")?;
        let taken: BTreeSet<i64> =
            taken.iter().map(|row| row.try_get("slot")).collect::<Result<_, _>>().context("read a column")?;
        for number in (1..=i64::from(limit)).filter(|number| !taken.contains(number)) {
            let done = sqlx::query(
                "INSERT INTO stream_slots (account_id, slot, holder, instance, expires_at) \
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account_id, slot) DO UPDATE \
                 SET holder = excluded.holder, instance = excluded.instance, expires_at = excluded.expires_at \
                 WHERE stream_slots.expires_at <= $6",
            )
            .bind(slot.account.to_string())
            .bind(number)
            .bind(slot.holder.to_string())
            .bind(slot.instance.0.to_string())
            .bind(expires_at)
            .bind(now)
            .execute(&mut *conn)
            .await
            .context("take a stream slot")?;
            if done.rows_affected() == 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Releases a slot.
    pub async fn release_slot(&self, slot: &SlotRow) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM stream_slots WHERE account_id = $1 AND holder = $2")
            .bind(slot.account.to_string())
            .bind(slot.holder.to_string())
            .execute(&self.pool)
            .await
            .context("release a stream slot")?;
        Ok(())
    }

    /// Extends every slot of this coordinator to `expires_at`.
    pub async fn renew_slots(&self, instance: InstanceId, expires_at: i64) -> Result<(), StoreError> {
        sqlx::query("UPDATE stream_slots SET expires_at = $2 WHERE instance = $1")
            .bind(instance.0.to_string())
            .bind(self.counted(expires_at))
            .execute(&self.pool)
            .await
            .context("renew stream slots")?;
        Ok(())
    }

    /// Records the nonce of a claim signed with this key until its signature is too old by any clock. Returns `false` if it was recorded before.
    pub async fn use_nonce(
        &self,
        public_key: &str,
        nonce: Nonce,
        expires_at: i64,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "INSERT INTO claim_nonces (public_key, nonce, expires_at) VALUES ($1, $2, $3) \
             ON CONFLICT (public_key, nonce) DO NOTHING",
        )
        .bind(public_key)
        .bind(nonce.to_string())
        .bind(self.counted(expires_at))
        .execute(&self.pool)
        .await
        .context("record a nonce")?;
        Ok(done.rows_affected() == 1)
    }

    /// Records the Island that ran the last job of a conversation, until `expires_at`.
    pub async fn set_conversation(
        &self,
        identity: &str,
        host: HostId,
        expires_at: i64,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO conversations (identity, host_id, expires_at) VALUES ($1, $2, $3) \
             ON CONFLICT (identity) DO UPDATE SET host_id = excluded.host_id, expires_at = excluded.expires_at",
        )
        .bind(identity)
        .bind(host.to_string())
        .bind(self.counted(expires_at))
        .execute(&self.pool)
        .await
        .context("record the Island of a conversation")?;
        Ok(())
    }

    /// The Island that ran the last job of the first known one of these conversations.
    pub async fn conversation(&self, identities: &[String]) -> Result<Option<HostId>, StoreError> {
        let Some(last) = identities.last() else { return Ok(None) };
        // Few different statements, because connections keep only some prepared.
        let count = identities.len().next_power_of_two();
        let places: Vec<String> = (1..=count).map(|place| format!("${place}")).collect();
        let places = places.join(", ");
        let statement = format!("SELECT identity, host_id FROM conversations WHERE identity IN ({places})");
        let query = sqlx::query(AssertSqlSafe(statement));
        let bound = identities.iter().chain(std::iter::repeat(last)).take(count);
        let query = bound.fold(query, |query, identity| query.bind(identity.clone()));
        let rows = query.fetch_all(&self.pool).await.context("read the Island of a conversation")?;
        let mut found: HashMap<String, String> = HashMap::new();
        for row in &rows {
            let column = |name| row.try_get::<String, _>(name).context("read a column");
            found.insert(column("identity")?, column("host_id")?);
        }
        let first = identities.iter().find_map(|identity| found.get(identity));
        first.map(|host| host.parse()).transpose().map_err(|_| StoreError::Corrupt { what: "host_id" })
    }

    /// Removes expired slots, windows, nonces and conversations.
    pub async fn purge(&self, now: i64) -> Result<(), StoreError> {
        let now = self.counted(now);
        sqlx::query("DELETE FROM stream_slots WHERE expires_at <= $1")
            .bind(now)
            .execute(&self.pool)
            .await
            .context("purge stream slots")?;
        sqlx::query("DELETE FROM request_windows WHERE changed_at <= $1")
            .bind(now - 2 * SlidingWindow::LENGTH_MS)
            .execute(&self.pool)
            .await
            .context("purge request windows")?;
        sqlx::query("DELETE FROM conversations WHERE expires_at < $1")
            .bind(now)
            .execute(&self.pool)
            .await
            .context("purge conversations")?;
        sqlx::query("DELETE FROM claim_nonces WHERE expires_at < $1")
            .bind(now)
            .execute(&self.pool)
            .await
            .context("purge nonces")?;
        Ok(())
    }
}

/// One stream's slot.
#[derive(Debug, Clone, Copy)]
pub struct SlotRow {
    pub account: AccountId,
    /// Unique id of the stream.
    pub holder: Uuid,
    /// The coordinator that renews it.
    pub instance: InstanceId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_known_conversation_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, metrics) = (dir.path().join("island.db"), Storage::default());
        let counters = Counters::open_beside(&path, &metrics).await.expect("counters");
        let host = |n: u128| HostId(Uuid::from_u128(n));
        for (identity, island, until) in [("short", 1, 10), ("long", 2, 20), ("long", 3, 20)] {
            counters.set_conversation(identity, host(island), until).await.expect("recorded");
        }
        let found = async |identities: &[&str]| {
            let identities: Vec<String> = identities.iter().map(|&identity| identity.to_owned()).collect();
            counters.conversation(&identities).await.expect("read")
        };
        assert_eq!(
            found(&["new", "long", "short"]).await,
            Some(host(3)),
            "the last Island of the longest one"
        );
        assert_eq!(found(&["new", "short"]).await, Some(host(1)));
        assert_eq!(found(&["new"]).await, None);
        counters.purge(15).await.expect("purged");
        assert_eq!(found(&["short"]).await, None);
        assert_eq!(found(&["long"]).await, Some(host(3)));
    }

    #[tokio::test]
    async fn coordinators_whose_clocks_differ_share_one_minute() {
        let dir = tempfile::tempdir().expect("a folder");
        let one = Counters::open_beside(&dir.path().join("island.db"), &Storage::default())
            .await
            .expect("counters");
        // Its clock is 50 s ahead, and it knows.
        let other = Counters { pool: one.pool.clone(), ahead: Arc::new(AtomicI64::new(-50_000)) };
        let window = SlidingWindow { limit: 2 };
        let now = 1_700_000_000_000;
        assert!(one.admit("a", window, now).await.expect("counted").admitted);
        assert!(other.admit("a", window, now + 50_000 + 30_000).await.expect("counted").admitted);
        let refused = other.admit("a", window, now + 50_000 + 31_000).await.expect("counted");
        assert!(!refused.admitted);
        assert!((now + 110_000..now + 112_000).contains(&refused.frees_at), "by its own clock: {refused:?}");
        assert!(one.admit("a", window, now + 61_000).await.expect("counted").admitted, "a minute is over");
    }
}
