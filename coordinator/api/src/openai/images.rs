//! `POST /images/generations` and `POST /images/edits`: run a job of a Cargo that makes images and wait for it.

mod reply;
mod request;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use island_protocol::event::JobEvent;
use island_protocol_api::problem::Code;

use crate::{
    Api, ApiError,
    http::{
        auth::Caller,
        body, form,
        idempotency::{IdempotencyKey, Replayed},
    },
    native::{
        availability::Allowed,
        jobs::{
            follow::{Follower, follow},
            stream::{ERROR_DELAY, event_stream},
            submit::{Request, accept},
        },
    },
    openai::{chat::reply::problem, one_job::Ability},
};
use island_coordinator_domain::catalogue::{Cargo, choice::is_image_model};
use island_coordinator_storage::idempotency::IMAGES;
use reply::Reply;
use request::{Generation, Kind};

/// Fields of a form that are numbers or truth values.
const NUMBERS: [&str; 7] =
    ["n", "stream", "partial_images", "seed", "num_inference_steps", "guidance_scale", "strength"];

pub(crate) const EDITS_IMAGES: Ability =
    Ability { does: "changes images", is_of: |cargo| cargo.edits_images(true) };
pub(crate) const MAKES_IMAGES: Ability = Ability { does: "makes images", is_of: Cargo::makes_images };

/// Makes images, answered at once or streamed.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        let key = IdempotencyKey::read(&headers, IMAGES, &fields)?;
        answer(&api, caller, Generation::new(fields.parse()?), key).await
    };
    answered.await.map_err(ApiError::in_openai_form)
}

/// Makes images from a given one, answered at once or streamed.
pub(crate) async fn edit(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<form::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let form::Keyed { caller, fields } = request?;
        let mut fields = fields.preferring()?;
        fields.read_scalars(&NUMBERS);
        let key = IdempotencyKey::read(&headers, IMAGES, &fields)?;
        answer(&api, caller, Generation::edit(fields.parse()?)?, key).await
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(
    api: &Arc<Api>,
    caller: Caller,
    request: Generation,
    key: Option<IdempotencyKey>,
) -> Result<Response, ApiError> {
    let allowed = Allowed::by_preferences(api, caller.account, &request.preferences);
    let cargo = choose(api, &request, &allowed)?;
    let input = request.input_for(&cargo)?;
    let candidates = allowed.check(api, &caller, &cargo, key.as_ref()).await?;
    let slot = if request.stream { Some(api.streams.take(caller.account).await?) } else { None };
    let is_keyed = key.is_some();
    let preferences = request.preferences.clone();
    let job = Request { preferences, candidates, ..Request::waiting(input, key) };
    let accepted = accept(api, caller, &cargo, job).await?;
    let (followed, job, replayed) = follow(api, accepted).await?;
    let mut follower = Follower::new(followed);
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
    let reply = Reply::new(follower, &job, &request);
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

/// The Cargo with the requested name. For OpenAI's names: the nearest of the operators' that an Island can serve, then the smallest;
/// for a part of an image those first that were trained for it.
fn choose(api: &Api, request: &Generation, allowed: &Allowed) -> Result<Arc<Cargo>, ApiError> {
    let ability = match request.kind {
        Kind::Generation => MAKES_IMAGES,
        Kind::Edit => EDITS_IMAGES,
    };
    let catalogue = api.catalogue();
    if let Some(model) = request.model.as_deref().filter(|model| !is_image_model(model)) {
        let cargo = ability.named(&catalogue, model)?;
        if !request.suits(&cargo) {
            let message = format!("the model {model} needs a mask");
            return Err(ApiError::field(Code::ValidationError, "mask", message));
        }
        return Ok(cargo);
    }
    // `None` sorts first, so compare its presence first.
    let nearest = catalogue.own().filter(|cargo| request.suits(cargo)).min_by_key(|cargo| {
        let near = allowed.nearest(cargo);
        let is_trained = !request.has_mask() || !cargo.edits_images(false);
        (near.is_none(), !is_trained, near, cargo.entry.required_ram_mb, cargo.entry.slug.as_str())
    });
    nearest.cloned().ok_or_else(|| ability.absent())
}
