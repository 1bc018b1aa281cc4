//! Memory that a Cargo needs on an Island: pure, and the same for coordinator and agent.
//!
//! An engine that runs models on GPUs takes the first of these that is possible: all of the model on one GPU, all of it on several (llama.cpp
//! only), a part of it on GPUs and the rest in main memory (llama.cpp only), all of it in main memory. The more is on GPUs, the less main
//! memory is needed, so the choice does not depend on main memory.
//!
//! A part of a card, such as one of NVIDIA's MIG instances, is used alone: CUDA shows one of them to a process, and no other GPU beside it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    artifact::Artifact,
    cargo::{CargoSpec, RuntimeType},
};

/// GPU memory that a driver uses per process and GPU in addition to the engine's own, megabytes.
pub const DRIVER_MB: u64 = 384;

/// Scratch memory that each further GPU of a model needs, megabytes.
const SPLIT_MB: u64 = 512;
/// Main memory of a worker whose model is on GPUs: a constant, megabytes, and one part in this number of the Cargo's requirement.
const HOST_MB: u64 = 512;
const HOST_PART: u64 = 16;
/// Name of the file of a language model that turns pictures and sounds into embeddings. The engine keeps it in main memory.
const PROJECTOR: &str = "mmproj";
/// Less than one part in this number of a model is not offloaded: it would take GPU memory without a gain in speed.
const LEAST_PART: u64 = 8;

/// Memory of GPUs by their number on the Island, megabytes.
pub type Vram = BTreeMap<u32, u64>;

/// Numbers of the GPUs that are parts of a card.
pub type Parts = BTreeSet<u32>;

/// How much of a model is on GPUs. More is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offload {
    /// All of it, or nothing is to be offloaded.
    Whole,
    /// A part of it.
    Part,
    /// Nothing.
    None,
}

/// Memory that one worker or job needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Need {
    /// Main memory, megabytes.
    pub ram_mb: u64,
    /// Memory of each GPU that is used, megabytes.
    pub vram: Vram,
}

impl Need {
    /// Returns how much of this Cargo's model is on GPUs.
    pub fn offload(&self, cargo: &CargoSpec) -> Offload {
        match self.vram.values().sum::<u64>() {
            _ if cargo.required_vram_mb == 0 => Offload::Whole,
            0 => Offload::None,
            // Scratch memory of further GPUs holds nothing of the model.
            sum if sum.saturating_sub(scratch(self.vram.len())) >= cargo.required_vram_mb => Offload::Whole,
            _ => Offload::Part,
        }
    }
}

/// Why a Cargo does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Main memory: what is needed, megabytes.
    Ram(u64),
    /// GPU memory: what is needed, megabytes.
    Vram(u64),
}

/// Returns what a Cargo needs where `free` is the free memory of each GPU on which its engine runs models, of which `parts` are parts of cards.
/// Where nothing fits and the engine needs a GPU, more than is free.
pub fn need(cargo: &CargoSpec, free: &Vram, parts: &Parts) -> Need {
    let (ram_mb, vram_mb) = (cargo.ram_mb(), cargo.required_vram_mb);
    if vram_mb == 0 {
        return Need { ram_mb, vram: Vram::new() };
    }
    let fits = free.iter().filter(|(_, free)| **free >= vram_mb);
    // The smallest one, so that larger ones are left for larger models.
    if let Some((gpu, _)) = fits.min_by_key(|(gpu, free)| (**free, **gpu)) {
        return Need { ram_mb: ram_beside(cargo, vram_mb), vram: [(*gpu, vram_mb)].into() };
    }
    if cargo.runtime_type == RuntimeType::Llmcpp
        && let Some(split) = split(cargo, free, parts)
    {
        return split;
    }
    if cargo.runtime_type.gpu_is_optional() {
        return Need { ram_mb, vram: Vram::new() };
    }
    let largest = free.iter().max_by_key(|(_, free)| **free).map_or(0, |(gpu, _)| *gpu);
    Need { ram_mb, vram: [(largest, vram_mb)].into() }
}

/// Returns [`need`] if it is covered by this free memory, otherwise what is short.
pub fn fit(cargo: &CargoSpec, free_ram_mb: u64, free: &Vram, parts: &Parts) -> Result<Need, Shortage> {
    let need = need(cargo, free, parts);
    if need.vram.iter().any(|(gpu, mb)| free.get(gpu).is_none_or(|free| free < mb)) {
        return Err(Shortage::Vram(need.vram.values().sum()));
    }
    if need.ram_mb > free_ram_mb {
        return Err(Shortage::Ram(need.ram_mb));
    }
    Ok(need)
}

/// A model on as few cards as possible, or as much of it as fits on all of them, or on the largest part of a card if that holds more.
fn split(cargo: &CargoSpec, free: &Vram, parts: &Parts) -> Option<Need> {
    let mut order: Vec<(u32, u64)> = free.iter().map(|(gpu, free)| (*gpu, *free)).collect();
    order.sort_by_key(|(gpu, free)| (Reverse(*free), *gpu));
    let (parts, cards): (Vec<_>, Vec<_>) = order.into_iter().partition(|(gpu, _)| parts.contains(gpu));
    let (on_cards, on_part) = (fill(cargo, &cards), fill(cargo, &parts[..parts.len().min(1)]));
    let (used, model_mb) = if on_part.1 > on_cards.1 { on_part } else { on_cards };
    if model_mb.saturating_mul(LEAST_PART) < cargo.required_vram_mb {
        return None;
    }
    let model_mb = model_mb.min(cargo.required_vram_mb);
    let (taken, all) = (model_mb + scratch(used.len()), used.iter().map(|(_, free)| free).sum::<u64>());
    // In proportion to what is free, rounded up; never more than is free, because `taken` is at most `all`.
    let part = |free: u64| (u128::from(free) * u128::from(taken)).div_ceil(u128::from(all.max(1))) as u64;
    let vram = used.into_iter().map(|(gpu, free)| (gpu, part(free))).collect();
    Some(Need { ram_mb: ram_beside(cargo, model_mb), vram })
}

/// The first of these GPUs, each with its free memory, that hold a model together, and how much of it they hold.
fn fill(cargo: &CargoSpec, gpus: &[(u32, u64)]) -> (Vec<(u32, u64)>, u64) {
    let mut used: Vec<(u32, u64)> = Vec::new();
    let mut model_mb = 0;
    for (gpu, free) in gpus.iter().copied() {
        let cost = if used.is_empty() { 0 } else { SPLIT_MB };
        if free <= cost {
            break;
        }
        used.push((gpu, free));
        model_mb += free - cost;
        if model_mb >= cargo.required_vram_mb {
            break;
        }
    }
    (used, model_mb)
}

fn scratch(gpus: usize) -> u64 {
    SPLIT_MB * gpus.saturating_sub(1) as u64
}

/// Main memory beside `offloaded_mb` of the model on GPUs.
fn ram_beside(cargo: &CargoSpec, offloaded_mb: u64) -> u64 {
    let (ram_mb, vram_mb) = (cargo.ram_mb(), cargo.required_vram_mb.max(1));
    let is_model = matches!(
        cargo.runtime_type,
        RuntimeType::Llmcpp | RuntimeType::Onnx | RuntimeType::Diffusers | RuntimeType::Coreml
    );
    if !is_model {
        // Programs use GPU memory in addition to main memory.
        return ram_mb;
    }
    let host = (HOST_MB + ram_mb / HOST_PART).saturating_add(projector_mb(cargo)).min(ram_mb);
    let kept = u128::from(vram_mb.saturating_sub(offloaded_mb));
    let rest = (u128::from(ram_mb - host) * kept).div_ceil(u128::from(vram_mb));
    host + rest as u64
}

/// Megabytes of a language model that never are on a GPU, as far as they are known.
fn projector_mb(cargo: &CargoSpec) -> u64 {
    let is_projector = |file: &&Artifact| cargo.runtime_type == RuntimeType::Llmcpp && file.name == PROJECTOR;
    let bytes = cargo.artifacts.iter().filter(is_projector).filter_map(|file| file.size_bytes);
    bytes.map(|bytes| bytes.div_ceil(1 << 20)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        cargo::{Limits, SandboxTier},
        credits::MicroCredits,
    };

    fn cargo(kind: RuntimeType, ram: u64, vram: u64) -> CargoSpec {
        CargoSpec {
            price_per_job: MicroCredits::ZERO,
            token_prices: crate::cargo::TokenPrices::default(),
            slug: "m".parse().expect("a slug"),
            runtime_type: kind,
            onnx_task_type: None,
            artifacts: Vec::new(),
            required_vram_mb: vram,
            required_ram_mb: ram,
            limits: Limits::default(),
            sandbox_tier: None,
            engine: serde_json::Value::Null,
        }
    }

    /// On whole cards.
    fn need(cargo: &CargoSpec, free: &Vram) -> Need {
        super::need(cargo, free, &Parts::new())
    }

    /// On whole cards.
    fn fit(cargo: &CargoSpec, free_ram_mb: u64, free: &Vram) -> Result<Need, Shortage> {
        super::fit(cargo, free_ram_mb, free, &Parts::new())
    }

    fn free(gpus: &[u64]) -> Vram {
        gpus.iter().enumerate().map(|(gpu, free)| (gpu as u32, *free)).collect()
    }

    #[test]
    fn a_model_on_a_gpu_needs_little_main_memory() {
        let large = cargo(RuntimeType::Llmcpp, 19_690, 19_690);
        let on_gpu = fit(&large, 12_000, &free(&[24_000])).expect("a 24 GB GPU in a 16 GB machine runs it");
        assert_eq!(on_gpu, Need { ram_mb: 512 + 1230, vram: [(0, 19_690)].into() });
        assert_eq!(on_gpu.offload(&large), Offload::Whole);
        assert_eq!(fit(&large, 12_000, &free(&[])), Err(Shortage::Ram(19_690)));
    }

    #[test]
    fn a_projector_stays_in_main_memory() {
        let file = |name: &str, mb: Option<u64>| Artifact {
            name: name.to_owned(),
            url: "file://a".to_owned(),
            sha256: None,
            size_bytes: mb.map(|mb| mb << 20),
        };
        let ram_mb = |kind, artifacts: Vec<Artifact>| {
            let sees = CargoSpec { artifacts, ..cargo(kind, 4610, 4610) };
            need(&sees, &free(&[8000])).ram_mb
        };
        let host = 512 + 4610 / 16;
        let both = || vec![file("model", Some(2375)), file("mmproj", Some(812))];
        assert_eq!(ram_mb(RuntimeType::Llmcpp, both()), host + 812);
        assert_eq!(ram_mb(RuntimeType::Llmcpp, vec![file("mmproj", None)]), host, "of unknown size");
        assert_eq!(ram_mb(RuntimeType::Llmcpp, vec![file("mmproj", Some(9000))]), 4610, "at most all of it");
        assert_eq!(ram_mb(RuntimeType::Onnx, both()), host, "another engine has none");
    }

    #[test]
    fn a_program_without_a_stated_requirement_needs_what_its_engine_gives_it() {
        let of =
            |kind, tier| need(&CargoSpec { sandbox_tier: tier, ..cargo(kind, 0, 0) }, &Vram::new()).ram_mb;
        assert_eq!(of(RuntimeType::Wasm, None), 256);
        assert_eq!(of(RuntimeType::Container, None), 256);
        assert_eq!(of(RuntimeType::Container, Some(SandboxTier::Elevated)), 8192);
        assert_eq!(of(RuntimeType::Onnx, None), 0);
        let elevated =
            CargoSpec { sandbox_tier: Some(SandboxTier::Elevated), ..cargo(RuntimeType::Container, 0, 0) };
        assert_eq!(fit(&elevated, 8000, &Vram::new()), Err(Shortage::Ram(8192)));
        assert_eq!(need(&cargo(RuntimeType::Container, 64, 0), &Vram::new()).ram_mb, 64);
    }

    #[test]
    fn the_smallest_gpu_that_fits_is_used() {
        let small = cargo(RuntimeType::Onnx, 4000, 4000);
        assert_eq!(need(&small, &free(&[24_000, 8000, 3000])).vram, [(1, 4000)].into());
    }

    #[test]
    fn only_llama_cpp_splits_a_model() {
        let split = cargo(RuntimeType::Llmcpp, 20_000, 20_000);
        let both = need(&split, &free(&[12_000, 12_000]));
        assert_eq!((both.vram, both.ram_mb), ([(0, 10_256), (1, 10_256)].into(), 1762));
        assert_eq!(need(&split, &free(&[12_000, 12_000])).offload(&split), Offload::Whole);
        let part = need(&split, &free(&[10_000]));
        assert_eq!((part.vram.clone(), part.offload(&split)), ([(0, 10_000)].into(), Offload::Part));
        assert_eq!(part.ram_mb, 1762 + (20_000 - 1762) / 2);
        assert_eq!(need(&split, &free(&[2000])).offload(&split), Offload::None, "hardly anything fits");
        let whole = cargo(RuntimeType::Diffusers, 20_000, 20_000);
        assert_eq!(need(&whole, &free(&[12_000, 12_000])), Need { ram_mb: 20_000, vram: Vram::new() });
    }

    #[test]
    fn parts_of_a_card_do_not_count_as_several_cards() {
        let large = cargo(RuntimeType::Llmcpp, 20_000, 20_000);
        let of = |gpus: &[u64], parts: &[u32]| {
            let need = super::need(&large, &free(gpus), &parts.iter().copied().collect());
            (need.vram.clone(), need.offload(&large))
        };
        assert_eq!(of(&[12_000, 12_000], &[]).1, Offload::Whole, "two cards");
        let one = (Vram::from([(0, 12_000)]), Offload::Part);
        assert_eq!(of(&[12_000, 12_000], &[0, 1]), one, "two parts of one card");
        assert_eq!(of(&[12_000, 12_000], &[1]), one, "a card, and a part of another");
        assert_eq!(of(&[9000, 12_000, 6000], &[1]).0, [(0, 9000), (2, 6000)].into(), "cards hold more");
        assert_eq!(of(&[3000, 12_000, 3000], &[1]).0, [(1, 12_000)].into(), "the part holds more");
        assert_eq!(of(&[12_000, 24_000], &[0, 1]).0, [(1, 20_000)].into(), "a part that holds all of it");
    }

    #[test]
    fn a_program_that_needs_a_gpu_does_not_run_without() {
        let program = cargo(RuntimeType::Container, 1000, 4000);
        assert_eq!(fit(&program, 8000, &free(&[2000])), Err(Shortage::Vram(4000)));
        assert_eq!(fit(&program, 8000, &free(&[])), Err(Shortage::Vram(4000)));
        let on_gpu = fit(&program, 8000, &free(&[6000])).expect("it fits");
        assert_eq!(on_gpu, Need { ram_mb: 1000, vram: [(0, 4000)].into() });
    }

    fn any_cargo() -> impl Strategy<Value = CargoSpec> {
        let kinds = RuntimeType::ALL.to_vec();
        (prop::sample::select(kinds), 0_u64..40_000, 0_u64..40_000)
            .prop_map(|(kind, ram, vram)| cargo(kind, ram, vram))
    }

    fn any_free() -> impl Strategy<Value = Vram> {
        prop::collection::vec(0_u64..30_000, 0..5).prop_map(|gpus| free(&gpus))
    }

    fn any_parts() -> impl Strategy<Value = Parts> {
        prop::collection::btree_set(0_u32..5, 0..5)
    }

    proptest! {
        /// Nothing is beside a part of a card, and what is chosen is as good as all cards, or any one part, alone.
        #[test]
        fn a_part_of_a_card_is_used_alone(cargo in any_cargo(), free in any_free(), parts in any_parts()) {
            let need = super::need(&cargo, &free, &parts);
            prop_assert!(need.vram.len() <= 1 || need.vram.keys().all(|gpu| !parts.contains(gpu)));
            let only = |is_kept: &dyn Fn(u32) -> bool| -> Vram {
                free.iter().filter(|(gpu, _)| is_kept(**gpu)).map(|(gpu, mb)| (*gpu, *mb)).collect()
            };
            let cards = super::need(&cargo, &only(&|gpu| !parts.contains(&gpu)), &parts);
            prop_assert!(need.ram_mb <= cards.ram_mb);
            for part in &parts {
                prop_assert!(need.ram_mb <= super::need(&cargo, &only(&|gpu| gpu == *part), &parts).ram_mb);
            }
        }

        #[test]
        fn a_need_is_within_the_requirement_and_free_memory(
            cargo in any_cargo(), free in any_free(), parts in any_parts(),
        ) {
            let need = super::need(&cargo, &free, &parts);
            prop_assert!(need.ram_mb <= cargo.required_ram_mb);
            prop_assert!(need.vram.len() <= 1 || cargo.runtime_type == RuntimeType::Llmcpp);
            if cargo.runtime_type.gpu_is_optional() {
                prop_assert!(need.vram.iter().all(|(gpu, mb)| *mb > 0 && *mb <= free[gpu]));
            }
            if cargo.required_vram_mb == 0 {
                prop_assert!(need.vram.is_empty());
            }
            if need.offload(&cargo) == Offload::None {
                prop_assert_eq!(need.ram_mb, cargo.required_ram_mb);
            }
            if need.offload(&cargo) == Offload::Part {
                prop_assert_eq!(cargo.runtime_type, RuntimeType::Llmcpp);
            }
        }

        /// A Cargo that fits also fits into more memory, and needs no more main memory there.
        #[test]
        fn more_free_memory_never_hurts(
            cargo in any_cargo(), free in any_free(), parts in any_parts(), ram in 0_u64..40_000, gpu in 0_u32..5,
            more in 0_u64..20_000,
        ) {
            let mut larger = free.clone();
            *larger.entry(gpu).or_default() += more;
            let needed = |free: &Vram| super::need(&cargo, free, &parts).ram_mb;
            prop_assert!(needed(&larger) <= needed(&free));
            if super::fit(&cargo, ram, &free, &parts).is_ok() {
                prop_assert!(super::fit(&cargo, ram, &larger, &parts).is_ok());
            }
        }

        /// What was planned fits where exactly that is free, and takes the same.
        #[test]
        fn a_need_fits_into_itself(
            cargo in any_cargo(), free in any_free(), parts in any_parts(), ram in 0_u64..40_000,
        ) {
            if let Ok(planned) = super::fit(&cargo, ram, &free, &parts) {
                let again = super::fit(&cargo, planned.ram_mb, &planned.vram, &parts);
                prop_assert!(again.is_ok(), "{:?} {:?}", planned, again);
            }
        }
    }
}
