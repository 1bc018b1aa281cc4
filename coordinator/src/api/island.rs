//! What Islands ask over HTTP: to be tied to an account, for fabric credentials, and which models to have.

pub(super) mod credentials;
pub(super) mod enroll;
pub(super) mod recommendations;

use island_protocol::{api::HostCredentials, ids::HostId, problem::Code, time::Timestamp};

use super::{Api, ApiError};
use crate::fabric::signature;

/// Checks that whoever asks holds the Island's key.
fn prove(
    api: &Api,
    host: HostId,
    sent_at: Timestamp,
    signature: &str,
    public_key: &str,
) -> Result<(), ApiError> {
    let claim = island_protocol::api::credentials_claim(host, sent_at);
    let now = api.owner.context().clock.now();
    signature::verify(public_key, Some(signature), claim.as_bytes(), sent_at, now)
        .map_err(|error| ApiError::field(Code::ValidationError, "signature", error.to_string()))
}

/// Credentials that end soon.
fn credentials_for(api: &Api, host: HostId, public_key: &str) -> Result<HostCredentials, ApiError> {
    let now = api.owner.context().clock.now();
    let expires_at = now.plus_ms(api.rules.island_jwt_ms);
    let user_jwt = api.keys.island_jwt(host, public_key, now, expires_at).map_err(ApiError::internal)?;
    Ok(HostCredentials {
        nats_url: api.nats_url.clone(),
        user_jwt,
        expires_at,
        coordinator_key: api.keys.coordinator_key(),
    })
}
