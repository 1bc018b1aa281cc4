//! `POST /chat/completions`: a chat request is a job of a language model, waited for.

pub(super) mod reply;
mod request;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use island_protocol::{chat::ChatCompletion, problem::Code};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    Api, ApiError,
    auth::Caller,
    body,
    jobs::{
        stream::event_stream,
        submit::{Taken, accept},
    },
    once::{Once, Replayed},
};
use crate::{
    catalogue::{Cargo, choice},
    job::Job,
    owner::{
        live::{Command, Live},
        log::Log,
    },
    placement,
    storage::{idempotency::CHAT, job as jobs},
};
use request::Chat;

/// Completes a chat, whole or streamed.
pub(super) async fn complete(
    State(api): State<Arc<Api>>,
    caller: Result<Caller, ApiError>,
    headers: HeaderMap,
    body: Result<body::Json, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let caller = caller?;
        let body::Json(fields) = body?;
        let once = Once::read(&headers, CHAT, &fields)?;
        answer(&api, caller, Chat::parse(fields)?, once).await
    };
    answered.await.map_err(ApiError::in_chat)
}

async fn answer(
    api: &Arc<Api>,
    caller: Caller,
    chat: Chat,
    once: Option<Once>,
) -> Result<Response, ApiError> {
    let cargo = choose(api, &chat.model)
        .ok_or_else(|| ApiError::new(Code::NoIslandAvailable, "the catalogue has no language model"))?;
    let input = chat.input_for(cargo);
    let slot = if chat.stream { Some(api.streams.take(caller.account).await?) } else { None };
    let (live, job, replayed) = match accept(api, caller, cargo, input, 0, once.as_ref()).await? {
        Taken::New(live, job) => (live, job, false),
        Taken::Before(job) => (replay(api, &job).await?, job, true),
    };
    let guard = CancelOnDrop { live: live.clone(), armed: true };
    let created = job.created_at.unix_ms() / 1000;
    let mut reply = reply::Reply::new(live, guard, job.workload.to_string(), created);
    reply.begin(api.rules.chat_wait).await?;
    if once.is_some() {
        // Who comes back with the key wants the answer, not the end of the job.
        reply.outlive_client();
    }
    if chat.stream {
        let stream = event_stream(reply.frames(chat.include_usage, slot));
        return Ok((Replayed(replayed), stream).into_response());
    }
    let whole: ChatCompletion = reply.whole().await?;
    Ok((Replayed(replayed), Json(whole)).into_response())
}

/// A job that the same request made before, as if it ended now.
async fn replay(api: &Api, job: &Job) -> Result<Arc<Live>, ApiError> {
    let events = jobs::events(api.owner.context().store.reader(), job.id).await?;
    let events = events.ok_or_else(|| {
        ApiError::new(Code::IdempotencyInProgress, "the first request with this Idempotency-Key still runs")
    })?;
    let (commands, _) = mpsc::unbounded_channel();
    Ok(Arc::new(Live::new(job, Log::new(events), commands)))
}

/// The Cargo for a model name, by what the Islands can serve now.
fn choose<'a>(api: &'a Api, model: &str) -> Option<&'a Cargo> {
    let context = api.owner.context();
    let mut usable = choice::Usable::new();
    let now = Instant::now();
    for cargo in context.catalogue.iter().filter(|cargo| cargo.is_chat()) {
        let near = context.fleet.survey(now, |island| placement::usable(&cargo.spec, island).ok());
        if let Some(nearest) = near.into_iter().min() {
            usable.insert(cargo.entry.slug.clone(), nearest);
        }
    }
    choice::choose(&context.catalogue, model, &usable)
}

/// Cancels the job of a client that went away.
#[derive(Debug)]
pub(super) struct CancelOnDrop {
    pub(super) live: Arc<Live>,
    pub(super) armed: bool,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.armed {
            // A job that has ended does not hear this.
            let (answer, _) = oneshot::channel();
            self.live.send(Command::Cancel { answer });
        }
    }
}
