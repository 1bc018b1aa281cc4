//! `POST /api-keys`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use island_protocol::{credits::MicroCredits, ids::ApiKeyId};
use island_protocol_api::{
    key::{CreatedKey, KeyView},
    problem::Code,
};
use uuid::Uuid;

use super::request::KeyRequest;
use crate::{
    Api, ApiError,
    http::{
        auth::Caller,
        body,
        idempotency::{IdempotencyKey, Replayed, reused},
    },
    native::quotas,
};
use island_coordinator_domain::secret::{self, NewKey};
use island_coordinator_storage::{
    StoreError, commit,
    idempotency::{self, Claimed, KEYS},
    key::{self, Spending, StoredKey},
    quota::{self, Holder},
};

type Answer = (StatusCode, Replayed, Json<CreatedKey>);

/// Creates a key. Only the first answer contains the secret; a replay does not.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    body::Json(fields): body::Json,
) -> Result<Answer, ApiError> {
    let idempotency_key = IdempotencyKey::read(&headers, KEYS, &fields)?;
    let now = api.clock.now();
    let request = KeyRequest::new(fields.parse()?, &caller, now)?;
    if quotas::has_own(&api, &caller).await? {
        return Err(ApiError::new(Code::Forbidden, "a key with quotas cannot create keys"));
    }
    let NewKey { secret, prefix, hash } = secret::new_key();
    let id = ApiKeyId(Uuid::now_v7());
    let mut tx = api.store.begin_locked([caller.account]).await?;
    if let Some(idempotency_key) = &idempotency_key {
        match idempotency::claim(
            &mut tx,
            &idempotency_key.claim(caller.account, api.rules.idempotency_ms),
            &id.to_string(),
            now,
        )
        .await?
        {
            Claimed::New => {}
            Claimed::Existing(made) => {
                // The key may be in the same commit group; it can be read after that is on disk.
                commit(tx).await?;
                return replay(&api, &made).await;
            }
            Claimed::Reused => return Err(reused()),
        }
    }
    let parent = caller.spend_cap.map(|_| caller.key);
    if let (Some(parent), Some(cap)) = (parent, request.spend_cap) {
        reserve(key::spend(&mut tx, parent, cap).await?, cap)?;
    }
    let stored = StoredKey {
        id,
        account: caller.account,
        name: &request.name,
        prefix: &prefix,
        hash: &hash,
        scopes: request.scopes,
        expires_at: request.expires_at,
        spend_cap: request.spend_cap,
        parent,
        created_at: now,
    };
    key::insert(&mut tx, &stored).await?;
    if let Some(quotas) = &request.quotas {
        quota::replace(&mut tx, Holder::Key(caller.account, id), quotas, now).await?;
    }
    commit(tx).await?;
    let data = KeyView {
        id,
        name: request.name,
        prefix,
        scopes: request.scopes.list(),
        created_at: now,
        last_used_at: None,
        expires_at: request.expires_at,
        spend_cap: request.spend_cap,
        spent: MicroCredits::ZERO,
    };
    Ok((StatusCode::CREATED, Replayed(false), Json(CreatedKey { data, key: Some(secret) })))
}

/// Checks the amount that a capped key passes on: at most what it has neither spent nor passed on before.
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

/// The first answer again, without the secret.
async fn replay(api: &Api, made: &str) -> Result<Answer, ApiError> {
    let corrupt = || StoreError::Corrupt { what: "made" };
    let id: ApiKeyId = made.parse().map_err(|_| corrupt())?;
    let view = key::get(api.store.reader(), id).await?.ok_or_else(corrupt)?;
    let data = KeyView { last_used_at: None, spent: MicroCredits::ZERO, ..view };
    Ok((StatusCode::CREATED, Replayed(true), Json(CreatedKey { data, key: None })))
}
