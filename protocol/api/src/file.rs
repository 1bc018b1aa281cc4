//! `/files`: inputs and results of batches, in the form of OpenAI's API.

use serde::{Deserialize, Serialize};

/// Begins the ids of files; a UUID follows.
pub const PREFIX: &str = "file-";

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Purpose {
    /// The input of a batch.
    Batch,
    /// The results of a batch, or its errors.
    BatchOutput,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// `POST /files`, as `multipart/form-data`. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct UploadFile {
    /// UTF-8 text: one JSON object in each line, with `custom_id`, `method`, `url` and `body`.
    #[cfg_attr(feature = "openapi", schemars(extend("contentMediaType" = "application/octet-stream")))]
    pub file: String,
    /// `batch`.
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["batch"])))]
    pub purpose: String,
    /// Seconds until the file is deleted, from an hour to thirty days. The operators may set a shorter time.
    #[serde(default, rename = "expires_after[seconds]", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 3600, "maximum" = 2_592_000)))]
    pub expires_after_seconds: Option<u64>,
    /// `created_at`.
    #[serde(default, rename = "expires_after[anchor]", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["created_at"])))]
    pub expires_after_anchor: Option<String>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct File {
    /// `file-` and a UUID.
    pub id: String,
    /// `file`.
    pub object: String,
    /// Length.
    pub bytes: u64,
    /// Unix seconds.
    pub created_at: i64,
    /// Unix seconds at which it is deleted; `null` if it is kept.
    pub expires_at: Option<i64>,
    /// Name that it was uploaded with.
    pub filename: String,
    /// What it is for.
    pub purpose: Purpose,
    /// `processed`.
    pub status: String,
}

/// A page of an account's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FileList {
    /// `list`.
    pub object: String,
    /// The files.
    pub data: Vec<File>,
    /// Id of the first one.
    pub first_id: Option<String>,
    /// Id of the last one, for `after`.
    pub last_id: Option<String>,
    /// Whether others follow.
    pub has_more: bool,
}

/// Answer to `DELETE /files/:id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DeletedFile {
    /// Id of the file.
    pub id: String,
    /// `file`.
    pub object: String,
    /// `true`.
    pub deleted: bool,
}
