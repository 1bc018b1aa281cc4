//! Cargos that accounts submitted: a row for each version of a slug.

use std::collections::BTreeSet;

use island_protocol::{
    ids::{AccountId, PublicationId, Slug},
    time::Timestamp,
};
use island_protocol_api::publication::{Publication, PublicationDetails, PublicationState};
use sqlx::{AssertSqlSafe, Row as _};

use super::{Connection, Pool, QueryContext as _, Row, StoreError, integer, moment, parsed, to_text};
use island_coordinator_domain::publication::{Change, Version};

const COLUMNS: &str = "id, account_id, slug, name, state, reason, created_at, changed_at";

/// A version that was approved: what is needed to serve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    pub id: PublicationId,
    pub publisher: AccountId,
    /// Time of the approval.
    pub at: Timestamp,
    pub manifest: String,
}

/// Which publications are listed; all by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter {
    pub publisher: Option<AccountId>,
    pub state: Option<PublicationState>,
}

fn read(row: &Row) -> Result<Publication, StoreError> {
    Ok(Publication {
        id: parsed(row, "id")?,
        workload_slug: parsed(row, "slug")?,
        name: row.try_get("name").context("read a column")?,
        publisher: parsed(row, "account_id")?,
        state: parsed(row, "state")?,
        reason: row.try_get("reason").context("read a column")?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        changed_at: moment(row, "changed_at")?,
    })
}

/// Adds a publication, which waits for review.
pub async fn insert(
    conn: &mut Connection,
    PublicationDetails { publication, manifest }: &PublicationDetails,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO publications (id, account_id, slug, name, manifest, state, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(publication.id.to_string())
    .bind(publication.publisher.to_string())
    .bind(publication.workload_slug.as_str())
    .bind(to_text(&publication.name))
    .bind(to_text(manifest))
    .bind(publication.state.as_str())
    .bind(publication.created_at.unix_ms())
    .execute(conn)
    .await
    .context("insert a publication")?;
    Ok(())
}

/// Applies a change. An error if the publication is in another state by now.
pub async fn change(
    conn: &mut Connection,
    change: &Change,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let is_approved = change.to == PublicationState::Approved;
    let done = sqlx::query(
        "UPDATE publications SET state = $3, reason = COALESCE($4, reason), changed_at = $5, \
         approved_at = COALESCE(approved_at, $6) WHERE id = $1 AND state = $2",
    )
    .bind(change.id.to_string())
    .bind(change.from.as_str())
    .bind(change.to.as_str())
    .bind(reason.map(to_text))
    .bind(now.unix_ms())
    .bind(is_approved.then(|| now.unix_ms()))
    .execute(conn)
    .await
    .context("change a publication")?;
    if done.rows_affected() == 1 {
        return Ok(());
    }
    Err(sqlx::Error::RowNotFound).context("change a publication that another request has changed")
}

/// All versions of a slug.
pub async fn versions(conn: &mut Connection, slug: &Slug) -> Result<Vec<Version>, StoreError> {
    let rows = sqlx::query("SELECT id, account_id, state, approved_at FROM publications WHERE slug = $1")
        .bind(slug.as_str())
        .fetch_all(conn)
        .await
        .context("list the versions of a Cargo")?;
    let version = |row: &Row| {
        Ok(Version {
            id: parsed(row, "id")?,
            publisher: parsed(row, "account_id")?,
            state: parsed(row, "state")?,
            was_approved: moment(row, "approved_at")?.is_some(),
        })
    };
    rows.iter().map(version).collect()
}

/// Number of publications of an account that wait for review.
pub async fn waiting(conn: &mut Connection, publisher: AccountId) -> Result<u64, StoreError> {
    let row =
        sqlx::query("SELECT COUNT(*) AS n FROM publications WHERE account_id = $1 AND state = 'submitted'")
            .bind(publisher.to_string())
            .fetch_one(conn)
            .await
            .context("count publications that wait")?;
    Ok(integer(&row, "n")?.unsigned_abs())
}

/// Removes the publications of an account that ended without having been served, but for the newest `kept`.
pub async fn forget(conn: &mut Connection, publisher: AccountId, kept: u64) -> Result<(), StoreError> {
    const ENDED: &str = "account_id = $1 AND approved_at IS NULL AND state <> 'submitted'";
    let statement = format!(
        "DELETE FROM publications WHERE {ENDED} \
         AND id NOT IN (SELECT id FROM publications WHERE {ENDED} ORDER BY id DESC LIMIT $2)"
    );
    sqlx::query(AssertSqlSafe(statement))
        .bind(publisher.to_string())
        .bind(kept as i64)
        .execute(conn)
        .await
        .context("remove publications that ended")?;
    Ok(())
}

/// One publication with its manifest.
pub async fn get(pool: &Pool, id: PublicationId) -> Result<Option<PublicationDetails>, StoreError> {
    let statement = format!("SELECT {COLUMNS}, manifest FROM publications WHERE id = $1");
    let row = sqlx::query(AssertSqlSafe(statement))
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read a publication")?;
    let details = |row: &Row| {
        let manifest = row.try_get("manifest").context("read a column")?;
        Ok(PublicationDetails { publication: read(row)?, manifest })
    };
    row.as_ref().map(details).transpose()
}

/// A page of the publications, newest first, and their total number.
pub async fn page(
    pool: &Pool,
    filter: Filter,
    limit: u64,
    offset: u64,
) -> Result<(Vec<Publication>, u64), StoreError> {
    // Each condition holds for every row where its value is absent.
    const WANTED: &str = "(account_id = $1 OR $1 = '') AND (state = $2 OR $2 = '')";
    let publisher = filter.publisher.map(|publisher| publisher.to_string()).unwrap_or_default();
    let state = filter.state.map_or("", PublicationState::as_str);
    let statement =
        format!("SELECT {COLUMNS} FROM publications WHERE {WANTED} ORDER BY id DESC LIMIT $3 OFFSET $4");
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(&publisher)
        .bind(state)
        .bind(limit as i64)
        .bind(offset as i64)
        .fetch_all(pool)
        .await
        .context("list publications")?;
    let row = sqlx::query(AssertSqlSafe(format!("SELECT COUNT(*) AS n FROM publications WHERE {WANTED}")))
        .bind(&publisher)
        .bind(state)
        .fetch_one(pool)
        .await
        .context("count publications")?;
    Ok((rows.iter().map(read).collect::<Result<_, _>>()?, integer(&row, "n")?.unsigned_abs()))
}

/// Ids of the publications that are served.
pub async fn served(pool: &Pool) -> Result<BTreeSet<PublicationId>, StoreError> {
    let rows = sqlx::query("SELECT id FROM publications WHERE state = 'approved'")
        .fetch_all(pool)
        .await
        .context("list the publications that are served")?;
    rows.iter().map(|row| parsed(row, "id")).collect()
}

/// A publication that is or was served.
pub async fn approved(pool: &Pool, id: PublicationId) -> Result<Option<Approved>, StoreError> {
    one_approved(pool, "id = $1", &id.to_string()).await
}

/// The publication of a slug that was approved last, whether or not it is still served.
pub async fn last_approved(pool: &Pool, slug: &Slug) -> Result<Option<Approved>, StoreError> {
    one_approved(pool, "slug = $1", slug.as_str()).await
}

async fn one_approved(pool: &Pool, wanted: &str, value: &str) -> Result<Option<Approved>, StoreError> {
    let statement = format!(
        "SELECT id, account_id, approved_at, manifest FROM publications \
         WHERE {wanted} AND approved_at IS NOT NULL ORDER BY approved_at DESC, id DESC LIMIT 1"
    );
    let row = sqlx::query(AssertSqlSafe(statement))
        .bind(value)
        .fetch_optional(pool)
        .await
        .context("read a publication that was approved")?;
    let approved = |row: &Row| {
        Ok(Approved {
            id: parsed(row, "id")?,
            publisher: parsed(row, "account_id")?,
            at: Timestamp::from_unix_ms(integer(row, "approved_at")?),
            manifest: row.try_get("manifest").context("read a column")?,
        })
    };
    row.as_ref().map(approved).transpose()
}
