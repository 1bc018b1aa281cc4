//! The coordinators that share the database.

use island_protocol::ids::InstanceId;
use sqlx::Row as _;

use super::{Dialect, Pool, QueryContext as _, Store, StoreError, commit, parsed};
use island_coordinator_domain::peers::PeerHeartbeat;

/// Registers a coordinator as alive. An embedded database has one coordinator, so others that are listed are gone.
pub async fn register(store: &Store, id: InstanceId) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    if store.dialect() == Dialect::Sqlite {
        sqlx::query("DELETE FROM coordinators")
            .execute(&mut *tx)
            .await
            .context("remove earlier coordinators")?;
    }
    sqlx::query("INSERT INTO coordinators (id, beats) VALUES ($1, 0)")
        .bind(id.to_string())
        .execute(&mut *tx)
        .await
        .context("register a coordinator")?;
    commit(tx).await
}

/// Unregisters a coordinator, so that others take its jobs over at once.
pub async fn unregister(store: &Store, id: InstanceId) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    sqlx::query("DELETE FROM coordinators WHERE id = $1")
        .bind(id.to_string())
        .execute(&mut *tx)
        .await
        .context("unregister a coordinator")?;
    commit(tx).await
}

/// Increments the heartbeat counter. Returns `false` if other coordinators have removed this one.
pub async fn heartbeat(pool: &Pool, id: InstanceId) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE coordinators SET beats = beats + 1 WHERE id = $1")
        .bind(id.to_string())
        .execute(pool)
        .await
        .context("write a heartbeat")?;
    Ok(done.rows_affected() == 1)
}

/// The heartbeat counters of all coordinators.
pub async fn list(pool: &Pool) -> Result<Vec<PeerHeartbeat>, StoreError> {
    let rows = sqlx::query("SELECT id, beats FROM coordinators")
        .fetch_all(pool)
        .await
        .context("list coordinators")?;
    let heartbeat = |row| {
        Ok(PeerHeartbeat { id: parsed(row, "id")?, beats: row.try_get("beats").context("read a column")? })
    };
    rows.iter().map(heartbeat).collect()
}

/// Removes a coordinator whose counter has not changed. Returns `false` if it has, or if the coordinator was removed
/// already.
pub async fn remove(store: &Store, observed: PeerHeartbeat) -> Result<bool, StoreError> {
    let mut tx = store.begin().await?;
    let done = sqlx::query("DELETE FROM coordinators WHERE id = $1 AND beats = $2")
        .bind(observed.id.to_string())
        .bind(observed.beats)
        .execute(&mut *tx)
        .await
        .context("remove a coordinator")?;
    commit(tx).await?;
    Ok(done.rows_affected() == 1)
}
