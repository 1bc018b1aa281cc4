//! Bodies of `/rerank`, the shape that the clients of Cohere and of Jina have in common. Unknown fields are ignored.

use island_protocol::job::Usage;
use serde::{Deserialize, Serialize};

use crate::{chat::null_as_default, preferences::Preferences};

/// A request to order documents by their relevance to a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RerankRequest {
    /// Slug or alias of a reranking Cargo.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1)))]
    pub model: String,
    /// The query.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1)))]
    pub query: String,
    /// The documents; what does not fit the model together with the query is cut off at its end.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 1000)))]
    pub documents: Vec<RerankDocument>,
    /// Maximum number of results; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 2_147_483_647)))]
    pub top_n: Option<u32>,
    /// Whether results contain their documents.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub return_documents: bool,
    /// Which Islands may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// A document, as a string or as an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RerankDocument {
    /// The text itself.
    Text(String),
    /// The text in an object.
    Object(DocumentText),
}

impl RerankDocument {
    /// Returns the text.
    pub fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Object(DocumentText { text }) => text,
        }
    }
}

/// The text of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DocumentText {
    /// The text.
    pub text: String,
}

/// Documents in the order of their relevance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Reranking {
    /// `rerank-` and the job id.
    pub id: String,
    /// `list`.
    pub object: String,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// The most relevant document first; documents with equal scores stay in the order of the request.
    pub results: Vec<RankedDocument>,
    /// Token counts, where Jina's clients read them.
    pub usage: Usage,
    /// Token counts, where Cohere's clients read them.
    pub meta: RerankMeta,
}

/// One document of a [`Reranking`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RankedDocument {
    /// Index of the document in the request.
    pub index: u32,
    /// Relevance from 0 to 1, comparable only between answers of one model.
    pub relevance_score: f64,
    /// The document, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentText>,
}

/// What Cohere's API reports about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RerankMeta {
    /// Token counts.
    pub tokens: RerankTokens,
}

/// Token counts under Cohere's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RerankTokens {
    /// Tokens of the query and of the documents.
    pub input_tokens: u64,
    /// Always 0: no text is generated.
    pub output_tokens: u64,
}
