//! Indexes of tables that grow with jobs, on PostgreSQL: built beside writes, after the migrations (0079). The embedded database builds them in
//! its migrations.

use sqlx::{AssertSqlSafe, Executor as _};

use super::{
    QueryContext as _, StoreError, integer,
    open::{POSTGRES_PATIENT, postgres_pool},
};
use island_coordinator_domain::config::DatabaseUrl;

/// The advisory lock of the coordinator that builds.
const LOCK: i64 = 0x0069_736c_616e_6401;

/// Name, and what follows `ON`.
const INDEXES: [(&str, &str); 5] = [
    (
        "jobs_queue",
        "jobs (priority DESC, created_at, id) \
         WHERE only_host IS NULL AND status IN ('submitted', 'pending')",
    ),
    (
        "jobs_queue_of_cargo",
        "jobs (workload_slug, priority DESC, created_at, id) \
         WHERE only_host IS NULL AND status IN ('submitted', 'pending')",
    ),
    (
        "jobs_unmet",
        "jobs (completed_at, workload_slug) WHERE only_host IS NULL AND error_code = 'no_island_available'",
    ),
    (
        "jobs_ended_of_account",
        "jobs (account_id, created_at DESC, id DESC, status, workload_slug, api_key_id) \
         WHERE COALESCE(only_host, '') = '' AND status IN ('completed', 'failed', 'cancelled', 'timeout')",
    ),
    ("ledger_earned", "ledger_entries (ledger, created_at) WHERE kind = 'settle'"),
];

/// Builds the indexes that are missing. Returns `false` if another coordinator does it now.
pub async fn build(url: &DatabaseUrl) -> Result<bool, StoreError> {
    let pool = postgres_pool(url, 1, &[POSTGRES_PATIENT])?;
    // The lock belongs to the connection and ends with it.
    let built = async {
        let mut conn = pool.connections().acquire().await.context("connect to build indexes")?;
        let locked = sqlx::query(
            "SELECT CASE WHEN pg_try_advisory_lock($1) THEN 1::bigint ELSE 0::bigint END AS locked",
        )
        .bind(LOCK)
        .fetch_one(&mut *conn)
        .await
        .context("lock the building of indexes")?;
        if integer(&locked, "locked")? == 0 {
            return Ok(false);
        }
        for (name, on) in INDEXES {
            let invalid = sqlx::query(
                "SELECT COUNT(*) AS n FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
                 WHERE c.relname = $1 AND pg_table_is_visible(c.oid) AND NOT i.indisvalid",
            )
            .bind(name)
            .fetch_one(&mut *conn)
            .await
            .context("find an index that was not completed")?;
            if integer(&invalid, "n")? > 0 {
                let drop = format!("DROP INDEX CONCURRENTLY IF EXISTS {name}");
                conn.execute(sqlx::raw_sql(AssertSqlSafe(drop)))
                    .await
                    .context("drop an index that was not completed")?;
            }
            let create = format!("CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {on}");
            conn.execute(sqlx::raw_sql(AssertSqlSafe(create))).await.context("build an index")?;
        }
        Ok(true)
    }
    .await;
    pool.close().await;
    built
}
