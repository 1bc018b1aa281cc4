//! What counts against the limits: requests of the last minute and open streams. Kept apart from the books, because it
//! is written at every request and may be lost with the machine.

use std::{collections::BTreeSet, path::Path};

use island_protocol::ids::{AccountId, InstanceId};
use sqlx::{Row as _, sqlite::SqliteConnectOptions};
use uuid::Uuid;

use super::{Attempt as _, Pool, StoreError, integer, open};
use crate::window::{Admission, Window};

/// Said to the connection to the file.
const SAID: &str = "PRAGMA busy_timeout = 5000; PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL;";
/// Made anew if absent: nothing in it outlives a minute. On PostgreSQL a migration makes the same.
const SCHEMA: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS request_windows (\
     who TEXT PRIMARY KEY, turn BIGINT NOT NULL, hits TEXT NOT NULL, changed_at BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS stream_slots (\
     account_id TEXT NOT NULL, slot BIGINT NOT NULL, holder TEXT NOT NULL, instance TEXT NOT NULL, \
     expires_at BIGINT NOT NULL, PRIMARY KEY (account_id, slot))",
];

/// The counters. A clone is the same counters.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    pool: Pool,
}

impl Counters {
    /// Opens the file beside the database at `books`. It survives the process, not the machine: nothing is synced.
    pub(super) async fn beside(books: &Path) -> Result<Self, StoreError> {
        let file =
            SqliteConnectOptions::new().filename(books.with_extension("limits.db")).create_if_missing(true);
        let counters = Self { pool: open::pool(&file, 1, &[SAID]).await? };
        counters.prepare().await?;
        Ok(counters)
    }

    /// Uses the unlogged tables of the database that the coordinators share.
    pub(super) fn shared(pool: Pool) -> Self {
        Self { pool }
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        for statement in SCHEMA {
            sqlx::query(statement).execute(&self.pool).await.attempt("prepare the counters")?;
        }
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Counts a request of `who` if its window has room for one more.
    pub(crate) async fn admit(&self, who: &str, window: Window, now: i64) -> Result<Admission, StoreError> {
        let mut conn = self.pool.acquire().await.attempt("take the counters")?;
        loop {
            let row = sqlx::query("SELECT turn, hits FROM request_windows WHERE who = $1")
                .bind(who)
                .fetch_optional(&mut *conn)
                .await
                .attempt("read a count")?;
            let (turn, hits) = match &row {
                Some(row) => (integer(row, "turn")?, row.try_get("hits").attempt("read a column")?),
                None => (0, String::new()),
            };
            let (admission, hits) = window.admit(&hits, now);
            let Some(hits) = hits else { return Ok(admission) };
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
            .attempt("count a request")?;
            if counted.rows_affected() == 1 {
                return Ok(admission);
            }
            // Another coordinator counted one meanwhile.
        }
    }

    /// Takes the first free of an account's `limit` slots, until `expires_at`; false: none is free.
    pub(crate) async fn take_slot(
        &self,
        slot: &SlotRow,
        limit: u32,
        now: i64,
        expires_at: i64,
    ) -> Result<bool, StoreError> {
        let mut conn = self.pool.acquire().await.attempt("take the counters")?;
        let held = sqlx::query("SELECT slot FROM stream_slots WHERE account_id = $1 AND expires_at > $2")
            .bind(slot.account.to_string())
            .bind(now)
            .fetch_all(&mut *conn)
            .await
            .attempt("read stream slots")?;
        let held: BTreeSet<i64> =
            held.iter().map(|row| row.try_get("slot")).collect::<Result<_, _>>().attempt("read a column")?;
        for number in (1..=i64::from(limit)).filter(|number| !held.contains(number)) {
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
            .attempt("take a stream slot")?;
            if done.rows_affected() == 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives a slot back.
    pub(crate) async fn free_slot(&self, slot: &SlotRow) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM stream_slots WHERE account_id = $1 AND holder = $2")
            .bind(slot.account.to_string())
            .bind(slot.holder.to_string())
            .execute(&self.pool)
            .await
            .attempt("free a stream slot")?;
        Ok(())
    }

    /// Keeps every slot of this coordinator until `expires_at`.
    pub(crate) async fn renew_slots(&self, instance: InstanceId, expires_at: i64) -> Result<(), StoreError> {
        sqlx::query("UPDATE stream_slots SET expires_at = $2 WHERE instance = $1")
            .bind(instance.0.to_string())
            .bind(expires_at)
            .execute(&self.pool)
            .await
            .attempt("renew stream slots")?;
        Ok(())
    }

    /// Removes what counts no more.
    pub(crate) async fn sweep(&self, now: i64) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM stream_slots WHERE expires_at <= $1")
            .bind(now)
            .execute(&self.pool)
            .await
            .attempt("sweep stream slots")?;
        sqlx::query("DELETE FROM request_windows WHERE changed_at <= $1")
            .bind(now - 2 * Window::LENGTH_MS)
            .execute(&self.pool)
            .await
            .attempt("sweep request counts")?;
        Ok(())
    }
}

/// One stream's claim to a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRow {
    pub account: AccountId,
    /// Unique to the stream.
    pub holder: Uuid,
    /// Coordinator that renews it.
    pub instance: InstanceId,
}
