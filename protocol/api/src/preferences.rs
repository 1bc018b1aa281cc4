//! What a request prefers of the Islands and models that may serve it.

use island_protocol::{credits::MicroCredits, ids::HostId};
use serde::{Deserialize, Serialize};

/// Preferences of a request. The default accepts every Island.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Preferences {
    /// The only Islands that may serve the request; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 64)))]
    pub only: Vec<HostId>,
    /// Islands that must not serve it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 64)))]
    pub ignore: Vec<HostId>,
    /// The only regions whose Islands may serve it, as their owners name them; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 16)))]
    pub regions: Vec<String>,
    /// Whether Islands of the own account come before others, or are the only ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<Own>,
    /// Whether only Islands that operators trust highly, and those of the own account, may serve it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// What decides among Islands, and among the models of a request that names several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<Sort>,
    /// Maximum credits that each job of the request may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 0)))]
    pub max_price: Option<MicroCredits>,
    /// The only quantizations of models that may serve it, such as `q4_k_m`; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 16)))]
    pub quantizations: Vec<String>,
}

/// How Islands of the own account are preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Own {
    /// They come before others.
    First,
    /// No other Island may serve the request.
    Only,
}

/// What decides among several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    /// The lowest price among models. Islands have no prices of their own.
    Price,
    /// The fastest Island, even if it must load the model first.
    Throughput,
    /// The Island that begins soonest: one that has the model loaded comes first. This is the default.
    Latency,
}

impl Preferences {
    /// Returns whether every Island may serve the request, in the usual order.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
