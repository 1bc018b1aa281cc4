//! `POST /images/generations`: runs a job of a Cargo that makes images and waits for it.

mod reply;
mod request;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use island_protocol::{event::JobEvent, preferences::Preferences};
use tokio::time::Instant;

use super::{
    Api, ApiError,
    auth::Caller,
    availability, body,
    chat::reply::problem,
    idempotency::{IdempotencyKey, Replayed},
    jobs::{
        follow::{Follower, follow},
        stream::{ERROR_DELAY, event_stream},
        submit::{Request, accept},
    },
    one_job::Ability,
};
use crate::{
    catalogue::{Cargo, choice::IMAGE_MODELS},
    storage::idempotency::IMAGES,
};
use reply::Reply;
use request::Generation;

const MAKES_IMAGES: Ability = Ability { does: "makes images", is_of: Cargo::makes_images };

/// Makes images, answered at once or streamed.
pub(super) async fn create(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let key = IdempotencyKey::read(&headers, IMAGES, &fields)?;
        answer(&api, caller, Generation::new(fields.parse()?), key).await
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(
    api: &Arc<Api>,
    caller: Caller,
    request: Generation,
    key: Option<IdempotencyKey>,
) -> Result<Response, ApiError> {
    let cargo = choose(api, request.model.as_deref())?;
    let input = request.input_for(&cargo)?;
    availability::check(api, &caller, &cargo, &Preferences::default(), key.as_ref()).await?;
    let slot = if request.stream { Some(api.streams.take(caller.account).await?) } else { None };
    let is_keyed = key.is_some();
    let accepted = accept(api, caller, &cargo, Request::waiting(input, key)).await?;
    let (guard, job, replayed) = follow(api, accepted).await?;
    let mut follower = Follower::new(guard);
    follower.begin(api.rules.chat_wait, job.workload.as_str()).await?;
    if is_keyed {
        // A client with an idempotency key may return for the answer, so the job runs to its end.
        follower.outlive_client();
    }
    if request.stream {
        follower.settle(ERROR_DELAY, is_under_way).await;
        if let Some(JobEvent::Error { error, code }) = follower.first(is_under_way) {
            return Err(problem(code, error));
        }
    }
    let reply = Reply::new(follower, &job, request.as_url);
    if request.stream {
        return Ok((Replayed(replayed), event_stream(reply.frames(slot))).into_response());
    }
    Ok((Replayed(replayed), Json(reply.whole().await?)).into_response())
}

/// Whether the engine has begun to compute, or never will.
fn is_under_way(event: &JobEvent) -> bool {
    match event {
        JobEvent::Progress { phase, .. } => !matches!(phase.as_deref(), Some("fetch" | "load")),
        JobEvent::Image(_) | JobEvent::Done { .. } | JobEvent::Error { .. } => true,
        JobEvent::Token { .. } | JobEvent::Status { .. } => false,
    }
}

/// The Cargo with this name. For OpenAI's names: the nearest of the operators' that an Island can serve, then the smallest.
fn choose(api: &Api, model: Option<&str>) -> Result<Arc<Cargo>, ApiError> {
    let context = api.execution.context();
    let catalogue = context.catalogue();
    if let Some(model) = model.filter(|model| !IMAGE_MODELS.contains(model)) {
        return MAKES_IMAGES.named(&catalogue, model);
    }
    let islands = context.fleet.snapshot(Instant::now());
    // `None` sorts first, so compare its presence first.
    let nearest = catalogue.own().filter(|cargo| cargo.makes_images()).min_by_key(|cargo| {
        let near = islands.nearest(&cargo.spec);
        (near.is_none(), near, cargo.entry.required_ram_mb, cargo.entry.slug.as_str())
    });
    nearest.cloned().ok_or_else(|| MAKES_IMAGES.absent())
}
