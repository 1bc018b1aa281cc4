//! What Islands ask over HTTP: to be tied to an account, for fabric credentials, and which models to have.

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

/// Checks what an Island says of itself when it comes, and that it holds its key.
fn check_newcomer(api: &Api, wish: &Enroll) -> Result<(), ApiError> {
    if wish.name.trim().is_empty() || wish.name.chars().count() > 64 {
        return Err(ApiError::field(Code::ValidationError, "name", "name must have 1 to 64 characters"));
    }
    let pair = nkeys::KeyPair::from_public_key(&wish.public_key);
    if !pair.is_ok_and(|pair| matches!(pair.key_pair_type(), nkeys::KeyPairType::User)) {
        let message = "public_key must be a user NKey, U…";
        return Err(ApiError::field(Code::ValidationError, "public_key", message));
    }
    let claim = credentials_claim(wish.host_id, wish.sent_at);
    prove(api, &claim, wish.sent_at, &wish.signature, &wish.public_key)
}

/// Account and key of an enrolled Island that signed this.
async fn signer(
    api: &Api,
    host: HostId,
    claim: &str,
    sent_at: Timestamp,
    signature: &str,
) -> Result<(AccountId, String), ApiError> {
    let known = api.owner.known(host).await?;
    let (account, public_key) =
        known.ok_or_else(|| ApiError::new(Code::HostNotFound, "this Island is not enrolled"))?;
    prove(api, claim, sent_at, signature, &public_key)?;
    Ok((account, public_key))
}

/// Checks that whoever asks holds the Island's key.
fn prove(
    api: &Api,
    claim: &str,
    sent_at: Timestamp,
    signature: &str,
    public_key: &str,
) -> Result<(), ApiError> {
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
