//! Parts of a language model's reply: calls of functions, and probabilities of tokens.

use serde::{Deserialize, Serialize};

/// A part of a tool call, as a job's events contain it. The first one of a call has its id and function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CallDelta {
    /// Index of the call in the reply.
    pub index: u32,
    /// Id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The next part of the arguments' JSON text.
    pub arguments: String,
    /// What the model wrote for it, in the form of its family. An attempt on another Island continues after it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl CallDelta {
    /// Length of its texts, bytes.
    pub fn text_len(&self) -> usize {
        let names = self.id.as_ref().map_or(0, String::len) + self.name.as_ref().map_or(0, String::len);
        names.saturating_add(self.arguments.len()).saturating_add(self.text.len())
    }
}

/// Probability of a token that was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TokenLogprob {
    /// The token itself.
    #[serde(flatten)]
    pub token: Logprob,
    /// The most likely tokens at its position, the most likely one first.
    #[serde(default)]
    pub top_logprobs: Vec<Logprob>,
}

/// Natural logarithm of a token's probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Logprob {
    /// Text of the token. Bytes that are not a whole character are `U+FFFD`.
    pub token: String,
    /// The logarithm.
    pub logprob: f64,
    /// Bytes of the token.
    pub bytes: Vec<u8>,
}
