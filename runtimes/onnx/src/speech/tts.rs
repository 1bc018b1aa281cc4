//! Text to speech: which kind of voice a repository holds.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`vits`] | VITS, which makes the samples of a text in one go |
//! | [`speecht5`] | SpeechT5, which writes a spectrogram step by step and has a vocoder make samples of it |
//! | [`speaker`] | the numbers that tell SpeechT5 who speaks |
//! | [`characters`], [`numbers`] | what SpeechT5 reads: characters, and numbers as words |

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::parse_input,
    media::sound,
    pipeline::Pipeline,
    text::tokens,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::task::Loader;

pub mod characters;
pub mod numbers;
pub mod speaker;
pub mod speecht5;
pub mod vits;

/// Most characters that are spoken in one job.
const MAX_CHARACTERS: usize = 5000;

/// What to say, and as whom.
#[derive(Debug, Deserialize)]
struct Asked {
    text: String,
    speaker_embeddings: Option<Vec<f32>>,
}

/// Loads a voice.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let kind = loader.repository.config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "vits" => Ok(Box::new(vits::Vits::load(loader)?)),
        "speecht5" => Ok(Box::new(speecht5::SpeechT5::load(loader)?)),
        _ => Err(invalid_model(format!("models of the kind {kind:?} are not known to speak"))),
    }
}

/// An input whose text can be spoken at once.
fn asked(input: &Value) -> Result<Asked, EngineError> {
    let asked: Asked = parse_input(input)?;
    tokens::check(&asked.text, "text")?;
    let count = asked.text.chars().count();
    if count > MAX_CHARACTERS {
        return Err(invalid_input(format!(
            "text has {count} characters, {MAX_CHARACTERS} are spoken at once"
        )));
    }
    Ok(asked)
}

/// Samples as the output schema has them.
fn spoken(samples: &[f32], rate: u32) -> Value {
    let seconds = samples.len() as f64 / f64::from(rate);
    json!({
        "audio": sound::wav(samples, rate),
        "sample_rate": rate,
        "seconds": (seconds * 1000.0).round() / 1000.0,
    })
}
