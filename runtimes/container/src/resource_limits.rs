//! What a Cargo gets on this Island: the limits of its tier, within the owner's rules.

use std::time::Duration;

use island_protocol::{
    cargo::{CargoSpec, SandboxTier},
    job::{Failure, FailureCode},
};
use island_runtimes_worker::launch::ContainerRules;

use crate::engine_config::{EngineConfig, invalid_cargo};

const MB: u64 = 1 << 20;
/// With less than this a daemon refuses the container, or no program starts in it.
const MIN_MEMORY_MB: u64 = 16;
/// Maximum size of the scratch folder, which is memory, too.
const MAX_SCRATCH_MB: u64 = 2048;

/// The limits of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResourceLimits {
    /// Memory, scratch folder included; it cannot be swapped out.
    pub memory_bytes: u64,
    /// Thousandths of a processor.
    pub milli_cpus: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes in `/tmp`, the only folder that can be written.
    pub scratch_bytes: u64,
    /// From the start of the job to its end.
    pub time: Duration,
    /// Whether it uses GPUs.
    pub gpus: bool,
}

/// Processes and threads of a tier.
fn pids(tier: SandboxTier) -> u64 {
    match tier {
        SandboxTier::Restricted => 64,
        SandboxTier::Standard => 256,
        SandboxTier::Elevated => 512,
    }
}

impl ResourceLimits {
    /// Returns the limits of this Cargo, or why this Island does not run it. The owner's rules override any tier. `no_gpu` is the reason why
    /// containers get no GPU here, if so.
    pub fn of(
        cargo: &CargoSpec,
        table: &EngineConfig,
        rules: &ContainerRules,
        no_gpu: Option<&str>,
    ) -> Result<Self, Failure> {
        let tier = cargo.sandbox_tier.unwrap_or_default();
        if tier > rules.max_tier {
            let message = format!(
                "this Island runs containers up to the tier '{}', this Cargo needs '{}'",
                rules.max_tier.as_str(),
                tier.as_str()
            );
            return Err(not_here(message));
        }
        if cargo.required_ram_mb > tier.memory_mb() {
            return Err(invalid_cargo(format!(
                "the Cargo needs {} MB of memory, its tier '{}' has {} MB",
                cargo.required_ram_mb,
                tier.as_str(),
                tier.memory_mb()
            )));
        }
        may_leave(tier, table, rules)?;
        let memory_mb = cargo.ram_mb().max(MIN_MEMORY_MB);
        let time_s = match cargo.limits.timeout_s {
            0 => tier.seconds(),
            limit => limit.min(tier.seconds()),
        };
        Ok(Self {
            memory_bytes: memory_mb * MB,
            milli_cpus: u64::from(tier.cpus()) * 1000,
            pids: pids(tier),
            scratch_bytes: (memory_mb / 2).min(MAX_SCRATCH_MB) * MB,
            time: Duration::from_secs(time_s),
            gpus: gpus(cargo, tier, rules, no_gpu)?,
        })
    }
}

/// Whether the Cargo may connect to all the addresses that it declares. No container has a network: allowed connections go through the
/// agent's proxy, which checks them again.
fn may_leave(tier: SandboxTier, table: &EngineConfig, rules: &ContainerRules) -> Result<(), Failure> {
    if table.egress.is_empty() {
        return Ok(());
    }
    if tier < SandboxTier::Elevated {
        return Err(invalid_cargo(format!(
            "a Cargo of the tier '{}' may not connect to any address",
            tier.as_str()
        )));
    }
    match rules.egress.refused(&table.egress) {
        None => Ok(()),
        Some(place) => {
            Err(not_here(format!("the owner of this Island does not allow containers to connect to {place}")))
        }
    }
}

fn gpus(
    cargo: &CargoSpec,
    tier: SandboxTier,
    rules: &ContainerRules,
    no_gpu: Option<&str>,
) -> Result<bool, Failure> {
    if cargo.required_vram_mb == 0 {
        return Ok(false);
    }
    if tier < SandboxTier::Standard {
        return Err(invalid_cargo("a Cargo of the tier 'restricted' gets no GPU"));
    }
    if !rules.gpus {
        return Err(not_here("the owner of this Island gives containers no GPU"));
    }
    match no_gpu {
        Some(reason) => Err(not_here(reason)),
        None => Ok(true),
    }
}

pub(crate) fn not_here(message: impl Into<String>) -> Failure {
    Failure::of_host(FailureCode::NoIslandAvailable, message)
}

#[cfg(test)]
mod tests;
