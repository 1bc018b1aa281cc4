//! `POST /fabric/credentials`: short-lived read access to the fabric for the holder of an API key.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, WatchCredentials};
use nkeys::KeyPair;

use crate::{Api, ApiError, http::auth::Caller};
use island_coordinator_fabric::permissions;
use island_coordinator_storage::{commit, jobs, revocation};

/// Jobs whose events a consumer's credentials cover: the newest ones.
const WATCHED_JOBS: u32 = 100;

/// An operator gets every public subject; a consumer gets heartbeats, status, and the events of its own jobs.
pub(crate) async fn credentials(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Result<Json<Data<WatchCredentials>>, ApiError> {
    let mut permissions = if caller.operator {
        permissions::operator()
    } else {
        permissions::consumer(&jobs::recent(api.store.reader(), caller.account, WATCHED_JOBS).await?)
    };
    let subjects = permissions.subscribe.clone();
    let pair = KeyPair::new_user();
    let public_key = pair.public_key();
    let inbox_prefix = format!("_INBOX_{public_key}");
    permissions.subscribe.push(format!("{inbox_prefix}.>"));
    // Valid by both clocks, and no longer than the key: the server reads the credentials only.
    let longest = api.clock.latest().plus_ms(api.rules.watch_jwt_ms);
    let expires_at = caller.expires_at.map_or(longest, |end| end.min(longest));
    let issued_at = api.clock.earliest();
    let user_jwt = api
        .keys
        .user_jwt(&public_key, "watcher", &permissions, issued_at, expires_at)
        .map_err(ApiError::internal)?;
    // Recorded before the credentials are known to anybody, so that a revocation of the key includes them.
    let mut tx = api.store.begin().await?;
    revocation::add_watcher(&mut tx, &public_key, caller.key, expires_at).await?;
    commit(tx).await?;
    let seed = pair.seed().map_err(ApiError::internal)?;
    let data = WatchCredentials {
        nats_url: api.nats_url.clone(),
        user_jwt,
        seed,
        expires_at,
        subjects,
        inbox_prefix,
    };
    Ok(Json(Data { data }))
}
