//! Requests of Islands: enrollment, credentials, recommendations, and the check.

pub(crate) mod check;
pub(crate) mod credentials;
pub(crate) mod enroll;
pub(crate) mod leave;
pub(crate) mod pairings;
pub(crate) mod recommendations;

use island_protocol::ids::{AccountId, HostId};
use island_protocol_api::{
    Enroll, HostCredentials,
    claim::{Claim, ClaimVerb, IslandRequest},
    problem::Code,
};

use crate::{Api, ApiError};
use island_coordinator_fabric::signature;
use island_coordinator_storage::host::Enrollment;

/// How long the nonce of a claim is kept: longer than a claim can be timely by any clock, even if that clock steps an hour
/// forth before the claim is made and an hour back after it.
const NONCE_LIFE_MS: i64 = 3 * 3_600_000;

/// Validates a request to enroll or pair, and that the Island holds its key.
async fn validate_enrollment(api: &Api, request: &Enroll, verb: ClaimVerb) -> Result<(), ApiError> {
    let pair = nkeys::KeyPair::from_public_key(&request.public_key);
    if !pair.is_ok_and(|pair| matches!(pair.key_pair_type(), nkeys::KeyPairType::User)) {
        let message = "public_key must be a user NKey, U…";
        return Err(ApiError::field(Code::ValidationError, "public_key", message));
    }
    accept(api, &request.claim(verb), &request.signature, &request.public_key).await
}

/// Returns the error of an enrollment that was not made. `foreign` is its message for a caller who does not own the
/// Island.
pub(crate) fn check_enrollment(enrollment: Enrollment, foreign: &str) -> Result<(), ApiError> {
    match enrollment {
        Enrollment::Enrolled => Ok(()),
        Enrollment::Foreign => Err(ApiError::new(Code::HostConflict, foreign)),
        Enrollment::TooMany => {
            let message = "this account has as many Islands as it may have; let one leave first";
            Err(ApiError::new(Code::TooManyHosts, message))
        }
    }
}

/// Account and public key of the enrolled Island that signed the request.
async fn signer(
    api: &Api,
    request: &IslandRequest,
    verb: ClaimVerb,
) -> Result<(AccountId, String), ApiError> {
    let found = api.execution.account_and_key(request.host_id).await?;
    let (account, public_key) =
        found.ok_or_else(|| ApiError::new(Code::HostNotFound, "this Island is not enrolled"))?;
    if request.account_id.is_some_and(|known| known != account) {
        let message = "this Island belongs to another account";
        return Err(ApiError::field(Code::ValidationError, "account_id", message));
    }
    accept(api, &request.claim(verb), &request.signature, &public_key).await?;
    Ok((account, public_key))
}

/// Checks that the claim was signed with the Island's key, and was not accepted before.
async fn accept(api: &Api, claim: &Claim, signature: &str, public_key: &str) -> Result<(), ApiError> {
    let (signed, times) = (claim.to_string(), api.clock.times());
    signature::verify(public_key, Some(signature), signed.as_bytes(), claim.sent_at, &times)
        .map_err(|error| ApiError::field(Code::ValidationError, "signature", error.to_string()))?;
    let until = api.clock.steady().plus_ms(NONCE_LIFE_MS);
    if api.store.counters().use_nonce(public_key, claim.nonce, until.unix_ms()).await? {
        return Ok(());
    }
    Err(ApiError::field(Code::ValidationError, "nonce", "this nonce was used before"))
}

/// Short-lived credentials.
fn credentials_for(
    api: &Api,
    host: HostId,
    account: AccountId,
    public_key: &str,
) -> Result<HostCredentials, ApiError> {
    let clock = &api.clock;
    // Valid by both clocks.
    let expires_at = clock.latest().plus_ms(api.rules.island_jwt_ms);
    let user_jwt =
        api.keys.island_jwt(host, public_key, clock.earliest(), expires_at).map_err(ApiError::internal)?;
    Ok(HostCredentials {
        nats_url: api.nats_url.clone(),
        user_jwt,
        expires_at,
        coordinator_key: api.keys.coordinator_key(),
        account_id: Some(account),
    })
}
