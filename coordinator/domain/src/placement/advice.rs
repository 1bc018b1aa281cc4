//! Which one change of an Island would have earned more with the demand of a past day (0126).

use std::collections::BTreeSet;

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    credits::MicroCredits,
    demand::{self, DRIVER_MB, Shortage},
    egress::Egress,
    host::{Capabilities, Gpu, RuntimeReport},
};
use island_protocol_api::advice::{Change, Improvement};

use super::{Candidate, Reason, able, all_vram, report};

/// What a Cargo's jobs were on a day.
#[derive(Debug, Clone, Copy)]
pub struct DayOfCargo<'c> {
    pub cargo: &'c CargoSpec,
    /// Jobs that were paid for.
    pub jobs: u64,
    /// What their Islands earned.
    pub earned: MicroCredits,
    /// The most Islands that ran them in one hour.
    pub hosts: u64,
    /// Jobs that ended because no Island took them.
    pub unmet: u64,
}

impl DayOfCargo<'_> {
    /// What a job earned, or would usually earn if there was none.
    fn price(&self) -> i64 {
        match i64::try_from(self.jobs) {
            Ok(jobs) if jobs > 0 => self.earned.0 / jobs,
            _ => self.cargo.usual_price().0,
        }
    }

    /// Jobs and credits for one more Island: those that nobody ran, and an equal share of the others.
    fn share(&self) -> Gain {
        let islands = self.hosts.saturating_add(1);
        let divided = self.earned.0 / i64::try_from(islands).unwrap_or(i64::MAX);
        let Gain { jobs, credits } = self.unmet();
        Gain { jobs: jobs.saturating_add(self.jobs / islands), credits: credits.saturating_add(divided) }
    }

    /// Jobs that nobody ran, and their credits.
    fn unmet(&self) -> Gain {
        let unmet = i64::try_from(self.unmet).unwrap_or(i64::MAX);
        Gain { jobs: self.unmet, credits: self.price().saturating_mul(unmet) }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Gain {
    jobs: u64,
    credits: i64,
}

/// Each change with which this Island would have earned more on that day, the best first. The changes are alternatives: what several together
/// earn is not their sum.
pub fn improvements(day: &[DayOfCargo<'_>], island: &Candidate<'_>) -> Vec<Improvement> {
    let real: Vec<&DayOfCargo<'_>> = day.iter().filter(|one| !one.cargo.is_simulated()).collect();
    let is_able = |one: &DayOfCargo<'_>, capabilities: &Capabilities| {
        able(one.cargo, &Candidate { capabilities, ..island.clone() })
    };
    let mut candidates: BTreeSet<Change> = BTreeSet::new();
    let (mut blocked, mut free) = (Vec::new(), Vec::new());
    for one in real {
        match is_able(one, island.capabilities) {
            Ok(()) => free.push(one),
            Err(reason) => {
                candidates.extend(changes(reason, one.cargo, island.capabilities));
                blocked.push(one);
            }
        }
    }
    let mut found: Vec<Improvement> = candidates
        .into_iter()
        .map(|change| {
            let changed = applied(&change, island.capabilities);
            let gains = blocked.iter().filter(|one| is_able(one, &changed).is_ok());
            improvement(change, gains.map(|one| (one.cargo, one.share())))
        })
        .collect();
    found.push(improvement(Change::Availability, free.iter().map(|one| (one.cargo, one.unmet()))));
    found.retain(|one| one.credits > MicroCredits::ZERO);
    found.sort_by(|one, other| other.credits.cmp(&one.credits).then_with(|| one.change.cmp(&other.change)));
    found
}

fn improvement<'c>(change: Change, gains: impl Iterator<Item = (&'c CargoSpec, Gain)>) -> Improvement {
    let mut sum = Gain::default();
    let mut cargos = Vec::new();
    for (cargo, gain) in gains.filter(|(_, gain)| gain.credits > 0) {
        sum.jobs = sum.jobs.saturating_add(gain.jobs);
        sum.credits = sum.credits.saturating_add(gain.credits);
        cargos.push((gain.credits, cargo.slug.clone()));
    }
    cargos.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    Improvement {
        change,
        jobs: sum.jobs,
        credits: MicroCredits(sum.credits),
        cargos: cargos.into_iter().map(|(_, slug)| slug).collect(),
    }
}

/// The changes that remove a reason, which may not be the only one.
fn changes(reason: Reason, cargo: &CargoSpec, capabilities: &Capabilities) -> Vec<Change> {
    let gpu_memory = Change::GpuMemory { mb: cargo.required_vram_mb };
    match reason {
        Reason::NoRuntime => vec![Change::Engine { engine: cargo.runtime_type.clone() }],
        Reason::NoTier => vec![Change::Tier { tier: cargo.sandbox_tier.unwrap_or_default() }],
        Reason::NoEgress => vec![Change::Egress],
        Reason::Price => vec![Change::Price],
        Reason::ModelUnreachable => vec![Change::Hub],
        Reason::NoRam => {
            let main_memory = Change::MainMemory { mb: main_memory(cargo, capabilities) };
            // A model on a GPU needs less of it.
            let is_on_gpu = cargo.required_vram_mb > 0;
            std::iter::once(main_memory).chain(is_on_gpu.then_some(gpu_memory)).collect()
        }
        Reason::NoVram => vec![gpu_memory],
        // Not about what the Island is.
        Reason::Offline | Reason::Draining | Reason::NoSlot | Reason::Refused | Reason::Preferences => {
            Vec::new()
        }
    }
}

/// The main memory that a Cargo needs beside the GPUs of an Island.
fn main_memory(cargo: &CargoSpec, capabilities: &Capabilities) -> u64 {
    let gpus = report(cargo, capabilities).and_then(|report| report.gpus.as_ref());
    let usable = |gpu: &u32| cargo.required_vram_mb > 0 && gpus.is_some_and(|gpus| gpus.contains(gpu));
    let vram = all_vram(capabilities).into_iter().filter(|(gpu, _)| usable(gpu)).collect();
    match demand::fit(cargo, 0, &vram, &capabilities.parts()) {
        Err(Shortage::Ram(mb)) => mb.max(cargo.ram_mb()),
        _ => cargo.ram_mb(),
    }
}

/// The capabilities with a change.
fn applied(change: &Change, capabilities: &Capabilities) -> Capabilities {
    let mut changed = capabilities.clone();
    match change {
        Change::Availability => {}
        Change::Engine { engine } => {
            let gpus = changed.gpus.iter().map(|gpu| gpu.index).collect();
            changed.runtimes.retain(|report| report.kind != *engine || report.simulated);
            changed.runtimes.push(working(engine.clone(), gpus));
        }
        Change::Tier { tier } => {
            if let Some(offer) = &mut changed.containers {
                offer.max_tier = *tier;
            }
        }
        Change::Egress => {
            if let Some(offer) = &mut changed.containers {
                offer.egress = Egress::Declared;
            }
        }
        Change::Price => changed.asking = None,
        Change::Hub => changed.hub_reachable = Some(true),
        Change::MainMemory { mb } => changed.ram_mb = changed.ram_mb.max(*mb),
        Change::GpuMemory { mb } => {
            let index = changed.gpus.iter().map(|gpu| gpu.index + 1).max().unwrap_or(0);
            changed.gpus.push(Gpu { index, vram_mb: mb.saturating_add(DRIVER_MB), ..Gpu::default() });
            for report in &mut changed.runtimes {
                report.gpus.get_or_insert_default().push(index);
            }
        }
    }
    changed
}

fn working(kind: RuntimeType, gpus: Vec<u32>) -> RuntimeReport {
    RuntimeReport {
        kind,
        available: true,
        reason: None,
        version: None,
        simulated: false,
        backend: None,
        devices: None,
        gpus: Some(gpus),
        features: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use island_protocol::{
        asking::Asking,
        cargo::{Limits, SandboxTier, TokenPrices},
        host::ContainerOffer,
        ids::{AccountId, HostId},
    };
    use island_protocol_api::admin::Trust;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn cargo(slug: &str, kind: RuntimeType, price: i64, ram: u64, vram: u64) -> CargoSpec {
        CargoSpec {
            price_per_job: MicroCredits(price),
            token_prices: TokenPrices::default(),
            slug: slug.parse().expect("a slug"),
            runtime_type: kind,
            onnx_task_type: None,
            artifacts: vec![],
            required_vram_mb: vram,
            required_ram_mb: ram,
            limits: Limits::default(),
            sandbox_tier: None,
            engine: serde_json::Value::Null,
        }
    }

    fn capabilities() -> Capabilities {
        Capabilities {
            ram_mb: 8_000,
            runtimes: vec![working(RuntimeType::Onnx, vec![]), working(RuntimeType::Container, vec![])],
            containers: Some(ContainerOffer { max_tier: SandboxTier::Standard, egress: Egress::None }),
            ..Capabilities::default()
        }
    }

    fn island(capabilities: &Capabilities) -> Candidate<'_> {
        Candidate {
            id: HostId(Uuid::nil()),
            account: AccountId(Uuid::nil()),
            region: None,
            trust: Trust::Normal,
            capabilities,
            models: &[],
            online: false,
            draining: true,
            free_slots: 0,
            free_ram_mb: 0,
            free_vram: Cow::default(),
            karma_ms: 0,
            tokens_per_second: None,
            paces: Cow::default(),
            running: 0,
            failures: 0,
            last_resort: false,
            unreliability: 0,
        }
    }

    fn day(cargo: &CargoSpec, jobs: u64, earned: i64, hosts: u64, unmet: u64) -> DayOfCargo<'_> {
        DayOfCargo { cargo, jobs, earned: MicroCredits(earned), hosts, unmet }
    }

    #[test]
    fn the_best_change_is_the_one_that_earns_most() {
        let chat = cargo("chat", RuntimeType::Llmcpp, 10, 4_000, 0);
        let large = cargo("large", RuntimeType::Onnx, 10, 12_000, 0);
        let words = cargo("words", RuntimeType::Onnx, 10, 1_000, 0);
        let demand = [
            // Three other Islands shared it: a fourth would have got a quarter.
            day(&chat, 40, 4_000, 3, 2),
            day(&large, 0, 0, 0, 5),
            day(&words, 10, 100, 1, 3),
        ];
        let found = improvements(&demand, &island(&capabilities()));
        let expected = [
            (Change::Engine { engine: RuntimeType::Llmcpp }, 12, 1_200, "chat"),
            (Change::MainMemory { mb: 12_000 }, 5, 50, "large"),
            // What others ran of what this Island can run is not lost by being offline.
            (Change::Availability, 3, 30, "words"),
        ];
        let found: Vec<_> = found
            .into_iter()
            .map(|one| (one.change, one.jobs, one.credits.0, one.cargos[0].to_string()))
            .collect();
        let expected: Vec<_> =
            expected.map(|(change, jobs, sum, slug)| (change, jobs, sum, slug.to_owned())).into();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_reason_has_its_change() {
        let engine = cargo("a", RuntimeType::Llmcpp, 10, 0, 0);
        let tier = CargoSpec {
            sandbox_tier: Some(SandboxTier::Elevated),
            ..cargo("b", RuntimeType::Container, 10, 100, 0)
        };
        let price = cargo("c", RuntimeType::Onnx, 10, 100, 0);
        let gpu = cargo("d", RuntimeType::Container, 10, 100, 20_000);
        let either = cargo("e", RuntimeType::Onnx, 10, 20_000, 10_000);
        let asking = Asking { per_job: MicroCredits(11), ..Asking::default() };
        let all = Capabilities { asking: Some(asking), ..capabilities() };
        let of = |cargo: &CargoSpec, capabilities: &Capabilities| {
            let found = improvements(&[day(cargo, 0, 0, 0, 1)], &island(capabilities));
            found.into_iter().map(|one| one.change).collect::<Vec<_>>()
        };
        let cheap = Capabilities { asking: None, ..all.clone() };
        assert_eq!(of(&engine, &cheap), [Change::Engine { engine: RuntimeType::Llmcpp }]);
        assert_eq!(of(&tier, &cheap), [Change::Tier { tier: SandboxTier::Elevated }]);
        assert_eq!(of(&gpu, &cheap), [Change::GpuMemory { mb: 20_000 }]);
        assert_eq!(
            of(&either, &cheap),
            [Change::MainMemory { mb: 20_000 }, Change::GpuMemory { mb: 10_000 }]
        );
        assert_eq!(of(&price, &all), [Change::Price]);
        assert_eq!(of(&price, &cheap), [Change::Availability]);
        assert_eq!(of(&engine, &all), [], "one change is not enough");
    }

    fn any_day() -> impl Strategy<Value = Vec<(usize, u64, i64, u64, u64)>> {
        prop::collection::vec((0_usize..5, 0_u64..50, 0_i64..10_000, 0_u64..5, 0_u64..5), 0..5)
    }

    proptest! {
        /// Every change that is named makes every Cargo that it names possible, and none of it was possible before, except for availability;
        /// more demand never makes a change worth less.
        #[test]
        fn changes_make_possible_what_they_name(rows in any_day(), more in 1_u64..9) {
            let cargos = [
                cargo("a", RuntimeType::Llmcpp, 10, 4_000, 0),
                cargo("b", RuntimeType::Onnx, 20, 12_000, 0),
                cargo("c", RuntimeType::Onnx, 5, 100, 0),
                cargo("d", RuntimeType::Onnx, 7, 9_000, 0),
                cargo("e", RuntimeType::Onnx, 30, 9_500, 8_000),
            ];
            let capabilities = capabilities();
            let island = island(&capabilities);
            let demand: Vec<_> = rows
                .iter()
                .map(|(at, jobs, earned, hosts, unmet)| day(&cargos[*at], *jobs, *earned, *hosts, *unmet))
                .collect();
            let found = improvements(&demand, &island);
            prop_assert!(found.windows(2).all(|pair| pair[0].credits >= pair[1].credits));
            for one in &found {
                let changed = applied(&one.change, &capabilities);
                for slug in &one.cargos {
                    let cargo = cargos.iter().find(|cargo| cargo.slug == *slug).expect("known");
                    let after = Candidate { capabilities: &changed, ..island.clone() };
                    prop_assert!(able(cargo, &after).is_ok());
                    prop_assert_eq!(able(cargo, &island).is_ok(), one.change == Change::Availability);
                }
            }
            let larger: Vec<_> =
                demand.iter().map(|one| DayOfCargo { unmet: one.unmet + more, ..*one }).collect();
            let larger = improvements(&larger, &island);
            for one in &found {
                let grown = larger.iter().find(|other| other.change == one.change).expect("still there");
                prop_assert!(grown.credits >= one.credits);
            }
        }
    }
}
