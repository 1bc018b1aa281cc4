//! `POST /api-keys`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use island_protocol::{
    api::key::{CreatedKey, KeyView},
    credits::MicroCredits,
    ids::ApiKeyId,
    problem::Code,
};
use uuid::Uuid;

use super::wish::Wish;
use crate::{
    api::{
        Api, ApiError,
        auth::Caller,
        body,
        once::{self, Once, Replayed},
    },
    secret::{self, NewKey},
    storage::{
        StoreError, account, commit,
        idempotency::{self, KEYS, Known},
        key::{self, Spending, StoredKey},
    },
};

type Answer = (StatusCode, Replayed, Json<CreatedKey>);

/// Makes a key. The answer is the only one that carries the secret; a replay of it does not.
pub(in crate::api) async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    body::Json(fields): body::Json,
) -> Result<Answer, ApiError> {
    let once = Once::read(&headers, KEYS, &fields)?;
    let context = api.owner.context();
    let now = context.clock.now();
    let wish = Wish::parse(fields, &caller, now)?;
    let NewKey { secret, prefix, hash } = secret::new_key();
    let id = ApiKeyId(Uuid::now_v7());
    let mut tx = context.store.begin().await?;
    account::lock(&mut tx, [caller.account]).await?;
    if let Some(once) = &once {
        match idempotency::claim(&mut tx, &once.claim(caller.account), &id.to_string(), now).await? {
            Known::New => {}
            Known::Before(made) => {
                // It may be in the same group, and can be read once it is on disk.
                commit(tx).await?;
                return replay(&api, &made).await;
            }
            Known::Reused => return Err(once::reused()),
        }
    }
    let parent = caller.spend_cap.map(|_| caller.key);
    if let (Some(parent), Some(cap)) = (parent, wish.spend_cap) {
        reserve(key::spend(&mut tx, parent, cap).await?, cap)?;
    }
    let stored = StoredKey {
        id,
        account: caller.account,
        name: &wish.name,
        prefix: &prefix,
        hash: &hash,
        scopes: wish.scopes,
        expires_at: wish.expires_at,
        spend_cap: wish.spend_cap,
        parent,
        created_at: now,
    };
    key::insert(&mut tx, &stored).await?;
    commit(tx).await?;
    let data = KeyView {
        id,
        name: wish.name,
        prefix,
        scopes: wish.scopes.list(),
        created_at: now,
        last_used_at: None,
        expires_at: wish.expires_at,
        spend_cap: wish.spend_cap,
        spent: MicroCredits::ZERO,
    };
    Ok((StatusCode::CREATED, Replayed(false), Json(CreatedKey { data, key: Some(secret) })))
}

/// A capped key gives what it has not spent or given away, and no more.
fn reserve(spending: Spending, wanted: MicroCredits) -> Result<(), ApiError> {
    match spending {
        Spending::Taken => Ok(()),
        Spending::Capped { left, .. } => {
            let message = format!("this key's own cap leaves {left} credits, not {wanted}");
            Err(ApiError::field(Code::Forbidden, "spend_cap", message))
        }
        Spending::Revoked => Err(ApiError::new(Code::InvalidApiKey, "this API key is unknown or revoked")),
    }
}

/// The first answer again, as it was, less the secret.
async fn replay(api: &Api, made: &str) -> Result<Answer, ApiError> {
    let corrupt = || StoreError::Corrupt { what: "made" };
    let id: ApiKeyId = made.parse().map_err(|_| corrupt())?;
    let view = key::get(api.owner.context().store.reader(), id).await?.ok_or_else(corrupt)?;
    let data = KeyView { last_used_at: None, spent: MicroCredits::ZERO, ..view };
    Ok((StatusCode::CREATED, Replayed(true), Json(CreatedKey { data, key: None })))
}
