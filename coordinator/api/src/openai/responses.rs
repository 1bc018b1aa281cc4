//! `/responses`, OpenAI's newer API: the job of a chat, whose conversation can be continued by its id.
//!
//! A response is its job: the conversation is the job's input, what the model wrote is its output. Only what the request contains beyond
//! that is kept in addition. It is deleted with the data of the job.

mod events;
mod items;
mod page;
mod references;
mod reply;
mod request;
mod stored;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response as HttpResponse},
};
use island_protocol::ids::JobId;
use island_protocol_api::{
    CancelledJob, Data,
    chat::ChatMessage,
    problem::Code,
    responses::{
        DeletedResponse, InputItems, InputTokens, PREFIX, Response, ResponseRequest, ResponseStatus,
    },
};

use crate::{
    Api, ApiError,
    http::{
        auth::Caller,
        body,
        idempotency::{IdempotencyKey, Replayed},
        query::Query,
        segment::Segment,
    },
    native::jobs,
    openai::{
        chat::{self, Kept, request::Chat, stream},
        openai_form::OpenAiForm,
    },
};
use island_coordinator_storage::idempotency::RESPONSES;
use page::Page;
use stored::Stored;

/// Creates a response: whole, streamed, or in the background.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<HttpResponse, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        let key = IdempotencyKey::read(&headers, RESPONSES, &fields)?;
        let request = references::resolved(&api, &caller, fields.parse()?).await?;
        let is_background = request.background;
        if is_background && request.stream {
            let message = "a background response is not streamed: read it by its id";
            return Err(ApiError::field(Code::ValidationError, "stream", message));
        }
        let earlier = earlier(&api, &caller, &request).await?;
        let about = Stored::of(&request);
        let chat = Chat::new(request::chat(request, earlier)?)?.named(request::NAMES);
        let kept = match (is_background, about.is_kept()) {
            (true, true) => Kept::Background(about.text()),
            (true, false) => {
                let message = "a background response must be stored";
                return Err(ApiError::field(Code::ValidationError, "store", message));
            }
            (false, true) => Kept::Response(about.text()),
            (false, false) => Kept::No,
        };
        let chat::Answer { replies, slot, replayed, served } =
            chat::start(&api, caller, &chat, key, kept).await?;
        let Some(reply) = replies.into_iter().next() else { return Err(chat::choose::absent()) };
        if chat.stream {
            let frames = stream::frames(reply, events::Events::new(about), slot);
            return Ok((Replayed(replayed), served, jobs::stream::event_stream(frames)).into_response());
        }
        let response = if is_background {
            let state = ResponseStatus::Queued;
            reply::response(reply.head(), &about, state, &items::Written::default())
        } else {
            reply::whole(reply, &about).await?
        };
        Ok((Replayed(replayed), served, Json(response)).into_response())
    };
    answered.await.map_err(ApiError::in_openai_form)
}

/// Counts the tokens of a request, with those of the conversation that it continues.
pub(crate) async fn input_tokens(
    State(api): State<Arc<Api>>,
    request: Result<body::Keyed, ApiError>,
) -> Result<Json<InputTokens>, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        let request = references::resolved(&api, &caller, fields.parse()?).await?;
        let earlier = earlier(&api, &caller, &request).await?;
        let chat = Chat::new(request::chat(request, earlier)?)?.named(request::NAMES);
        let input_tokens = chat::count::count(&api, caller, &chat).await?;
        Ok(Json(InputTokens { object: "response.input_tokens".to_owned(), input_tokens }))
    };
    answered.await.map_err(ApiError::in_openai_form)
}

/// The conversation that a request continues.
async fn earlier(
    api: &Arc<Api>,
    caller: &Caller,
    request: &ResponseRequest,
) -> Result<Vec<ChatMessage>, ApiError> {
    match &request.previous_response_id {
        None => Ok(Vec::new()),
        Some(id) => stored::conversation(api, caller, id).await,
    }
}

/// A stored response.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    Segment(id): Segment,
) -> Result<Json<Response>, ApiError> {
    stored::get(&api, &caller, &id).await.map(Json).map_err(ApiError::in_openai_form)
}

/// A page of the items that a stored response was made of.
pub(crate) async fn input_items(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    Segment(id): Segment,
    OpenAiForm(query): OpenAiForm<Query>,
) -> Result<Json<InputItems>, ApiError> {
    let listed = async {
        let page = Page::read(&query)?;
        let items = stored::input_items(&api, &caller, &id).await?;
        page.of(items).map(Json)
    };
    listed.await.map_err(ApiError::in_openai_form)
}

/// Cancels a response that is being written.
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    Segment(id): Segment,
) -> Result<Json<Response>, ApiError> {
    let cancelled = async {
        let job = stored::job_of(&api, &caller, &id).await?;
        let cancel = jobs::cancel::cancel(State(api.clone()), caller, Segment(job.to_string()));
        match cancel.await {
            Ok(Json(Data { data: CancelledJob { .. } })) => {}
            // It is as it is.
            Err(error) if error.code() == Code::JobAlreadyFinal => {}
            Err(error) => return Err(error),
        }
        stored::get(&api, &caller, &id).await
    };
    cancelled.await.map(Json).map_err(ApiError::in_openai_form)
}

/// Deletes a stored response with all data of its job.
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    Segment(id): Segment,
) -> Result<Json<DeletedResponse>, ApiError> {
    let deleted = async {
        let job = stored::job_of(&api, &caller, &id).await?;
        let Json(_) = jobs::delete_data::delete_data(State(api), caller, Segment(job.to_string())).await?;
        Ok(Json(DeletedResponse { id, object: "response".to_owned(), deleted: true }))
    };
    deleted.await.map_err(ApiError::in_openai_form)
}

fn id_of(job: JobId) -> String {
    format!("{PREFIX}{job}")
}
