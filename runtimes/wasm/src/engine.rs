//! Settings of wasmtime: two engines, since metered code is compiled differently.

use std::hash::{DefaultHasher, Hash, Hasher};

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Result,
};

/// Stack of a program; exceeding it fails the job.
pub const STACK_BYTES: usize = 512 << 10;
/// Stack of a program including the host functions that it calls.
const FIBER_BYTES: usize = 1 << 20;
/// Maximum entries of a table; the largest known programs have about ten thousand functions.
pub const TABLE_ENTRIES: usize = 1 << 16;
/// Maximum tables of one core module.
const TABLES: u32 = 4;
/// Maximum core modules of a component; those of compilers have up to six.
const CORE_INSTANCES: u32 = 16;
/// Maximum memories of a component.
const MEMORIES: u32 = 4;
/// Memory of an ended program that is cleared by writing zeroes, which is cheaper than releasing a few pages.
const KEPT_BYTES: usize = 256 << 10;
/// Release of wasmtime; the rest of the version is a digest of everything that compiled code depends on.
const RELEASE: &str = "48";

/// The two engines, which differ only in metering.
#[derive(Debug, Clone)]
pub struct Engines {
    plain: Engine,
    metered: Engine,
}

impl Engines {
    /// Creates engines that run `slots` programs at once.
    pub fn new(slots: u32) -> Result<Self> {
        Ok(Self { plain: Engine::new(&config(slots, false))?, metered: Engine::new(&config(slots, true))? })
    }

    /// The engine for programs that are metered, or for those that are not.
    pub fn get(&self, metered: bool) -> &Engine {
        if metered { &self.metered } else { &self.plain }
    }

    /// Ends the time slice of every running program.
    pub fn tick(&self) {
        self.plain.increment_epoch();
        self.metered.increment_epoch();
    }

    /// Identifies what compiled code depends on: wasmtime's version, this processor and our settings. Code of another version does not
    /// load.
    pub fn version(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.plain.precompile_compatibility_hash().hash(&mut hasher);
        self.metered.precompile_compatibility_hash().hash(&mut hasher);
        format!("wasmtime {RELEASE}, {:016x}", hasher.finish())
    }
}

fn config(slots: u32, metered: bool) -> Config {
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(slots)))
        .memory_init_cow(true)
        .epoch_interruption(true)
        .consume_fuel(metered)
        // The bits of a NaN differ between processors; a metered program must not depend on them.
        .cranelift_nan_canonicalization(metered)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(FIBER_BYTES)
        .concurrency_support(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false);
    config
}

/// Address space for `slots` programs at once, components included.
fn pool(slots: u32) -> PoolingAllocationConfig {
    let slots = slots.max(1);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots * CORE_INSTANCES)
        .max_core_instances_per_component(CORE_INSTANCES)
        .total_memories(slots * MEMORIES)
        .max_memories_per_component(MEMORIES)
        .total_tables(slots * CORE_INSTANCES)
        .max_tables_per_component(CORE_INSTANCES)
        .max_tables_per_module(TABLES)
        .table_elements(TABLE_ENTRIES)
        .total_stacks(slots)
        .max_unused_warm_slots(slots)
        .linear_memory_keep_resident(KEPT_BYTES)
        .table_keep_resident(KEPT_BYTES)
        // Needs a file of /proc, which the sandbox does not allow.
        .pagemap_scan(Enabled::No);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_the_one_that_is_built() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"wasmtime\"\nversion = \"{RELEASE}.")));
    }

    #[test]
    fn metering_changes_the_version_and_slots_do_not() {
        let digest = |metered| {
            let engine = Engine::new(&config(2, metered)).expect("an engine");
            let mut hasher = DefaultHasher::new();
            engine.precompile_compatibility_hash().hash(&mut hasher);
            hasher.finish()
        };
        assert_ne!(digest(true), digest(false));
        let version = |slots| Engines::new(slots).expect("engines").version();
        assert_eq!(version(1), version(5), "code does not depend on the number of slots");
    }
}
