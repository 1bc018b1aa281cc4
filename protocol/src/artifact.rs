//! The files a Cargo needs.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// One file of a Cargo, named by the role it plays there (`model` for a single-file model).
///
/// What could not be read from a source is absent, never guessed: a missing digest is resolved by the coordinator
/// before Islands of other people are asked to load the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Artifact {
    /// Role inside the Cargo, such as `model`.
    pub name: String,
    /// `hf://owner/repo[:file][@revision]`, `https://…` or `file://…`.
    pub url: String,
    /// SHA-256 of the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<String>"))]
    pub sha256: Option<Digest>,
    /// Length in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}
