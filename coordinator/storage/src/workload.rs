//! Numbers of Cargos: each slug gets one and retains it.

use std::collections::HashMap;

use island_protocol::ids::Slug;
use sqlx::Row as _;

use super::{Pool, QueryContext as _, Store, StoreError, commit, parsed};

/// Gives every new slug a number and returns all numbers. Coordinators may do so concurrently: one that loses a number
/// to another takes the next.
pub async fn number(
    store: &Store,
    slugs: impl Iterator<Item = &Slug>,
) -> Result<HashMap<Slug, i64>, StoreError> {
    let slugs: Vec<&Slug> = slugs.collect();
    loop {
        let known = numbers(store.reader()).await?;
        let new: Vec<_> = slugs.iter().filter(|slug| !known.contains_key(*slug)).collect();
        if new.is_empty() {
            return Ok(known);
        }
        for slug in new {
            let mut tx = store.begin().await?;
            sqlx::query(
                "INSERT INTO workloads (id, slug) SELECT COALESCE(MAX(id), 0) + 1, $1 FROM workloads WHERE true \
                 ON CONFLICT DO NOTHING",
            )
            .bind(slug.as_str())
            .execute(&mut *tx)
            .await
            .context("number a workload")?;
            commit(tx).await?;
        }
    }
}

async fn numbers(pool: &Pool) -> Result<HashMap<Slug, i64>, StoreError> {
    let rows = sqlx::query("SELECT id, slug FROM workloads")
        .fetch_all(pool)
        .await
        .context("list workload numbers")?;
    rows.iter().map(|row| Ok((parsed(row, "slug")?, row.try_get("id").context("read a column")?))).collect()
}
