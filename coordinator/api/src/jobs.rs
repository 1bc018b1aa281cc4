//! `/jobs`.

pub(super) mod cancel;
pub(super) mod delete_data;
pub(super) mod follow;
pub(super) mod get;
pub(super) mod list;
pub(super) mod stream;
pub(super) mod submit;

use island_protocol::ids::JobId;
use island_protocol_api::problem::Code;

use super::{Api, ApiError, auth::Caller};
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
    let job = storage::jobs::get(api.execution.context().store.reader(), id).await?;
    job.filter(|job| job.account == caller.account).ok_or_else(unknown)
}
