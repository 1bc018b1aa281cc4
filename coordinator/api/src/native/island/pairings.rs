//! `POST /island/pairings`: creates a code for an Island without an account, which its owner confirms.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, Enroll, Pairing, claim::ClaimVerb};
use rand::RngExt as _;

use super::validate_enrollment;
use crate::{
    Api, ApiError,
    http::{body, client::Client},
};
use island_coordinator_storage as storage;
use island_coordinator_storage::pairing::{self, Waiting};

/// Life of a code.
const LIFE_MS: i64 = 10 * 60 * 1000;
/// Characters of a code. Those that look alike are left out.
const CHARACTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Characters in a code.
const LENGTH: usize = 6;
/// Maximum waiting Islands; further ones replace the oldest. With this number of codes in a thousand million, guessing one within ten minutes is
/// impractical.
const MAX_WAITING: i64 = 10_000;

/// Returns a code. The Island signs the request, and polls for its credentials until the code is confirmed.
pub(crate) async fn pairings(
    State(api): State<Arc<Api>>,
    client: Client,
    body::Json(fields): body::Json,
) -> Result<Json<Data<Pairing>>, ApiError> {
    // Before the nonce of the request is stored.
    api.pairings.admit(client)?;
    let request: Enroll = fields.parse()?;
    validate_enrollment(&api, &request, ClaimVerb::Pair).await?;
    let now = api.clock.now();
    let waiting = Waiting { host: request.host_id, public_key: request.public_key, name: request.name };
    let expires_at = now.plus_ms(LIFE_MS);
    let mut tx = api.store.begin().await?;
    pairing::make_room(&mut tx, MAX_WAITING, now).await?;
    let code = loop {
        let code = code();
        if pairing::insert(&mut tx, &code, &waiting, expires_at).await? {
            break code;
        }
    };
    storage::commit(tx).await?;
    Ok(Json(Data { data: Pairing { code, expires_at } }))
}

fn code() -> String {
    let mut random = rand::rng();
    (0..LENGTH).map(|_| char::from(CHARACTERS[random.random_range(0..CHARACTERS.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_no_characters_that_look_alike() {
        for _ in 0..1000 {
            let code = code();
            assert_eq!(code.len(), LENGTH);
            assert!(
                code.chars().all(|letter| letter.is_ascii_alphanumeric() && !"IO01".contains(letter)),
                "{code}"
            );
        }
    }
}
