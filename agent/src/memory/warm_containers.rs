//! Memory that containers started in advance may use: the container worker keeps some for each Cargo in use, and each may use its whole limit
//! before any job of its own. Computed from the jobs that ran, because a worker's own report could be false.

use std::time::Duration;

use island_protocol::cargo::{CargoSpec, RuntimeType};
use island_runtimes_worker::launch::{KEEP_AHEAD, MAX_AHEAD, MAX_AHEAD_MB};
use tokio::time::Instant;

/// Time after which a container that is no longer kept has been removed.
const REMOVAL: Duration = Duration::from_secs(30);

/// The Cargos whose containers may be kept.
#[derive(Debug, Default)]
pub struct WarmContainers {
    used: Vec<Use>,
}

#[derive(Debug)]
struct Use {
    cargo: CargoSpec,
    at: Instant,
}

impl WarmContainers {
    /// Records a job.
    pub fn note(&mut self, cargo: &CargoSpec, now: Instant) {
        if !is_kept(cargo) {
            return;
        }
        self.used.retain(|one| now.duration_since(one.at) < KEEP_AHEAD + REMOVAL && one.cargo != *cargo);
        self.used.push(Use { cargo: cargo.clone(), at: now });
    }

    /// Megabytes that they may use, with `ahead` of each Cargo: at most those of the largest, because their number is limited.
    pub fn reserved_mb(&self, ahead: u32, now: Instant) -> u64 {
        let recent = self.used.iter().filter(|one| now.duration_since(one.at) < KEEP_AHEAD + REMOVAL);
        let mut each: Vec<u64> = recent
            .flat_map(|one| std::iter::repeat_n(one.cargo.ram_mb(), (ahead as usize).min(MAX_AHEAD)))
            .collect();
        each.sort_unstable_by(|one, other| other.cmp(one));
        each.into_iter().take(MAX_AHEAD).fold(0, u64::saturating_add)
    }
}

/// Whether containers of a Cargo are started in advance.
fn is_kept(cargo: &CargoSpec) -> bool {
    cargo.runtime_type == RuntimeType::Container
        && cargo.required_vram_mb == 0
        && cargo.ram_mb() <= MAX_AHEAD_MB
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn cargo(slug: &str, ram_mb: u64) -> CargoSpec {
        let mut cargo = testing::assignment(1, 1).cargo;
        cargo.slug = slug.parse().expect("a slug");
        (cargo.runtime_type, cargo.required_ram_mb) = (RuntimeType::Container, ram_mb);
        cargo
    }

    #[test]
    fn containers_of_cargos_in_use_are_counted_with_their_limits() {
        let (mut warm, start) = (WarmContainers::default(), Instant::now());
        assert_eq!(warm.reserved_mb(1, start), 0);
        warm.note(&cargo("one", 300), start);
        warm.note(&cargo("one", 300), start);
        warm.note(&cargo("two", 200), start);
        assert_eq!(warm.reserved_mb(1, start), 500, "each once, however many jobs it had");
        assert_eq!(warm.reserved_mb(2, start), 1000);
        assert_eq!(warm.reserved_mb(0, start), 0);
        assert_eq!(warm.reserved_mb(1, start + Duration::from_mins(10)), 0, "they are removed");
        warm.note(&cargo("large", MAX_AHEAD_MB + 1), start);
        let mut wasm = cargo("wasm", 100);
        wasm.runtime_type = RuntimeType::Wasm;
        warm.note(&wasm, start);
        assert_eq!(warm.reserved_mb(1, start), 500, "none of these is started in advance");
    }

    #[test]
    fn at_most_as_many_are_counted_as_there_are() {
        let (mut warm, start) = (WarmContainers::default(), Instant::now());
        for number in 0..20 {
            warm.note(&cargo(&format!("cargo-{number}"), 100 + number), start);
        }
        let largest: u64 = (112..120).sum();
        assert_eq!(warm.reserved_mb(1, start), largest);
        assert_eq!(warm.reserved_mb(u32::MAX, start), 8 * 119);
    }
}
