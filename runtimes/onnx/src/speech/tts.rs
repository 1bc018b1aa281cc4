//! Text to speech: the kind of model that a repository holds.
//!
//! | module | content |
//! | --- | --- |
//! | [`vits`], [`letters`] | VITS, which computes all samples of a text at once, and its tokenizer |
//! | [`supertonic`] | Supertonic, which removes noise from the sound of a text in steps |
//! | [`speecht5`] | SpeechT5, which generates a spectrogram step by step for a vocoder |
//! | [`speaker`] | speaker embeddings of SpeechT5 |
//! | [`characters`], [`numbers`] | the tokenizer of SpeechT5: characters, and numbers as words |

use island_runtimes_kit::{
    error::{EngineError, invalid_input},
    job::parse_input,
    keys::unsupported,
    media::sound,
    pipeline::Pipeline,
    text::tokens,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::task::Loader;

pub mod characters;
pub mod letters;
pub mod numbers;
pub mod speaker;
pub mod speecht5;
pub mod supertonic;
pub mod vits;

/// Maximum number of characters of one job.
const MAX_CHARACTERS: usize = 5000;

/// The text, and the speaker.
#[derive(Debug, Deserialize)]
struct Input {
    text: String,
    speaker_embeddings: Option<Vec<f32>>,
}

/// Loads a text-to-speech model.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    if supertonic::is_here(&loader.repository) {
        return Ok(Box::new(supertonic::Supertonic::load(loader)?));
    }
    let kind = loader.repository.config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "vits" => Ok(Box::new(vits::Vits::load(loader)?)),
        "speecht5" => Ok(Box::new(speecht5::SpeechT5::load(loader)?)),
        _ => {
            let refused = unsupported("config.json", "model_type", &kind.into());
            Err(refused.followed_by("it does not generate speech"))
        }
    }
}

/// Parses an input, and checks the length of its text.
fn parse(input: &Value) -> Result<Input, EngineError> {
    let input: Input = parse_input(input)?;
    check(&input.text)?;
    Ok(input)
}

fn check(text: &str) -> Result<(), EngineError> {
    tokens::check(text, "text")?;
    let count = text.chars().count();
    if count > MAX_CHARACTERS {
        return Err(invalid_input(format!(
            "text has {count} characters, at most {MAX_CHARACTERS} are allowed"
        )));
    }
    Ok(())
}

/// Samples in the form of the output schema.
fn spoken(samples: &[f32], rate: u32) -> Value {
    let seconds = samples.len() as f64 / f64::from(rate);
    json!({
        "audio": sound::wav(samples, rate),
        "sample_rate": rate,
        "seconds": (seconds * 1000.0).round() / 1000.0,
    })
}
