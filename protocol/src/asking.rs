//! What an Island's owner wants for a job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{cargo::CargoSpec, credits::MicroCredits, ids::Slug};

/// The least that an owner works for. Nothing said: anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Asking {
    /// Credits for any job.
    pub per_job: MicroCredits,
    /// Credits for jobs of single Cargos, which go before.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cargos: BTreeMap<Slug, MicroCredits>,
}

impl Asking {
    /// What is wanted for a job of this Cargo.
    pub fn of(&self, slug: &Slug) -> MicroCredits {
        self.cargos.get(slug).copied().unwrap_or(self.per_job)
    }

    /// Whether a job of this Cargo pays that.
    pub fn is_met(&self, cargo: &CargoSpec) -> bool {
        cargo.price_per_job >= self.of(&cargo.slug)
    }
}
