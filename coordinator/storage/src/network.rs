//! What operators have set for the whole network: maintenance, disabled Cargos, notices. All of it is small.

use std::collections::BTreeMap;

use island_protocol::{
    ids::{NoticeId, Slug},
    time::Timestamp,
};
use island_protocol_api::{
    admin::Suspension,
    network::{NetworkMaintenance, Notice},
};
use sqlx::Row as _;

use super::{Connection, Pool, QueryContext as _, Row, StoreError, integer, moment, parsed, to_text};

/// The state of the network, as SQL has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkState {
    pub maintenance: Option<NetworkMaintenance>,
    pub disabled: BTreeMap<Slug, Suspension>,
    /// Newest first, with those that have expired.
    pub notices: Vec<Notice>,
}

/// Reads all of it.
pub async fn read(pool: &Pool) -> Result<NetworkState, StoreError> {
    let maintenance = sqlx::query("SELECT since, reason FROM network_maintenance WHERE id = 1")
        .fetch_optional(pool)
        .await
        .context("read the maintenance of the network")?;
    let maintenance = maintenance.map(|row| {
        let since = Timestamp::from_unix_ms(integer(&row, "since")?);
        Ok(NetworkMaintenance { since, reason: row.try_get("reason").context("read a column")? })
    });
    let disabled = sqlx::query("SELECT slug, disabled_at, reason FROM disabled_cargos")
        .fetch_all(pool)
        .await
        .context("list disabled Cargos")?;
    let disabled = disabled.iter().map(|row| {
        let at = Timestamp::from_unix_ms(integer(row, "disabled_at")?);
        Ok((parsed(row, "slug")?, Suspension { at, reason: row.try_get("reason").context("read a column")? }))
    });
    Ok(NetworkState {
        maintenance: maintenance.transpose()?,
        disabled: disabled.collect::<Result<_, StoreError>>()?,
        notices: notices(pool).await?,
    })
}

/// Begins the maintenance of the network. Returns `false` if it has begun before.
pub async fn start_maintenance(
    conn: &mut Connection,
    reason: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO network_maintenance (id, since, reason) VALUES (1, $1, $2) ON CONFLICT (id) DO NOTHING",
    )
    .bind(now.unix_ms())
    .bind(to_text(reason))
    .execute(conn)
    .await
    .context("start the maintenance of the network")?;
    Ok(done.rows_affected() == 1)
}

/// Ends the maintenance of the network. Returns `false` if it is not in maintenance.
pub async fn end_maintenance(conn: &mut Connection) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM network_maintenance")
        .execute(conn)
        .await
        .context("end the maintenance of the network")?;
    Ok(done.rows_affected() > 0)
}

/// Disables a Cargo. Returns `false` if it is disabled already.
pub async fn disable(
    conn: &mut Connection,
    slug: &Slug,
    reason: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO disabled_cargos (slug, disabled_at, reason) VALUES ($1, $2, $3) ON CONFLICT (slug) DO NOTHING",
    )
    .bind(slug.as_str())
    .bind(now.unix_ms())
    .bind(to_text(reason))
    .execute(conn)
    .await
    .context("disable a Cargo")?;
    Ok(done.rows_affected() == 1)
}

/// Enables a Cargo. Returns `false` if it is not disabled.
pub async fn enable(conn: &mut Connection, slug: &Slug) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM disabled_cargos WHERE slug = $1")
        .bind(slug.as_str())
        .execute(conn)
        .await
        .context("enable a Cargo")?;
    Ok(done.rows_affected() == 1)
}

async fn notices(pool: &Pool) -> Result<Vec<Notice>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, content, created_at, expires_at FROM notices ORDER BY created_at DESC, id DESC",
    )
    .fetch_all(pool)
    .await
    .context("list notices")?;
    rows.iter().map(notice).collect()
}

fn notice(row: &Row) -> Result<Notice, StoreError> {
    Ok(Notice {
        id: parsed(row, "id")?,
        text: row.try_get("content").context("read a column")?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        until: moment(row, "expires_at")?,
    })
}

/// Adds a notice.
pub async fn insert_notice(conn: &mut Connection, notice: &Notice) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO notices (id, content, created_at, expires_at) VALUES ($1, $2, $3, $4)")
        .bind(notice.id.to_string())
        .bind(to_text(&notice.text))
        .bind(notice.created_at.unix_ms())
        .bind(notice.until.map(Timestamp::unix_ms))
        .execute(conn)
        .await
        .context("insert a notice")?;
    Ok(())
}

/// Removes a notice, and returns it; `None` if it is unknown.
pub async fn remove_notice(conn: &mut Connection, id: NoticeId) -> Result<Option<Notice>, StoreError> {
    let row = sqlx::query("DELETE FROM notices WHERE id = $1 RETURNING id, content, created_at, expires_at")
        .bind(id.to_string())
        .fetch_optional(conn)
        .await
        .context("remove a notice")?;
    row.as_ref().map(notice).transpose()
}
