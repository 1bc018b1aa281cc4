//! `GET` and `POST /admin/invitations`, and the revocation of an invitation.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use island_protocol::{credits::MicroCredits, ids::InvitationId};
use island_protocol_api::{
    Data, Page, PageMeta,
    admin::AdminAction,
    problem::Code,
    signup::{CreateInvitation, CreatedInvitation, Invitation},
};
use uuid::Uuid;

use super::{made_before, parse_made, reason, record};
use crate::{
    Api, ApiError,
    http::{
        auth::Operator,
        body,
        idempotency::{IdempotencyKey, Replayed},
        query::Query,
        segment::Segment,
    },
};
use island_coordinator_domain::secret;
use island_coordinator_storage::{commit, idempotency::INVITATIONS, invitation};

fn unknown() -> ApiError {
    ApiError::new(Code::InvitationNotFound, "there is no such invitation")
}

async fn read(api: &Api, id: InvitationId) -> Result<Invitation, ApiError> {
    invitation::get(api.store.reader(), id).await?.ok_or_else(unknown)
}

/// All invitations, newest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    query: Query,
) -> Result<Json<Page<Invitation>>, ApiError> {
    let requested = query.page()?;
    let reader = api.store.reader();
    let (data, total) = invitation::page(reader, requested.limit, requested.offset).await?;
    Ok(Json(Page { data, meta: PageMeta { total, ..requested } }))
}

/// Creates an invitation. Only the first answer contains the code; a replay does not.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    headers: HeaderMap,
    body::Json(fields): body::Json,
) -> Result<(StatusCode, Replayed, Json<CreatedInvitation>), ApiError> {
    let idempotency_key = IdempotencyKey::read(&headers, INVITATIONS, &fields)?;
    let CreateInvitation { credits, uses, expires_at, reason } = fields.parse()?;
    let now = api.clock.now();
    if expires_at.is_some_and(|end| end <= now) {
        let message = "expires_at must be a time in the future";
        return Err(ApiError::field(Code::ValidationError, "expires_at", message));
    }
    let data = Invitation {
        id: InvitationId(Uuid::now_v7()),
        credits: credits.unwrap_or_else(|| MicroCredits::from_credits(api.rules.signup_credits.into())),
        uses,
        used: 0,
        reason,
        created_at: now,
        expires_at,
        revoked_at: None,
    };
    let name = data.id.to_string();
    let mut tx = api.store.begin_locked([operator.account]).await?;
    let key = idempotency_key.as_ref();
    if let Some(made) = made_before(&api, &mut tx, key, operator.account, &name, now).await? {
        // The invitation may be in the same commit group; it can be read after that is on disk.
        commit(tx).await?;
        let data = read(&api, parse_made(&made)?).await?;
        return Ok((StatusCode::CREATED, Replayed(true), Json(CreatedInvitation { data, code: None })));
    }
    let code = secret::new_code();
    invitation::insert(&mut tx, &data, &secret::hash(&code)).await?;
    let (kind, amount) = (AdminAction::CreateInvitation, Some(data.credits));
    record(&mut tx, operator.account, kind, &name, amount, &data.reason, now).await?;
    commit(tx).await?;
    Ok((StatusCode::CREATED, Replayed(false), Json(CreatedInvitation { data, code: Some(code) })))
}

/// Revokes an invitation. Accounts that were created with it stay.
pub(crate) async fn revoke(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Segment(id): Segment,
    body: body::Json,
) -> Result<Json<Data<Invitation>>, ApiError> {
    let reason = reason(body)?;
    let id: InvitationId = id.parse().map_err(|_| unknown())?;
    let now = api.clock.now();
    let mut tx = api.store.begin().await?;
    if invitation::revoke(&mut tx, id, now).await? {
        let kind = AdminAction::RevokeInvitation;
        record(&mut tx, operator.account, kind, &id.to_string(), None, &reason, now).await?;
    }
    commit(tx).await?;
    Ok(Json(Data { data: read(&api, id).await? }))
}
