//! `/hosts/:id/advice`: which one change of an Island would have earned more.

use island_protocol::{
    cargo::{RuntimeType, SandboxTier},
    credits::MicroCredits,
    ids::{HostId, Slug},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// Answer to `GET /hosts/:id/advice`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Advice {
    /// The Island.
    pub host_id: HostId,
    /// Begin of the day whose demand is counted: yesterday, UTC.
    pub from: Timestamp,
    /// Its end.
    pub until: Timestamp,
    /// Changes with which the Island could have earned more on that day, the best first. They are alternatives: what several together earn is not
    /// their sum.
    pub improvements: Vec<Improvement>,
}

/// One change, and what it would have earned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Improvement {
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// Jobs that it would have allowed, at most.
    pub jobs: u64,
    /// Credits that these jobs earned others, or would have earned, at most.
    pub credits: MicroCredits,
    /// Their Cargos, those with the most credits first.
    pub cargos: Vec<Slug>,
}

/// A change of an Island.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// Be online, not paused and not full while jobs find no Island.
    Availability,
    /// Offer an engine.
    Engine {
        /// The engine.
        engine: RuntimeType,
    },
    /// Allow containers of a tier.
    Tier {
        /// The tier.
        tier: SandboxTier,
    },
    /// Allow the addresses that container Cargos declare.
    Egress,
    /// Accept lower prices.
    Price,
    /// Make the hub of models reachable.
    Hub,
    /// Have more main memory.
    MainMemory {
        /// Megabytes that are needed in total.
        mb: u64,
    },
    /// Have a GPU with more memory.
    GpuMemory {
        /// Megabytes that are needed.
        mb: u64,
    },
}
