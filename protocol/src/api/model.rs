//! `/models`: the list of models in the format of OpenAI's API.

use serde::{Deserialize, Serialize};

use crate::ids::Slug;

/// Answer to `GET /models`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// The models.
    pub data: Vec<Model>,
}

/// A Cargo that can chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Model {
    /// Slug of the Cargo.
    pub id: Slug,
    /// `model`.
    pub object: String,
    /// Unix seconds.
    pub created: i64,
    /// Name of the provider.
    pub owned_by: String,
}
