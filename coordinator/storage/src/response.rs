//! What is kept of the requests of stored responses. Everything else of a response is in its job.

use island_protocol::ids::JobId;
use sqlx::Row as _;

use super::{Connection, Pool, QueryContext as _, StoreError};

/// Keeps the request of a job's response.
pub(super) async fn insert(conn: &mut Connection, job: JobId, request: &str) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO responses (job_id, request) VALUES ($1, $2)")
        .bind(job.to_string())
        .bind(request)
        .execute(conn)
        .await
        .context("keep a response")?;
    Ok(())
}

/// Records that the reply of a job's response, if it is stored, reached its maximum length: its events state so only until
/// they are deleted.
pub(super) async fn mark_cut(conn: &mut Connection, job: JobId) -> Result<(), StoreError> {
    // What is kept is an object with fields, none of which is this one.
    sqlx::query("UPDATE responses SET request = '{\"is_cut\":true,' || SUBSTR(request, 2) WHERE job_id = $1")
        .bind(job.to_string())
        .execute(conn)
        .await
        .context("record how a response ended")?;
    Ok(())
}

/// What was kept of the request of a job's response; `None` if it is not stored.
pub async fn get(pool: &Pool, job: JobId) -> Result<Option<String>, StoreError> {
    let row = sqlx::query("SELECT request FROM responses WHERE job_id = $1")
        .bind(job.to_string())
        .fetch_optional(pool)
        .await
        .context("read a response")?;
    row.map(|row| row.try_get("request").context("read a column")).transpose()
}
