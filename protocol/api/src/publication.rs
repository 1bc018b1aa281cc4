//! `/publications`: Cargos that accounts submit and operators approve.

use island_protocol::{
    ids::{AccountId, PublicationId, Slug},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// `POST /publications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SubmitPublication {
    /// The Cargo as TOML, with the keys of a catalogue file. Its files have addresses that every Island can reach, hashes and lengths.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 60_000)))]
    pub manifest: String,
}

/// State of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PublicationState {
    /// It waits for the review of an operator.
    Submitted,
    /// It is served.
    Approved,
    /// An operator has rejected it, before or after it was approved.
    Rejected,
    /// Its publisher has withdrawn it.
    Withdrawn,
    /// A newer version has taken its place, in the review or in the catalogue.
    Replaced,
}

impl PublicationState {
    /// Every state.
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;

    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One version of a Cargo that an account submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Publication {
    /// Id of the publication.
    pub id: PublicationId,
    /// Slug of the Cargo.
    pub workload_slug: Slug,
    /// Display name of the Cargo.
    pub name: String,
    /// The account that submitted it.
    pub publisher: AccountId,
    /// State.
    pub state: PublicationState,
    /// Why an operator approved or rejected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of submission.
    pub created_at: Timestamp,
    /// Time at which it came into its state, unless that is `submitted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
}

/// A publication with its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PublicationDetails {
    /// The publication.
    #[serde(flatten)]
    pub publication: Publication,
    /// The manifest as it was submitted.
    pub manifest: String,
}
