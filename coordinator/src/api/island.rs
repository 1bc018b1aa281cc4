//! Requests of Islands: enrollment, credentials, recommendations, and the check.

pub(super) mod check;
pub(super) mod credentials;
pub(super) mod enroll;
pub(super) mod leave;
pub(super) mod pairings;
pub(super) mod recommendations;

use island_protocol::{
    api::{Enroll, HostCredentials, credentials_claim},
    ids::{AccountId, HostId},
    problem::Code,
    time::Timestamp,
};

use super::{Api, ApiError};
use crate::fabric::signature;

/// Validates a request to enroll, and that the Island holds its key.
fn validate_enrollment(api: &Api, request: &Enroll) -> Result<(), ApiError> {
    let pair = nkeys::KeyPair::from_public_key(&request.public_key);
    if !pair.is_ok_and(|pair| matches!(pair.key_pair_type(), nkeys::KeyPairType::User)) {
        let message = "public_key must be a user NKey, U…";
        return Err(ApiError::field(Code::ValidationError, "public_key", message));
    }
    let claim = credentials_claim(request.host_id, request.sent_at);
    verify(api, &claim, request.sent_at, &request.signature, &request.public_key)
}

/// Account and public key of the enrolled Island that signed the request.
async fn signer(
    api: &Api,
    host: HostId,
    claim: &str,
    sent_at: Timestamp,
    signature: &str,
) -> Result<(AccountId, String), ApiError> {
    let found = api.execution.account_and_key(host).await?;
    let (account, public_key) =
        found.ok_or_else(|| ApiError::new(Code::HostNotFound, "this Island is not enrolled"))?;
    verify(api, claim, sent_at, signature, &public_key)?;
    Ok((account, public_key))
}

/// Checks that the request was signed with the Island's key.
fn verify(
    api: &Api,
    claim: &str,
    sent_at: Timestamp,
    signature: &str,
    public_key: &str,
) -> Result<(), ApiError> {
    let now = api.execution.context().clock.now();
    signature::verify(public_key, Some(signature), claim.as_bytes(), sent_at, now)
        .map_err(|error| ApiError::field(Code::ValidationError, "signature", error.to_string()))
}

/// Short-lived credentials.
fn credentials_for(api: &Api, host: HostId, public_key: &str) -> Result<HostCredentials, ApiError> {
    let now = api.execution.context().clock.now();
    let expires_at = now.plus_ms(api.rules.island_jwt_ms);
    let user_jwt = api.keys.island_jwt(host, public_key, now, expires_at).map_err(ApiError::internal)?;
    Ok(HostCredentials {
        nats_url: api.nats_url.clone(),
        user_jwt,
        expires_at,
        coordinator_key: api.keys.coordinator_key(),
    })
}
