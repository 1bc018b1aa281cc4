//! `POST /audio/transcriptions` and `POST /audio/translations`: run a job of a Cargo that transcribes speech and wait for
//! it.

mod captions;
mod reply;
mod request;

use std::sync::Arc;

use axum::{extract::State, response::Response};

use crate::{
    Api, ApiError,
    http::{auth::Caller, form},
    native::availability::Allowed,
    openai::one_job::{self, Ability, Answered},
};
use island_coordinator_domain::catalogue::{Cargo, choice::speech};
pub(crate) use reply::AudioAnswer;
use reply::Transcript;
use request::{Sound, Task};

pub(crate) const TRANSCRIBES: Ability = Ability { does: "transcribes speech", is_of: Cargo::transcribes };

/// The text of a sound file, in its language.
pub(crate) async fn transcribe(
    State(api): State<Arc<Api>>,
    request: Result<form::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    create(&api, request, Task::Transcribe).await
}

/// The text of a sound file, in English.
pub(crate) async fn translate(
    State(api): State<Arc<Api>>,
    request: Result<form::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    create(&api, request, Task::Translate).await
}

async fn create(
    api: &Arc<Api>,
    request: Result<form::Keyed, ApiError>,
    task: Task,
) -> Result<Response, ApiError> {
    let answered = async {
        let form::Keyed { caller, fields } = request?;
        let mut fields = fields.preferring()?;
        fields.read_scalars(&["temperature", "stream"]);
        answer(api, caller, Sound::new(fields.parse()?, task)?).await
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(api: &Arc<Api>, caller: Caller, sound: Sound) -> Result<Response, ApiError> {
    let preferences = sound.preferences.clone();
    let cargo = choose(api, &sound.model, &Allowed::by_preferences(api, caller.account, &preferences))?;
    let (input, form) = sound.input_for(&cargo)?;
    let Answered { output, .. } = one_job::run(api, caller, &cargo, input, None, preferences).await?;
    Transcript::of(&output)?.answer(form)
}

/// The Cargo with this name, or the one that a name of OpenAI means now.
fn choose(api: &Api, model: &str, allowed: &Allowed) -> Result<Arc<Cargo>, ApiError> {
    let catalogue = api.catalogue();
    let Some(size) = speech::size_of(model) else { return TRANSCRIBES.named(&catalogue, model) };
    let chosen = speech::choose(catalogue.own(), size, |cargo| allowed.nearest(cargo));
    chosen.cloned().ok_or_else(|| TRANSCRIBES.absent())
}
