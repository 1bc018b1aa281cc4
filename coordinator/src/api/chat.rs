//! `POST /chat/completions`: runs a job of a language model and waits for it.

mod completion;
pub(super) mod reply;
pub(super) mod request;
pub(super) mod stream;

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use island_protocol::problem::Code;
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
    slots::Slot,
};
use crate::{
    catalogue::{Cargo, choice},
    storage::idempotency::CHAT,
};
use reply::Reply;
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
        let chat = Chat::new(fields.parse()?)?;
        let Answer { reply, slot, replayed } = start(&api, caller, &chat, key).await?;
        if chat.stream {
            let chunks = completion::Chunks { include_usage: chat.include_usage };
            let frames = stream::frames(reply, chunks, slot);
            return Ok((Replayed(replayed), event_stream(frames)).into_response());
        }
        let head = reply.head().clone();
        let whole = completion::whole(&head, reply.whole().await?);
        Ok((Replayed(replayed), Json(whole)).into_response())
    };
    answered.await.map_err(ApiError::in_openai_form)
}

/// The reply to a chat that has begun.
pub(super) struct Answer {
    pub reply: Reply,
    /// Held while it is streamed.
    pub slot: Option<Slot>,
    /// Whether an earlier request began it.
    pub replayed: bool,
}

/// Runs the job of a chat. Waits for its first part for a while, so that an early failure is answered with its HTTP status.
pub(super) async fn start(
    api: &Arc<Api>,
    caller: Caller,
    chat: &Chat,
    key: Option<IdempotencyKey>,
) -> Result<Answer, ApiError> {
    let cargo = choose(api, chat)
        .ok_or_else(|| ApiError::new(Code::NoIslandAvailable, "the catalogue has no language model"))?;
    if chat.has_images && !cargo.sees() {
        let refusal = format!("the model {} takes no pictures", cargo.entry.slug);
        return Err(ApiError::field(Code::ValidationError, "messages", refusal));
    }
    availability::check(api, &caller, &cargo, key.as_ref()).await?;
    let input = chat.input_for(&cargo);
    let slot = if chat.stream { Some(api.streams.take(caller.account).await?) } else { None };
    let is_keyed = key.is_some();
    let accepted = accept(api, caller, &cargo, input, 0, key, OnDisconnect::Cancel).await?;
    let (guard, job, replayed) = follow(api, accepted).await?;
    let mut reply = Reply::new(guard, &job, chat.shows_reasoning);
    let delay = if chat.stream { ERROR_DELAY } else { Duration::MAX };
    reply.begin(api.rules.chat_wait, delay).await?;
    if is_keyed {
        // A client with an idempotency key may return for the answer, so the job runs to its end.
        reply.outlive_client();
    }
    Ok(Answer { reply, slot, replayed })
}

/// The Cargo for the model name of a request, by what the Islands can serve now.
fn choose(api: &Api, chat: &Chat) -> Option<Arc<Cargo>> {
    let context = api.execution.context();
    let catalogue = context.catalogue();
    let mut usable = choice::Usable::new();
    let islands = context.fleet.snapshot(Instant::now());
    let suits = |cargo: &&Arc<Cargo>| cargo.is_chat() && (cargo.sees() || !chat.has_images);
    for cargo in catalogue.own().filter(suits) {
        if let Some(nearest) = islands.nearest(&cargo.spec) {
            usable.insert(cargo.entry.slug.clone(), nearest);
        }
    }
    choice::choose(&catalogue, &chat.model, &usable).cloned()
}
