//! Numbers of Cargos: given once per slug and kept.

use std::collections::HashMap;

use island_protocol::ids::Slug;
use sqlx::Row as _;

use super::{Attempt as _, Store, StoreError, commit, parsed};

/// Numbers every slug that has none yet and returns all numbers.
pub(crate) async fn number(
    store: &Store,
    slugs: impl Iterator<Item = &Slug>,
) -> Result<HashMap<Slug, i64>, StoreError> {
    let mut tx = store.begin().await?;
    for slug in slugs {
        sqlx::query("INSERT INTO workloads (slug) VALUES ($1) ON CONFLICT (slug) DO NOTHING")
            .bind(slug.as_str())
            .execute(&mut *tx)
            .await
            .attempt("number a workload")?;
    }
    commit(tx).await?;
    let rows = sqlx::query("SELECT id, slug FROM workloads")
        .fetch_all(store.reader())
        .await
        .attempt("list workload numbers")?;
    rows.iter().map(|row| Ok((parsed(row, "slug")?, row.try_get("id").attempt("read a column")?))).collect()
}
