//! Bodies of `POST /moderations`, OpenAI's API. Unknown fields are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::preferences::Preferences;

/// The categories of OpenAI's API.
pub const CATEGORIES: [&str; 13] = [
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
];

/// A request to judge texts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ModerationRequest {
    /// A text, up to 32 texts, or parts of the type `text` of one message.
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "maxItems": 32, "items": {"type": "string", "minLength": 1}},
        {"type": "array", "minItems": 1, "maxItems": 32, "items": {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string", "minLength": 1}},
        }},
    ])))]
    pub input: Value,
    /// Slug or alias of a Cargo that moderates; if absent, or one of OpenAI's names, the nearest that an Island can run now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Which Islands may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// The judged texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Moderations {
    /// `modr-` and the id of the first job.
    pub id: String,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// One entry for each text.
    pub results: Vec<Moderation>,
}

/// One judged text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Moderation {
    /// Whether a category applies.
    pub flagged: bool,
    /// Whether each category applies; null for a category that the model does not judge.
    pub categories: BTreeMap<String, Option<bool>>,
    /// How likely each category applies, 0 to 1; null for a category that the model does not judge.
    pub category_scores: BTreeMap<String, Option<f64>>,
    /// What each category was judged by: `["text"]`, or nothing.
    pub category_applied_input_types: BTreeMap<String, Vec<String>>,
}
