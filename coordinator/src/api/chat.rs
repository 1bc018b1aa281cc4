//! `POST /chat/completions` and `POST /completions`: run jobs of a language model and wait for them.

pub(super) mod choose;
mod completion;
pub(super) mod count;
pub(super) mod reply;
pub(super) mod request;
pub(super) mod served;
pub(super) mod stream;
mod text;

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use futures::future::try_join_all;
use island_protocol::{chat::ChatRequest, completions::CompletionRequest, problem::Code};

use super::{
    Api, ApiError,
    auth::Caller,
    availability, body,
    idempotency::{IdempotencyKey, Replayed},
    jobs::{
        follow::follow,
        stream::{ERROR_DELAY, event_stream},
        submit::{OnDisconnect, Request, accept},
    },
    slots::Slot,
};
use crate::{
    catalogue::Cargo,
    storage::idempotency::{CHAT, COMPLETIONS},
};
use reply::Reply;
use request::Chat;
use served::Served;

/// Completes a chat, whole or streamed.
pub(super) async fn complete(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let key = IdempotencyKey::read(&headers, CHAT, &fields)?;
        let chat = Chat::new(fields.parse::<ChatRequest>()?)?;
        let Answer { replies, slot, replayed, served } = start(&api, caller, &chat, key, Kept::No).await?;
        let head = replies[0].head().clone();
        if chat.stream {
            let encoders = completion::Chunks::of(&head, replies.len(), chat.include_usage);
            let frames = stream::merged(replies.into_iter().zip(encoders).collect(), slot);
            return Ok((Replayed(replayed), served, event_stream(frames)).into_response());
        }
        let wholes = try_join_all(replies.into_iter().map(Reply::whole)).await?;
        let whole = completion::whole(&head, wholes, chat.logprobs);
        Ok((Replayed(replayed), served, Json(whole)).into_response())
    };
    answered.await.map_err(ApiError::in_openai_form)
}

/// Continues a text, or fills a gap in one, whole or streamed.
pub(super) async fn continue_text(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let key = IdempotencyKey::read(&headers, COMPLETIONS, &fields)?;
        let request: CompletionRequest = fields.parse()?;
        let echo = text::echo(&request);
        let chat = Chat::of_text(request)?;
        let Answer { replies, slot, replayed, served } = start(&api, caller, &chat, key, Kept::No).await?;
        let head = replies[0].head().clone();
        if chat.stream {
            let encoders = text::Pieces::of(&head, replies.len(), &echo, chat.include_usage);
            let frames = stream::merged(replies.into_iter().zip(encoders).collect(), slot);
            return Ok((Replayed(replayed), served, event_stream(frames)).into_response());
        }
        let wholes = try_join_all(replies.into_iter().map(Reply::whole)).await?;
        Ok((Replayed(replayed), served, Json(text::whole(&head, wholes, &echo, chat.logprobs)))
            .into_response())
    };
    answered.await.map_err(ApiError::in_openai_form)
}

/// The replies to a chat that have begun, at least one.
pub(super) struct Answer {
    pub replies: Vec<Reply>,
    /// Held while they are streamed.
    pub slot: Option<Slot>,
    /// Whether an earlier request began them.
    pub replayed: bool,
    /// Which Island runs the first one.
    pub served: Option<Served>,
}

/// Whether the job of a chat is kept as a response.
#[derive(Debug, Clone)]
pub(super) enum Kept {
    No,
    /// With this part of its request.
    Response(String),
    /// With this part of its request. It runs to its end, and nobody waits for it.
    Background(String),
}

/// Runs the jobs of a chat, with the first of its models that an Island can serve. Waits for the first part of each for a while, so that
/// an early failure is answered with its HTTP status.
pub(super) async fn start(
    api: &Arc<Api>,
    caller: Caller,
    chat: &Chat,
    key: Option<IdempotencyKey>,
    kept: Kept,
) -> Result<Answer, ApiError> {
    let mut slot = None;
    let mut refusal = None;
    for cargo in choose::candidates(api, chat)? {
        let started = async {
            chat.check(&cargo)?;
            availability::check(api, &caller, &cargo, &chat.preferences, key.as_ref()).await?;
            if chat.stream && slot.is_none() {
                slot = Some(api.streams.take(caller.account).await?);
            }
            begin(api, caller, chat, &cargo, key.as_ref(), &kept).await
        };
        match started.await {
            Ok((replies, replayed)) => {
                let served = Served::of(api, caller.account, &replies[0]);
                return Ok(Answer { replies, slot, replayed, served });
            }
            // Another model may be served, or cost less.
            Err(error) if matches!(error.code(), Code::NoIslandAvailable | Code::ValidationError) => {
                refusal.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or_else(choose::absent))
}

/// Begins the replies of one model.
async fn begin(
    api: &Arc<Api>,
    caller: Caller,
    chat: &Chat,
    cargo: &Arc<Cargo>,
    key: Option<&IdempotencyKey>,
    kept: &Kept,
) -> Result<(Vec<Reply>, bool), ApiError> {
    let mut replies = Vec::new();
    let mut is_replayed = false;
    for index in 0..chat.replies {
        let input = chat.input_for(cargo, index);
        let key = key.map(|key| key.of_part(index));
        let mut request = Request {
            preferences: chat.preferences.clone(),
            conversation: chat.beginnings(caller.account, &cargo.entry.slug),
            ..Request::waiting(input, key)
        };
        match kept {
            Kept::No => {}
            Kept::Response(kept) => request.response = Some(kept.clone()),
            Kept::Background(kept) => {
                request.response = Some(kept.clone());
                request.on_disconnect = OnDisconnect::Run;
            }
        }
        let accepted = accept(api, caller, cargo, request).await?;
        let (guard, job, replayed) = follow(api, accepted).await?;
        replies.push(Reply::new(guard, &job, chat.shows_reasoning));
        is_replayed |= replayed;
    }
    if matches!(kept, Kept::Background(_)) {
        return Ok((replies, is_replayed));
    }
    let delay = if chat.stream { ERROR_DELAY } else { Duration::MAX };
    let begins = replies.iter_mut().map(|reply| reply.begin(api.rules.chat_wait, delay));
    try_join_all(begins).await?;
    if key.is_some() {
        // A client with an idempotency key may return for the answer, so the job runs to its end.
        replies.iter_mut().for_each(Reply::outlive_client);
    }
    Ok((replies, is_replayed))
}
