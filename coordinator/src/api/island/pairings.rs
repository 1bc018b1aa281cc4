//! `POST /island/pairings`: an Island without an account asks for a code that its owner confirms.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::{
    api::{Data, Enroll, Pairing},
    problem::Code,
};
use rand::RngExt as _;

use super::check_newcomer;
use crate::{
    api::{Api, ApiError, body},
    storage::{
        self,
        pairing::{self, Waiting},
    },
};

/// How long a code is good for.
const LIFE_MS: i64 = 10 * 60 * 1000;
/// Letters of a code: none that looks like another when read aloud or copied by hand.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// How many there are in one.
const LENGTH: usize = 6;
/// Islands that may wait at once: among so few codes in a thousand million, nobody guesses one in ten minutes.
const MOST: i64 = 10_000;

/// Hands out a code. The Island proves its key, and asks for its credentials until the code was confirmed.
pub(in crate::api) async fn pairings(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<Pairing>>, ApiError> {
    let wish: Enroll = fields.into_type()?;
    check_newcomer(&api, &wish)?;
    let context = api.owner.context();
    let now = context.clock.now();
    let waiting = Waiting { host: wish.host_id, public_key: wish.public_key, name: wish.name };
    let expires_at = now.plus_ms(LIFE_MS);
    let mut tx = context.store.begin().await?;
    if pairing::count(&mut tx, now).await? >= MOST {
        return Err(ApiError::new(
            Code::ServiceUnavailable,
            "too many Islands wait for their codes; try again in ten minutes",
        ));
    }
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
    (0..LENGTH).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_no_letters_that_look_alike() {
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
