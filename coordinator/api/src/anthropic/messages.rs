//! `POST /messages`, Anthropic's API: the job of a chat, with bodies of another form.

mod reply;
mod request;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use island_protocol_api::messages::{CountTokensRequest, MessagesRequest, TokenCount};

use crate::{
    Api, ApiError,
    http::{
        body,
        idempotency::{IdempotencyKey, Replayed},
    },
    native::jobs::stream::event_stream,
    openai::chat::{self, request::Chat, stream},
};
use island_coordinator_storage::idempotency::MESSAGES;

/// Replies to a conversation, whole or streamed.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        let key = IdempotencyKey::read(&headers, MESSAGES, &fields)?;
        let chat = Chat::new(request::chat(fields.parse::<MessagesRequest>()?)?)?.named(request::NAMES);
        let chat::Answer { replies, slot, replayed, served } =
            chat::start(&api, caller, &chat, key, chat::Kept::No).await?;
        let Some(reply) = replies.into_iter().next() else { return Err(chat::choose::absent()) };
        if chat.stream {
            let frames = stream::frames(reply, reply::Events::default(), slot);
            return Ok((Replayed(replayed), served, event_stream(frames)).into_response());
        }
        let message = reply::whole(reply).await?;
        Ok((Replayed(replayed), served, Json(message)).into_response())
    };
    answered.await.map_err(ApiError::in_anthropic_form)
}

/// Counts the tokens of a conversation.
pub(crate) async fn count_tokens(
    State(api): State<Arc<Api>>,
    request: Result<body::Keyed, ApiError>,
) -> Result<Json<TokenCount>, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        let request = request::chat(fields.parse::<CountTokensRequest>()?.into())?;
        let chat = Chat::new(request)?.named(request::NAMES);
        let input_tokens = chat::count::count(&api, caller, &chat).await?;
        Ok(Json(TokenCount { input_tokens }))
    };
    answered.await.map_err(ApiError::in_anthropic_form)
}
