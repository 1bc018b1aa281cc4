//! The coordinators that share the database.

use island_protocol::ids::InstanceId;
use sqlx::Row as _;

use super::{Attempt as _, Dialect, Pool, Store, StoreError, commit, parsed};
use crate::peers::Pulse;

/// Begins to count as alive. An embedded database has one coordinator: whoever is still listed is gone.
pub(crate) async fn enter(store: &Store, id: InstanceId) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    if store.dialect() == Dialect::Sqlite {
        sqlx::query("DELETE FROM coordinators")
            .execute(&mut *tx)
            .await
            .attempt("forget earlier coordinators")?;
    }
    sqlx::query("INSERT INTO coordinators (id, beats) VALUES ($1, 0)")
        .bind(id.to_string())
        .execute(&mut *tx)
        .await
        .attempt("enter a coordinator")?;
    commit(tx).await
}

/// Says goodbye, so that others take over at once.
pub(crate) async fn leave(store: &Store, id: InstanceId) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    sqlx::query("DELETE FROM coordinators WHERE id = $1")
        .bind(id.to_string())
        .execute(&mut *tx)
        .await
        .attempt("leave")?;
    commit(tx).await
}

/// Counts up. False: others hold this coordinator for dead.
pub(crate) async fn beat(pool: &Pool, id: InstanceId) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE coordinators SET beats = beats + 1 WHERE id = $1")
        .bind(id.to_string())
        .execute(pool)
        .await
        .attempt("count up")?;
    Ok(done.rows_affected() == 1)
}

/// Everybody's count.
pub(crate) async fn list(pool: &Pool) -> Result<Vec<Pulse>, StoreError> {
    let rows = sqlx::query("SELECT id, beats FROM coordinators")
        .fetch_all(pool)
        .await
        .attempt("list coordinators")?;
    let pulse =
        |row| Ok(Pulse { id: parsed(row, "id")?, beats: row.try_get("beats").attempt("read a column")? });
    rows.iter().map(pulse).collect()
}

/// Strikes a coordinator off that has not counted since. False: it has, or somebody else struck it off.
pub(crate) async fn bury(pool: &Pool, seen: Pulse) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM coordinators WHERE id = $1 AND beats = $2")
        .bind(seen.id.to_string())
        .bind(seen.beats)
        .execute(pool)
        .await
        .attempt("strike a coordinator off")?;
    Ok(done.rows_affected() == 1)
}
