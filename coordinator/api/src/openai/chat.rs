//! `POST /chat/completions` and `POST /completions`: run jobs of a language model and wait for them.

pub(crate) mod choose;
mod completion;
pub(crate) mod count;
pub(crate) mod parts;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod served;
pub(crate) mod stream;
mod text;

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use futures::future::try_join_all;
use island_protocol::ids::JobId;
use island_protocol_api::{chat::ChatRequest, completions::CompletionRequest, problem::Code};

use crate::{
    Api, ApiError,
    http::{
        auth::Caller,
        body,
        idempotency::{IdempotencyKey, Replayed},
        slots::Slot,
    },
    native::{
        availability::Allowed,
        jobs::{
            follow::follow,
            stream::{ERROR_DELAY, event_stream},
            submit::{OnDisconnect, Request, accept},
        },
    },
};
use island_coordinator_domain::{catalogue::Cargo, fleet::Candidates};
use island_coordinator_storage::{
    commit,
    idempotency::{self, CHAT, COMPLETIONS},
};
use reply::Reply;
use request::Chat;
use served::Served;

/// Completes a chat, whole or streamed.
pub(crate) async fn complete(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
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
pub(crate) async fn continue_text(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
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
pub(crate) struct Answer {
    pub replies: Vec<Reply>,
    /// Held while they are streamed.
    pub slot: Option<Slot>,
    /// Whether an earlier request began them.
    pub replayed: bool,
    /// Cargo that serves the first reply.
    pub served: Served,
}

/// Whether the job of a chat is kept as a response.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    No,
    /// With this part of its request.
    Response(String),
    /// With this part of its request. It runs to its end, and nobody waits for it.
    Background(String),
}

/// Runs the jobs of a chat, with the first of its models that an Island can serve. Waits for the first part of each for a while, so that
/// an early failure is answered with its HTTP status.
pub(crate) async fn start(
    api: &Arc<Api>,
    caller: Caller,
    chat: &Chat,
    key: Option<IdempotencyKey>,
    kept: Kept,
) -> Result<Answer, ApiError> {
    let mut slot = None;
    let mut refusal = None;
    let mut begun = Begun::default();
    let mut allowed = Allowed::by_preferences(api, caller.account, &chat.preferences);
    let cargos = choose::candidates(api, &allowed, chat)?;
    for cargo in cargos {
        let started = async {
            chat.check(&cargo)?;
            begun.give_up(api, key.as_ref()).await?;
            let candidates = allowed.check(api, &caller, &cargo, key.as_ref()).await?;
            if chat.stream && slot.is_none() {
                slot = Some(api.streams.take(caller.account).await?);
            }
            let choice = Choice { cargo: cargo.clone(), candidates };
            begin(api, caller, chat, choice, key.as_ref(), &kept, &mut begun).await
        };
        match started.await {
            Ok(replies) => {
                let served = Served::of(api, caller.account, chat, &cargo, &replies[0]);
                return Ok(Answer { replies, slot, replayed: begun.is_replayed, served });
            }
            // Another model may be served, or cost less.
            Err(error) if begun.may_go_on(&error) => {
                refusal.get_or_insert(error);
                // Time may have passed.
                allowed = Allowed::by_preferences(api, caller.account, &chat.preferences);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or_else(choose::absent))
}

/// A model that an Island can serve.
#[derive(Debug)]
struct Choice {
    cargo: Arc<Cargo>,
    /// The Islands that can, if one is known.
    candidates: Option<Candidates>,
}

/// The jobs of the model that was tried last.
#[derive(Debug, Default)]
struct Begun {
    jobs: Vec<JobId>,
    /// Whether an earlier request with the same key created one of them.
    is_replayed: bool,
}

impl Begun {
    /// Whether another model may serve the request after this error. A repeated request has the end of the first one, whatever it is.
    fn may_go_on(&self, error: &ApiError) -> bool {
        !self.is_replayed && matches!(error.code(), Code::NoIslandAvailable | Code::ValidationError)
    }

    /// Cancels the jobs and frees their idempotency key for those of the next model.
    async fn give_up(&mut self, api: &Api, key: Option<&IdempotencyKey>) -> Result<(), ApiError> {
        let jobs = std::mem::take(&mut self.jobs);
        for job in &jobs {
            api.execution.request_cancel(*job);
        }
        let Some(key) = key.filter(|_| !jobs.is_empty()) else { return Ok(()) };
        let mut tx = api.store.begin().await?;
        for job in &jobs {
            idempotency::remove(&mut tx, key.endpoint(), &job.to_string()).await?;
        }
        commit(tx).await?;
        Ok(())
    }
}

/// Begins the replies of one model.
async fn begin(
    api: &Arc<Api>,
    caller: Caller,
    chat: &Chat,
    Choice { cargo, candidates }: Choice,
    key: Option<&IdempotencyKey>,
    kept: &Kept,
    begun: &mut Begun,
) -> Result<Vec<Reply>, ApiError> {
    let mut replies = Vec::new();
    for index in 0..chat.replies {
        let input = chat.input_for(&cargo, index);
        let key = key.map(|key| key.of_part(index));
        let mut request = Request {
            preferences: chat.preferences.clone(),
            candidates: candidates.clone(),
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
        let accepted = accept(api, caller, &cargo, request).await?;
        let (followed, job, replayed) = follow(api, accepted).await?;
        begun.is_replayed |= replayed;
        if !replayed {
            begun.jobs.push(job.id);
        }
        replies.push(Reply::new(followed, &job, chat.shows_reasoning));
    }
    if matches!(kept, Kept::Background(_)) {
        return Ok(replies);
    }
    let delay = if chat.stream { ERROR_DELAY } else { Duration::MAX };
    let is_keyed = key.is_some();
    let begins = replies.iter_mut().map(|reply| async move {
        reply.begin(api.rules.chat_wait, delay).await?;
        if is_keyed {
            // A client with an idempotency key may return for the answer, so the job runs to its end, even if others have not begun.
            reply.outlive_client();
        }
        Ok::<_, ApiError>(())
    });
    try_join_all(begins).await?;
    Ok(replies)
}
