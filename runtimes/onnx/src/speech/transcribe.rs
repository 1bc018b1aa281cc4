//! Speech to text: the kind of model that a repository holds.

use island_runtimes_kit::{
    error::EngineError, keys::unsupported, pipeline::Pipeline, speech::transcribe::SpeechRecognition,
};
use serde_json::Value;

use super::{ctc, raw::Raw, whisper};
use crate::task::Loader;

/// Loads a model that transcribes speech.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let kind = loader.repository.config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    Ok(match kind {
        "whisper" => Box::new(SpeechRecognition(whisper::load(loader)?)),
        "wav2vec2" | "wav2vec2-conformer" | "wav2vec2-bert" | "hubert" | "wavlm" | "unispeech"
        | "unispeech-sat" | "data2vec-audio" | "sew" | "sew-d" | "mctct" => {
            Box::new(SpeechRecognition(ctc::load(loader)?))
        }
        "moonshine" => {
            refuse_words(loader, "the model has no timestamps")?;
            Box::new(SpeechRecognition(Raw::load(loader)?))
        }
        other => {
            let refused = unsupported("config.json", "model_type", &other.into());
            return Err(refused.followed_by("it does not transcribe speech"));
        }
    })
}

/// Rejects a Cargo that offers the times of words with a model that does not give them, for this reason.
pub fn refuse_words(loader: &Loader<'_>, why: &str) -> Result<(), EngineError> {
    const KEY: &str = "word_times";
    match loader.settings.get(KEY) {
        Some(offered) if offered.as_bool() == Some(true) => {
            Err(unsupported("[engine]", KEY, offered).followed_by(why))
        }
        _ => Ok(()),
    }
}
