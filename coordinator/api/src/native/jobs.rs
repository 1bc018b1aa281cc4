//! `/jobs`.

pub(crate) mod cancel;
pub(crate) mod delete_data;
pub(crate) mod follow;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod stream;
pub(crate) mod submit;

use island_protocol::ids::JobId;
use island_protocol_api::problem::Code;

use crate::{Api, ApiError, http::auth::Caller};
use island_coordinator_domain::job::Job;
use island_coordinator_storage as storage;

fn unknown() -> ApiError {
    ApiError::new(Code::JobNotFound, "there is no such job")
}

fn parse_id(id: &str) -> Result<JobId, ApiError> {
    id.parse().map_err(|_| unknown())
}

/// A job of the caller. Another account's job is reported as unknown.
async fn own(api: &Api, caller: &Caller, id: &str) -> Result<Job, ApiError> {
    let id = parse_id(id)?;
    let job = storage::jobs::get(api.store.reader(), id).await?;
    job.filter(|job| job.account == caller.account).ok_or_else(unknown)
}
