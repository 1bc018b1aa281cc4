//! `/webhooks`: addresses that are sent events.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use island_protocol::ids::{AccountId, DeliveryId, WebhookId};
use island_protocol_api::{
    Data, Page, PageMeta,
    problem::Code,
    webhook::{CreateWebhook, CreatedWebhook, DeletedWebhook, Delivery, DeliveryState, EventType, Webhook},
};
use uuid::Uuid;

use crate::{
    Api, ApiError,
    http::{auth::Caller, body, query::Query, segment::Segment},
};
use island_coordinator_execution::webhooks::{address, signature};
use island_coordinator_storage::{commit, webhook};

/// Time for which events have the signature of a replaced secret as well.
const OLD_SECRET_MS: i64 = 24 * 3_600_000;

fn unknown() -> ApiError {
    ApiError::new(Code::WebhookNotFound, "there is no such webhook")
}

/// The webhook of an account that a path names.
async fn own(api: &Api, account: AccountId, Segment(id): &Segment) -> Result<Webhook, ApiError> {
    let id: WebhookId = id.parse().map_err(|_| unknown())?;
    webhook::get(api.store.reader(), id, account).await?.ok_or_else(unknown)
}

/// Creates a webhook. Only this answer contains its secret.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    body::Json(fields): body::Json,
) -> Result<(StatusCode, Json<CreatedWebhook>), ApiError> {
    let CreateWebhook { url, mut events } = fields.parse()?;
    address::check(&url, api.rules.webhooks.private_addresses)
        .map_err(|refused| ApiError::field(Code::ValidationError, "url", format!("url: {refused}")))?;
    events.sort_unstable();
    events.dedup();
    let data = Webhook {
        id: WebhookId(Uuid::now_v7()),
        url,
        events,
        created_at: api.clock.now(),
        failing_since: None,
        disabled_at: None,
    };
    let secret = signature::new_secret();
    let limit = api.rules.webhooks.per_account;
    let mut tx = api.store.begin_locked([caller.account]).await?;
    if !webhook::insert(&mut tx, caller.account, &data, &secret, limit).await? {
        let message = format!("an account may have {limit} webhooks");
        return Err(ApiError::new(Code::TooManyWebhooks, message));
    }
    commit(tx).await?;
    Ok((StatusCode::CREATED, Json(CreatedWebhook { data, secret })))
}

/// The webhooks of the account, oldest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Result<Json<Data<Vec<Webhook>>>, ApiError> {
    let data = webhook::list(api.store.reader(), caller.account).await?;
    Ok(Json(Data { data }))
}

/// One webhook.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Segment,
) -> Result<Json<Data<Webhook>>, ApiError> {
    Ok(Json(Data { data: own(&api, caller.account, &id).await? }))
}

/// Deletes a webhook. Events that were not delivered are not sent any more.
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Segment,
) -> Result<Json<Data<DeletedWebhook>>, ApiError> {
    let Webhook { id, .. } = own(&api, caller.account, &id).await?;
    let mut tx = api.store.begin_locked([caller.account]).await?;
    if !webhook::delete(&mut tx, id, caller.account).await? {
        return Err(unknown());
    }
    commit(tx).await?;
    Ok(Json(Data { data: DeletedWebhook { id, deleted: true } }))
}

/// Replaces the secret of a webhook. Only this answer contains the new one.
pub(crate) async fn replace_secret(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Segment,
) -> Result<Json<CreatedWebhook>, ApiError> {
    let data = own(&api, caller.account, &id).await?;
    let (secret, until) = (signature::new_secret(), api.clock.now().plus_ms(OLD_SECRET_MS));
    let mut tx = api.store.begin().await?;
    if !webhook::replace_secret(&mut tx, data.id, caller.account, &secret, until).await? {
        return Err(unknown());
    }
    commit(tx).await?;
    Ok(Json(CreatedWebhook { data, secret }))
}

/// Sends an event that is about nothing but the webhook itself.
pub(crate) async fn test(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Segment,
) -> Result<(StatusCode, Json<Data<Delivery>>), ApiError> {
    let webhook = own(&api, caller.account, &id).await?;
    let (id, now) = (DeliveryId(Uuid::now_v7()), api.clock.now());
    let mut tx = api.store.begin_locked([caller.account]).await?;
    if !webhook::enqueue_test(&mut tx, id, webhook.id, now).await? {
        return Err(unknown());
    }
    commit(tx).await?;
    let data = Delivery {
        id,
        event: EventType::WebhookTest,
        subject: webhook.id.to_string(),
        state: DeliveryState::Pending,
        attempts: 0,
        last_status: None,
        last_error: None,
        created_at: now,
        next_at: Some(now),
        ended_at: None,
    };
    Ok((StatusCode::ACCEPTED, Json(Data { data })))
}

/// What was sent, or will be, newest first.
pub(crate) async fn deliveries(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Segment,
    query: Query,
) -> Result<Json<Page<Delivery>>, ApiError> {
    let requested = query.page()?;
    let webhook = own(&api, caller.account, &id).await?;
    let reader = api.store.reader();
    let (data, total) = webhook::deliveries(reader, webhook.id, requested.limit, requested.offset).await?;
    Ok(Json(Page { data, meta: PageMeta { total, ..requested } }))
}
