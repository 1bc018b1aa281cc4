//! `POST /chat/completions`: runs a job of a language model and waits for it.

pub(super) mod reply;
mod request;

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use island_protocol::{chat::ChatCompletion, problem::Code};
use tokio::time::Instant;

use super::{
    Api, ApiError,
    auth::Caller,
    availability, body,
    idempotency::{IdempotencyKey, Replayed},
    jobs::{
        follow::follow,
        stream::{ERROR_DELAY, event_stream},
        submit::{OnDisconnect, accept},
    },
};
use crate::{
    catalogue::{Cargo, choice},
    storage::idempotency::CHAT,
};
use request::Chat;

/// Completes a chat, whole or streamed.
pub(super) async fn complete(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let key = IdempotencyKey::read(&headers, CHAT, &fields)?;
        answer(&api, caller, Chat::new(fields.parse()?)?, key).await
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(
    api: &Arc<Api>,
    caller: Caller,
    chat: Chat,
    key: Option<IdempotencyKey>,
) -> Result<Response, ApiError> {
    let cargo = choose(api, &chat.model)
        .ok_or_else(|| ApiError::new(Code::NoIslandAvailable, "the catalogue has no language model"))?;
    availability::check(api, &caller, &cargo, key.as_ref()).await?;
    let input = chat.input_for(&cargo);
    let slot = if chat.stream { Some(api.streams.take(caller.account).await?) } else { None };
    let is_keyed = key.is_some();
    let accepted = accept(api, caller, &cargo, input, 0, key, OnDisconnect::Cancel).await?;
    let (guard, job, replayed) = follow(api, accepted).await?;
    let created = job.created_at.unix_ms() / 1000;
    let mut reply = reply::Reply::new(guard, job.workload.to_string(), created);
    let delay = if chat.stream { ERROR_DELAY } else { Duration::MAX };
    reply.begin(api.rules.chat_wait, delay).await?;
    if is_keyed {
        // A client with an idempotency key may return for the answer, so the job runs to its end.
        reply.outlive_client();
    }
    if chat.stream {
        let stream = event_stream(reply.frames(chat.include_usage, slot));
        return Ok((Replayed(replayed), stream).into_response());
    }
    let whole: ChatCompletion = reply.whole().await?;
    Ok((Replayed(replayed), Json(whole)).into_response())
}

/// The Cargo for a model name, by what the Islands can serve now.
fn choose(api: &Api, model: &str) -> Option<Arc<Cargo>> {
    let context = api.execution.context();
    let catalogue = context.catalogue();
    let mut usable = choice::Usable::new();
    let islands = context.fleet.snapshot(Instant::now());
    for cargo in catalogue.own().filter(|cargo| cargo.is_chat()) {
        if let Some(nearest) = islands.nearest(&cargo.spec) {
            usable.insert(cargo.entry.slug.clone(), nearest);
        }
    }
    choice::choose(&catalogue, model, &usable).cloned()
}
