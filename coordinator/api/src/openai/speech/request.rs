//! From a request to speak to the input of its jobs.

use island_protocol_api::{preferences::Preferences, problem::Code, speech::SpeechRequest};
use serde_json::{Map, Value};

use super::encoder::Format;
use crate::ApiError;
use island_coordinator_domain::catalogue::Cargo;

/// Names of OpenAI's voices.
const OPENAI_VOICES: [&str; 13] = [
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer",
    "verse",
];
/// The name of a Cargo's usual voice.
const USUAL_VOICE: &str = "default";

/// A request that was read.
#[derive(Debug)]
pub(super) struct Speech {
    pub model: String,
    pub text: String,
    pub format: Format,
    /// Whether the answer is a stream of events.
    pub is_sse: bool,
    voice: Option<String>,
    speed: Option<f64>,
    language: Option<String>,
    pub preferences: Preferences,
}

impl Speech {
    /// Reads a request.
    pub(super) fn new(request: SpeechRequest) -> Self {
        let voice = request.voice.as_ref().map(|voice| voice.get("id").unwrap_or(voice));
        Self {
            voice: voice.and_then(Value::as_str).filter(|voice| !voice.is_empty()).map(str::to_owned),
            model: request.model,
            text: request.input,
            format: Format::named(request.response_format.as_deref()),
            is_sse: request.stream_format.as_deref() == Some("sse"),
            speed: request.speed,
            language: request.language.filter(|language| !language.is_empty()),
            preferences: request.preferences.unwrap_or_default(),
        }
    }

    /// The input of each job of this Cargo, apart from the text.
    pub(super) fn input_for(&self, cargo: &Cargo) -> Result<Map<String, Value>, ApiError> {
        let mut input = Map::new();
        if let Some(voice) = self.voice_of(cargo)? {
            input.insert("voice".to_owned(), voice.into());
        }
        let options = [
            ("speed", self.speed.filter(|speed| (speed - 1.0).abs() > f64::EPSILON).map(Value::from)),
            ("language", self.language.clone().map(Value::from)),
        ];
        for (name, value) in options {
            let Some(value) = value else { continue };
            if !cargo.takes(name) {
                let message = format!("the Cargo {} takes no {name}", cargo.entry.slug);
                return Err(ApiError::field(Code::InvalidInput, name, message));
            }
            input.insert(name.to_owned(), value);
        }
        Ok(input)
    }

    /// The Cargo's voice that is meant; `None` for its usual one.
    fn voice_of(&self, cargo: &Cargo) -> Result<Option<String>, ApiError> {
        let Some(wanted) = self.voice.as_deref().filter(|voice| *voice != USUAL_VOICE) else {
            return Ok(None);
        };
        let known = cargo.input_schema.pointer("/properties/voice/enum").and_then(Value::as_array);
        let known: Vec<&str> = known.into_iter().flatten().filter_map(Value::as_str).collect();
        if known.contains(&wanted) {
            return Ok(Some(wanted.to_owned()));
        }
        match OPENAI_VOICES.iter().position(|voice| *voice == wanted) {
            Some(_) if known.is_empty() => Ok(None),
            Some(position) => Ok(Some(known[position % known.len()].to_owned())),
            None => {
                let voices = if known.is_empty() { USUAL_VOICE.to_owned() } else { known.join(", ") };
                let message =
                    format!("the Cargo {} has no voice {wanted:?}; its voices: {voices}", cargo.entry.slug);
                Err(ApiError::field(Code::InvalidInput, "voice", message))
            }
        }
    }
}
