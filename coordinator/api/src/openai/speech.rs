//! `POST /audio/speech`: runs jobs of a Cargo that speaks, and encodes their sound while they run.
//!
//! A long text is spoken in pieces, each by a job of its own: the sound of the first is sent while the others are computed, and no model has
//! to take a whole page. The first piece is short, so that the first sound comes soon.

mod encoder;
mod pieces;
mod request;

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream, stream::BoxStream};
use island_protocol_api::{
    preferences::Preferences,
    problem::Code,
    speech::{SpeechEvent, SpeechUsage},
};
use serde_json::{Map, Value};

use crate::{
    Api, ApiError,
    http::{auth::Caller, body},
    native::{availability::Allowed, jobs::stream::event_stream},
    openai::one_job::{self, Ability, Answered},
};
use encoder::{Encoder, Sound};
use island_coordinator_domain::{
    catalogue::{Cargo, choice},
    sse,
};
use request::Speech;

/// Jobs of a request that run at one time: the next piece is ready when the one before was played.
const AT_ONCE: usize = 2;

pub(crate) const SPEAKS: Ability =
    Ability { does: "speaks", is_of: |cargo| cargo.task() == Some("text-to-speech") };

/// Speaks a text.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    request: Result<body::Keyed, ApiError>,
) -> Result<Response, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        answer(&api, caller, Speech::new(fields.parse()?)).await
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(api: &Arc<Api>, caller: Caller, speech: Speech) -> Result<Response, ApiError> {
    let cargo =
        choose(api, &speech.model, &Allowed::by_preferences(api, caller.account, &speech.preferences))?;
    let input = speech.input_for(&cargo)?;
    let pieces = pieces::of(&speech.text);
    let is_long = pieces.len() > 1;
    let (format, is_sse) = (speech.format, speech.is_sse);
    let mut sounds = spoken(Arc::clone(api), caller, cargo, input, speech.preferences, pieces);
    // An error of the first piece is answered with its HTTP status.
    let first = match sounds.next().await {
        Some(first) => first?,
        None => {
            return Err(ApiError::field(Code::ValidationError, "input", "input must contain text to speak"));
        }
    };
    let encoder = Encoder::new(format, first.rate, is_long).map_err(ApiError::internal)?;
    let parts = encoded(encoder, stream::once(async { Ok(first) }).chain(sounds).boxed());
    if is_sse {
        return Ok(event_stream(events(parts).map(Ok)));
    }
    let mut response =
        Response::new(Body::from_stream(parts.map(|part| part.map_err(|error| error.json().to_string()))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    Ok(response)
}

/// The Cargo with this name. For OpenAI's names: the nearest of the operators' that an Island can serve, those with several voices first.
fn choose(api: &Api, model: &str, allowed: &Allowed) -> Result<Arc<Cargo>, ApiError> {
    let catalogue = api.catalogue();
    if !choice::is_voice_model(model) {
        return SPEAKS.named(&catalogue, model);
    }
    // `None` sorts first, so compare its presence first.
    let nearest = catalogue.own().filter(|cargo| (SPEAKS.is_of)(cargo)).min_by_key(|cargo| {
        let near = allowed.nearest(cargo);
        (near.is_none(), !cargo.takes("voice"), near, cargo.entry.required_ram_mb, cargo.entry.slug.as_str())
    });
    nearest.cloned().ok_or_else(|| SPEAKS.absent())
}

/// The sound of each piece, in order. Dropped, it cancels the jobs that run.
fn spoken(
    api: Arc<Api>,
    caller: Caller,
    cargo: Arc<Cargo>,
    options: Map<String, Value>,
    preferences: Preferences,
    pieces: Vec<String>,
) -> BoxStream<'static, Result<Sound, ApiError>> {
    let one = move |piece: String| {
        let (api, cargo) = (Arc::clone(&api), Arc::clone(&cargo));
        let (mut input, preferences) = (options.clone(), preferences.clone());
        input.insert("text".to_owned(), piece.into());
        async move {
            let Answered { output, .. } =
                one_job::run(&api, caller, &cargo, input, None, preferences).await?;
            Sound::of(&output).map_err(|error| ApiError::new(Code::JobFailed, error.to_string()))
        }
    };
    stream::iter(pieces).map(one).buffered(AT_ONCE).boxed()
}

/// The bytes of a file that contains all sounds. An error is the last item.
fn encoded(
    encoder: Encoder,
    sounds: BoxStream<'static, Result<Sound, ApiError>>,
) -> impl Stream<Item = Result<Bytes, ApiError>> + Send + 'static {
    stream::unfold(Some((encoder, sounds)), |state| async {
        let (mut encoder, mut sounds) = state?;
        let sound = match sounds.next().await {
            Some(Ok(sound)) => Some(sound),
            Some(Err(error)) => return Some((Err(error), None)),
            None => None,
        };
        // Encoding takes milliseconds for each second of sound, too long for a thread that serves other requests.
        let work = move || match sound {
            Some(sound) => encoder.push(&sound).map(|bytes| (bytes, Some(encoder))),
            None => encoder.finish().map(|bytes| (bytes, None)),
        };
        let (bytes, encoder) = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(encoded)) => encoded,
            Ok(Err(error)) => return Some((Err(ApiError::internal(error)), None)),
            Err(error) => return Some((Err(ApiError::internal(error)), None)),
        };
        Some((Ok(Bytes::from(bytes)), encoder.map(|encoder| (encoder, sounds))))
    })
    .filter(|part| std::future::ready(!part.as_ref().is_ok_and(Bytes::is_empty)))
}

/// The same as Server-Sent Events.
fn events(
    parts: impl Stream<Item = Result<Bytes, ApiError>> + Send + 'static,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let frames = parts.map(|part| match part {
        Ok(bytes) => (sse::data_frame(&SpeechEvent::Delta { audio: STANDARD.encode(bytes) }), true),
        Err(error) => (sse::data_frame(&error.in_openai_form().json()), false),
    });
    let done = sse::data_frame(&SpeechEvent::Done { usage: SpeechUsage::default() });
    let all = frames.chain(stream::once(std::future::ready((done, true))));
    // Nothing follows an error.
    let mut failed = false;
    all.take_while(move |(_, is_sound)| {
        let goes_on = !failed;
        failed |= !is_sound;
        std::future::ready(goes_on)
    })
    .map(|(frame, _)| frame)
}
