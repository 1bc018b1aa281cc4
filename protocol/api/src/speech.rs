//! Bodies of `POST /audio/speech`, OpenAI's API. Unknown fields are ignored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::preferences::Preferences;

/// A request to speak a text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SpeechRequest {
    /// The text.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1, "maxLength" = 20_000)))]
    pub input: String,
    /// Slug or alias of a Cargo that speaks; if one of OpenAI's names, the best one that an Island can run now.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1)))]
    pub model: String,
    /// One of the Cargo's voices, or its name as `{"id": …}`. Each of OpenAI's names means always the same one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": ["string", "null"]},
        {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
    ])))]
    pub voice: Option<Value>,
    /// Format of the sound: `mp3` if absent. `opus` is in an Ogg file; `pcm` has 16 bits, one channel and 24,000 samples per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["mp3", "opus", "wav", "pcm", null])))]
    pub response_format: Option<String>,
    /// 0.25 to 4: how fast it is spoken. 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0.25, max = 4)))]
    pub speed: Option<f64>,
    /// Code of the language of the text, such as `en`, for models of several languages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxLength" = 16)))]
    pub language: Option<String>,
    /// `audio` for the bytes of the sound, `sse` for Server-Sent Events. Both are sent while the text is spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["audio", "sse", null])))]
    pub stream_format: Option<String>,
    /// Which Islands may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum SpeechEvent {
    /// A part of the sound.
    #[serde(rename = "speech.audio.delta")]
    Delta {
        /// Its bytes in base64.
        audio: String,
    },
    /// The sound is complete.
    #[serde(rename = "speech.audio.done")]
    Done {
        /// Token counts.
        usage: SpeechUsage,
    },
}

/// Token counts. Sounds are not counted in tokens here, so that number is zero; clients expect the fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SpeechUsage {
    /// Tokens of the text.
    pub input_tokens: u64,
    /// Tokens of the sound.
    pub output_tokens: u64,
    /// Total.
    pub total_tokens: u64,
}
