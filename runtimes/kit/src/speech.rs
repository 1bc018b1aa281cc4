//! Speech to text around any acoustic model.
//!
//! | module | content |
//! | --- | --- |
//! | [`transcribe`] | the input of a transcription, and the pipeline around a [`Transcriber`](transcribe::Transcriber) |
//! | [`mel`] | log-mel features |
//! | [`whisper`], [`times`] | Whisper on audio of any length, and its timestamps |
//! | [`alignment`], [`words`] | when a decoder's tokens are spoken, and the words that they form |
//! | [`ctc`] | models that label every frame: wav2vec2, HuBERT |

use serde_json::Value;

use crate::{
    error::EngineError,
    keys::{FEATURE_EXTRACTOR, PROCESSOR},
    repository::Repository,
};

pub mod alignment;
pub mod ctc;
pub mod mel;
pub mod times;
pub mod transcribe;
pub mod whisper;
pub mod words;

/// `preprocessor_config.json` of a model that reads or makes sound; null if the repository lacks it. An error if a setting is not supported.
pub fn features(repository: &Repository) -> Result<Value, EngineError> {
    PROCESSOR.check(&repository.json(PROCESSOR.file)?.unwrap_or_default())?;
    let settings = repository.json(FEATURE_EXTRACTOR.file)?.unwrap_or_default();
    FEATURE_EXTRACTOR.check(&settings)?;
    Ok(settings)
}
