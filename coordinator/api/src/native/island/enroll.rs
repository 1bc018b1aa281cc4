//! `POST /island/enroll`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, Enroll, HostCredentials, claim::ClaimVerb};

use super::{check_enrollment, credentials_for, validate_enrollment};
use crate::{
    Api, ApiError,
    http::{auth::Caller, body},
};
use island_coordinator_domain::fleet::Enrolled;
use island_coordinator_storage as storage;
use island_coordinator_storage::host;

/// Adds an Island to the caller's account and returns its first credentials. May be repeated with the same key.
pub(crate) async fn enroll(
    State(api): State<Arc<Api>>,
    caller: Caller,
    body::Json(fields): body::Json,
) -> Result<Json<Data<HostCredentials>>, ApiError> {
    let request: Enroll = fields.parse()?;
    validate_enrollment(&api, &request, ClaimVerb::Enroll).await?;
    let enrolled = Enrolled::new(request.host_id, caller.account, request.public_key.clone(), request.name);
    let mut tx = api.store.begin_locked([caller.account]).await?;
    let enrollment = host::enroll(&mut tx, &enrolled, api.rules.islands, api.clock.now()).await?;
    check_enrollment(enrollment, "this Island id belongs to another key or account")?;
    storage::commit(tx).await?;
    let credentials = credentials_for(&api, request.host_id, caller.account, &request.public_key)?;
    // With the karma from before it left, if it was enrolled earlier.
    let stored = host::get(api.store.reader(), enrolled.id).await?;
    api.fleet.enroll(stored.unwrap_or(enrolled));
    Ok(Json(Data { data: credentials }))
}
