//! Bodies of OpenAI's audio API: `/audio/transcriptions` and `/audio/translations`.

use serde::{Deserialize, Serialize};

use crate::{chat::null_as_default, preferences::Preferences};

/// A request for the text of a sound file. It is sent as `multipart/form-data`; unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AudioRequest {
    /// A wav, mp3, flac, ogg or m4a file. The server reads it into base64, as Cargos take it.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1, "contentMediaType" = "application/octet-stream")))]
    pub file: String,
    /// Slug or alias of a Cargo that recognizes speech; if one of OpenAI's names, the best one that an Island can run now.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1)))]
    pub model: String,
    /// Code of the spoken language, such as `de`, for models of several languages. If absent, the model detects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxLength" = 16)))]
    pub language: Option<String>,
    /// Text before the sound. No model uses it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Format of the answer: `json` if absent. Captions and `verbose_json` need a model that gives times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["json", "text", "srt", "verbose_json", "vtt", null])))]
    pub response_format: Option<String>,
    /// 0 to 1. No model samples, so it has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub temperature: Option<f64>,
    /// The times in a `verbose_json` answer: of segments if absent.
    #[serde(rename = "timestamp_granularities[]", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schemars(extend("items" = {"type": "string", "enum": ["word", "segment"]}, "maxItems" = 2))
    )]
    pub timestamp_granularities: Option<Vec<String>>,
    /// Whether to stream the answer; only false is supported.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>", extend("enum" = [false, null])))]
    pub stream: bool,
    /// Which Islands may serve the request, as JSON. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// Answer in the format `json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Transcription {
    /// The text.
    pub text: String,
    /// Length of the sound, if the model reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<AudioUsage>,
}

/// Answer in the format `verbose_json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct VerboseTranscription {
    /// `transcribe` or `translate`.
    pub task: String,
    /// Code of the language of the text: the detected one, else the requested one, else `und`.
    pub language: String,
    /// Length of the sound in seconds; of models that do not report it, the end of the last segment.
    pub duration: f64,
    /// The text.
    pub text: String,
    /// Segments with their times, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<TranscriptionSegment>>,
    /// Words with their times, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<TranscriptionWord>>,
    /// Length of the sound.
    pub usage: AudioUsage,
}

/// A segment of a transcript. No model reports the numbers that describe the decoder: they are 0, and clients expect
/// the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TranscriptionSegment {
    /// Index of the segment.
    pub id: u32,
    /// Always 0.
    pub seek: u64,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
    /// The text.
    pub text: String,
    /// Always empty.
    pub tokens: Vec<u32>,
    /// Always 0.
    pub temperature: f64,
    /// Always 0.
    pub avg_logprob: f64,
    /// Always 0.
    pub compression_ratio: f64,
    /// Always 0.
    pub no_speech_prob: f64,
}

/// A word of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TranscriptionWord {
    /// The word.
    pub word: String,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
}

/// Length of a sound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AudioUsage {
    /// `duration`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Seconds.
    pub seconds: f64,
}
