//! `POST /hosts/pair`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, HostView, Pair, problem::Code};

use super::find;
use crate::{
    Api, ApiError,
    http::{auth::Caller, body},
    native::island::check_enrollment,
};
use island_coordinator_domain::fleet::Enrolled;
use island_coordinator_storage as storage;
use island_coordinator_storage::{host, pairing};

/// Adds the Island that shows this code to the caller's account.
pub(crate) async fn pair(
    State(api): State<Arc<Api>>,
    caller: Caller,
    body::Json(fields): body::Json,
) -> Result<Json<Data<HostView>>, ApiError> {
    let request: Pair = fields.parse()?;
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([caller.account]).await?;
    // Users may type lower-case letters and dashes.
    let code: String =
        request.code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase();
    let waiting = pairing::take(&mut tx, &code, now).await?;
    let waiting = waiting.ok_or_else(|| {
        ApiError::new(
            Code::PairingNotFound,
            "no Island shows this code now: codes are good once, for ten minutes",
        )
    })?;
    let enrolled = Enrolled::new(waiting.host, caller.account, waiting.public_key, waiting.name);
    let enrollment = host::enroll(&mut tx, &enrolled, api.rules.islands, now).await?;
    check_enrollment(enrollment, "this Island belongs to another account; let it leave there first")?;
    storage::commit(tx).await?;
    // With the karma from before it left, if it was enrolled earlier.
    let stored = host::get(api.store.reader(), enrolled.id).await?;
    api.fleet.enroll(stored.unwrap_or(enrolled));
    Ok(Json(Data { data: find(&api, &waiting.host.to_string())? }))
}
