//! `POST /chat/completions`: a chat request is a job of a language model, waited for.

mod reply;
mod request;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use island_protocol::{chat::ChatCompletion, problem::Code};
use tokio::{sync::oneshot, time::Instant};

use super::{
    Api, ApiError,
    auth::Caller,
    body,
    jobs::{stream::event_stream, submit::accept},
};
use crate::{
    catalogue::{Cargo, choice},
    owner::live::{Command, Live},
    placement,
};
use request::Chat;

/// Completes a chat, whole or streamed.
pub(super) async fn complete(
    State(api): State<Arc<Api>>,
    caller: Result<Caller, ApiError>,
    body: Result<body::Json, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let caller = caller?;
        let body::Json(fields) = body?;
        answer(&api, caller, Chat::parse(fields)?).await
    };
    answered.await.map_err(ApiError::in_chat)
}

async fn answer(api: &Arc<Api>, caller: Caller, chat: Chat) -> Result<Response, ApiError> {
    let cargo = choose(api, &chat.model)
        .ok_or_else(|| ApiError::new(Code::NoIslandAvailable, "the catalogue has no language model"))?;
    let input = chat.input_for(cargo);
    let slot = chat.stream.then(|| api.streams.take(caller.account)).transpose()?;
    let created = api.owner.context().clock.now().unix_ms() / 1000;
    let (live, job) = accept(api, caller, cargo, input, 0).await?;
    let guard = CancelOnDrop(live.clone());
    let mut reply = reply::Reply::new(live, guard, job.workload.to_string(), created);
    reply.begin(api.rules.chat_wait).await?;
    if chat.stream {
        return Ok(event_stream(reply.frames(chat.include_usage, slot)));
    }
    let whole: ChatCompletion = reply.whole().await?;
    Ok(Json(whole).into_response())
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
struct CancelOnDrop(Arc<Live>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // A job that has ended does not hear this.
        let (answer, _) = oneshot::channel();
        self.0.send(Command::Cancel { answer });
    }
}
