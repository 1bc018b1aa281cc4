//! Files of accounts, stored in pieces: an upload as it arrives, the results of a batch line by line.

use std::fmt::Write as _;

use island_protocol::{
    ids::{AccountId, FileId},
    time::Timestamp,
};
use island_protocol_api::file::Purpose;
use sqlx::{AssertSqlSafe, Row as _};

use super::{Connection, Pool, QueryContext as _, Row, StoreError, integer, moment, parsed, to_text};

/// Pieces that are read by one statement.
const PIECES: i64 = 16;
/// Files that one transaction deletes.
const EXPIRED: i64 = 50;

/// A file whose content is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub id: FileId,
    pub filename: String,
    pub purpose: Purpose,
    pub bytes: u64,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

/// A file without content.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    pub id: FileId,
    pub account: AccountId,
    pub filename: &'a str,
    pub purpose: Purpose,
    pub created_at: Timestamp,
    /// When it is deleted unless it is complete by then.
    pub abandoned_at: Option<Timestamp>,
}

const COLUMNS: &str = "id, filename, purpose, bytes, created_at, expires_at";

fn read(row: &Row) -> Result<StoredFile, StoreError> {
    Ok(StoredFile {
        id: parsed(row, "id")?,
        filename: row.try_get("filename").context("read a column")?,
        purpose: parsed(row, "purpose")?,
        bytes: integer(row, "bytes")?.unsigned_abs(),
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        expires_at: moment(row, "expires_at")?,
    })
}

/// Adds a file, to which pieces are added.
pub async fn insert(conn: &mut Connection, file: &NewFile<'_>) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO files (id, account_id, filename, purpose, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(file.id.to_string())
    .bind(file.account.to_string())
    .bind(to_text(file.filename))
    .bind(file.purpose.as_str())
    .bind(file.created_at.unix_ms())
    .bind(file.abandoned_at.map(Timestamp::unix_ms))
    .execute(conn)
    .await
    .context("insert a file")?;
    Ok(())
}

/// What the files of an account use, those that arrive included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    pub files: u64,
    pub bytes: u64,
}

/// Reads what the files of an account use. The account must be locked if the result decides about a write.
pub async fn used(conn: &mut Connection, account: AccountId) -> Result<Used, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS files, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM files WHERE account_id = $1",
    )
    .bind(account.to_string())
    .fetch_one(conn)
    .await
    .context("sum the files of an account")?;
    Ok(Used { files: integer(&row, "files")?.unsigned_abs(), bytes: integer(&row, "bytes")?.unsigned_abs() })
}

/// Adds a piece. Returns `false`, and writes nothing, if the file has this piece already or is unknown.
pub async fn add_piece(conn: &mut Connection, id: FileId, n: u64, content: &str) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO file_pieces (file_id, n, content) SELECT id, $2, $3 FROM files WHERE id = $1 \
         ON CONFLICT (file_id, n) DO NOTHING",
    )
    .bind(id.to_string())
    .bind(n as i64)
    .bind(content)
    .execute(&mut *conn)
    .await
    .context("write a piece of a file")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query("UPDATE files SET bytes = bytes + $2 WHERE id = $1")
        .bind(id.to_string())
        .bind(content.len() as i64)
        .execute(conn)
        .await
        .context("count the bytes of a file")?;
    Ok(true)
}

/// Shows a file to its account. It is deleted at `expires_at`. Returns `false` if it is unknown.
pub async fn complete(
    conn: &mut Connection,
    id: FileId,
    now: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE files SET ready_at = $2, expires_at = $3 WHERE id = $1")
        .bind(id.to_string())
        .bind(now.unix_ms())
        .bind(expires_at.map(Timestamp::unix_ms))
        .execute(conn)
        .await
        .context("complete a file")?;
    Ok(done.rows_affected() == 1)
}

/// Keeps a file until `until` at least. Returns `false` if it is not a complete file of the account with this purpose.
pub async fn keep_until(
    conn: &mut Connection,
    id: FileId,
    account: AccountId,
    purpose: Purpose,
    until: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE files SET expires_at = CASE WHEN expires_at < $3 THEN $3 ELSE expires_at END \
         WHERE id = $1 AND account_id = $2 AND ready_at IS NOT NULL AND purpose = $4",
    )
    .bind(id.to_string())
    .bind(account.to_string())
    .bind(until.unix_ms())
    .bind(purpose.as_str())
    .execute(conn)
    .await
    .context("keep a file")?;
    Ok(done.rows_affected() == 1)
}

/// A complete file of an account.
pub async fn get(pool: &Pool, id: FileId, account: AccountId) -> Result<Option<StoredFile>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "SELECT {COLUMNS} FROM files WHERE id = $1 AND account_id = $2 AND ready_at IS NOT NULL"
    )))
    .bind(id.to_string())
    .bind(account.to_string())
    .fetch_optional(pool)
    .await
    .context("read a file")?;
    row.as_ref().map(read).transpose()
}

/// Which files are listed.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    pub account: AccountId,
    pub purpose: Option<Purpose>,
    /// The last file of the page before.
    pub after: Option<FileId>,
    pub oldest_first: bool,
    pub limit: u64,
}

/// The files of a listing.
pub async fn list(pool: &Pool, listing: &Listing) -> Result<Vec<StoredFile>, StoreError> {
    let (order, beyond) = if listing.oldest_first { ("ASC", ">") } else { ("DESC", "<") };
    let mut conditions = String::new();
    let mut values = vec![listing.account.to_string()];
    if let Some(after) = listing.after {
        values.push(after.to_string());
        let _ = write!(
            conditions,
            " AND (created_at, id) {beyond} (SELECT a.created_at, a.id FROM files a WHERE a.id = ${} AND a.account_id = $1)",
            values.len()
        );
    }
    if let Some(purpose) = listing.purpose {
        values.push(purpose.as_str().to_owned());
        let _ = write!(conditions, " AND purpose = ${}", values.len());
    }
    let statement = format!(
        "SELECT {COLUMNS} FROM files WHERE account_id = $1 AND ready_at IS NOT NULL{conditions} \
         ORDER BY created_at {order}, id {order} LIMIT ${}",
        values.len() + 1
    );
    let query = values.into_iter().fold(sqlx::query(AssertSqlSafe(statement)), sqlx::query::Query::bind);
    let rows = query.bind(listing.limit as i64).fetch_all(pool).await.context("list files")?;
    rows.iter().map(read).collect()
}

/// The next pieces of a file behind piece `after`, with their numbers; none at the end.
pub async fn pieces(pool: &Pool, id: FileId, after: Option<u64>) -> Result<Vec<(u64, String)>, StoreError> {
    let rows =
        sqlx::query("SELECT n, content FROM file_pieces WHERE file_id = $1 AND n > $2 ORDER BY n LIMIT $3")
            .bind(id.to_string())
            .bind(after.map_or(-1, |after| after as i64))
            .bind(PIECES)
            .fetch_all(pool)
            .await
            .context("read the pieces of a file")?;
    let piece =
        |row: &Row| Ok((integer(row, "n")?.unsigned_abs(), row.try_get("content").context("read a column")?));
    rows.iter().map(piece).collect()
}

/// Numbers of the pieces of a file.
pub async fn numbers(pool: &Pool, id: FileId) -> Result<Vec<u64>, StoreError> {
    let rows = sqlx::query("SELECT n FROM file_pieces WHERE file_id = $1")
        .bind(id.to_string())
        .fetch_all(pool)
        .await
        .context("list the pieces of a file")?;
    rows.iter().map(|row| Ok(integer(row, "n")?.unsigned_abs())).collect()
}

/// Deletes a file with its content.
pub async fn delete(conn: &mut Connection, id: FileId) -> Result<(), StoreError> {
    for statement in ["DELETE FROM file_pieces WHERE file_id = $1", "DELETE FROM files WHERE id = $1"] {
        sqlx::query(statement).bind(id.to_string()).execute(&mut *conn).await.context("delete a file")?;
    }
    Ok(())
}

/// Deletes a file if it has no content. Returns whether it did.
pub(crate) async fn delete_empty(conn: &mut Connection, id: FileId) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM files WHERE id = $1 AND bytes = 0")
        .bind(id.to_string())
        .execute(conn)
        .await
        .context("delete an empty file")?;
    Ok(done.rows_affected() == 1)
}

/// Deletes some of the files whose time is over. Returns their number.
pub async fn delete_expired(conn: &mut Connection, now: Timestamp) -> Result<u64, StoreError> {
    let rows = sqlx::query(
        "SELECT id FROM files WHERE expires_at IS NOT NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $2",
    )
    .bind(now.unix_ms())
    .bind(EXPIRED)
    .fetch_all(&mut *conn)
    .await
    .context("list expired files")?;
    for row in &rows {
        delete(conn, parsed(row, "id")?).await?;
    }
    Ok(rows.len() as u64)
}

/// Deletes all files of an account.
pub(super) async fn delete_all_of(conn: &mut Connection, account: AccountId) -> Result<(), StoreError> {
    for statement in [
        "DELETE FROM file_pieces WHERE file_id IN (SELECT id FROM files WHERE account_id = $1)",
        "DELETE FROM files WHERE account_id = $1",
    ] {
        sqlx::query(statement)
            .bind(account.to_string())
            .execute(&mut *conn)
            .await
            .context("delete the files of an account")?;
    }
    Ok(())
}
