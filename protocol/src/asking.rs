//! The minimum price that an owner accepts for a job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{cargo::CargoSpec, credits::MicroCredits, ids::Slug};

/// Minimum prices of an Island. The default accepts any price.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Asking {
    /// Credits for a job of any Cargo.
    pub per_job: MicroCredits,
    /// Credits for jobs of single Cargos; these override `per_job`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cargos: BTreeMap<Slug, MicroCredits>,
}

impl Asking {
    /// Returns the minimum price for a job of this Cargo.
    pub fn of(&self, slug: &Slug) -> MicroCredits {
        self.cargos.get(slug).copied().unwrap_or(self.per_job)
    }

    /// Returns whether the price of the Cargo is at least its minimum; see [`CargoSpec::usual_price`].
    pub fn is_met(&self, cargo: &CargoSpec) -> bool {
        cargo.usual_price() >= self.of(&cargo.slug)
    }
}
