//! Which Islands can run a job, and which runs it best: pure.
//!
//! Hard filters come first: engine, the owner's rules for containers and prices, reachable files, memory, slots. Then
//! the order: Islands whose last attempts failed come last; fewer failures of the job, fewer of the Island, own Islands if the request prefers them, model warm, model on disk, an engine's native back end, the model on GPUs, measured
//! speed, free slots, karma up to ten hours. Islands that are alike in all of this share the jobs evenly. What a Cargo needs of memory is
//! decided by [`demand`], as on the Island.

mod advice;
pub mod pace;
pub mod reason;
pub mod selection;

use std::{
    borrow::Cow,
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
};

use island_protocol::{
    artifact::Artifact,
    cargo::{CargoSpec, RuntimeType},
    demand::{self, DRIVER_MB, Need, Offload, Parts, Shortage, Vram},
    host::{CONTINUES_FORMS, Capabilities, HostModel, NATIVE, RuntimeReport},
    ids::{AccountId, HostId, JobId},
};
use island_protocol_api::admin::Trust;
use sha2::{Digest as _, Sha256};

pub use advice::{DayOfCargo, improvements};
use pace::Paces;
pub use reason::{NO_ISLAND, Reason, in_words, is_reason, reason_names};
pub use selection::Selection;

/// Whether it is a language model that generates text, not one that embeds or ranks texts.
pub fn generates_text(cargo: &CargoSpec) -> bool {
    let task = cargo.engine.get("task").and_then(serde_json::Value::as_str);
    cargo.runtime_type == RuntimeType::Llmcpp && !matches!(task, Some("feature-extraction" | "text-ranking"))
}

/// One Island as placement sees it, without the resources that are already claimed.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    pub id: HostId,
    /// Account of its owner.
    pub account: AccountId,
    /// As its owner names it.
    pub region: Option<&'a str>,
    pub trust: Trust,
    pub capabilities: &'a Capabilities,
    pub models: &'a [HostModel],
    pub online: bool,
    pub draining: bool,
    pub free_slots: i64,
    pub free_ram_mb: i64,
    /// Of each GPU, by its number.
    pub free_vram: Cow<'a, Vram>,
    pub karma_ms: i64,
    /// Tokens per second in the reply of its last check.
    pub tokens_per_second: Option<f64>,
    /// How much faster than usual it ran jobs.
    pub paces: Cow<'a, Paces>,
    /// Attempts that run there now.
    pub running: u32,
    /// Failed attempts of this job there.
    pub failures: u32,
    /// Whether it gets work only if no other Island can take it: its last attempts failed, or operators trust it little.
    pub last_resort: bool,
    /// How often its attempts fail: 0 seldom, 1 often, 2 mostly.
    pub unreliability: u8,
}

/// How near a Cargo's files are. Nearer is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// Loaded in a worker that has a free slot.
    Warm,
    /// On disk, or the Cargo has no files.
    OnDisk,
    /// To be downloaded.
    Remote,
}

/// Number of Islands that cannot take a job, for each reason.
pub type Reasons = BTreeMap<Reason, u64>;

/// Returns the best Island for this job of `cargo`, or why none can take it. Every coordinator chooses the same one of
/// several that are equally good.
pub fn best<'a>(
    cargo: &CargoSpec,
    job: JobId,
    selection: &Selection,
    fleet: impl IntoIterator<Item = Candidate<'a>>,
) -> Result<HostId, Reasons> {
    let (mut best, mut equals, mut reasons) = (None, Vec::new(), Reasons::new());
    for island in fleet {
        match admits(cargo, selection, &island).and_then(|()| fits_now(cargo, &island)) {
            Ok(standing) => {
                let scored = score(cargo, selection, &island, standing);
                let order = best.as_ref().map_or(Ordering::Less, |best| scored.cmp(best));
                if order.is_lt() {
                    best = Some(scored);
                    equals.clear();
                }
                if order.is_le() {
                    equals.push(island.id);
                }
            }
            Err(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    equals.into_iter().max_by_key(|island| weight(job, *island)).ok_or(reasons)
}

/// The weight of an Island for a job in rendezvous hashing: of equal Islands, the one with the highest gets the job. Each
/// has the highest for as many jobs as any other, whatever id its owner chose, because nobody knows the ids of jobs
/// beforehand.
fn weight(job: JobId, island: HostId) -> [u8; 32] {
    let hash = Sha256::new().chain_update(job.0.as_bytes()).chain_update(island.0.as_bytes());
    hash.finalize().into()
}

/// Checks what the selection requires of an Island.
fn admits(cargo: &CargoSpec, selection: &Selection, island: &Candidate<'_>) -> Result<(), Reason> {
    if !selection.allows(island) {
        return Err(Reason::Preferences);
    }
    let continues_forms =
        || report(cargo, island.capabilities).is_some_and(|report| report.has(CONTINUES_FORMS));
    if selection.continues_form && !continues_forms() {
        return Err(Reason::NoRuntime);
    }
    Ok(())
}

/// How well an Island is prepared for a job: smaller is better.
#[derive(Debug, Clone, Copy)]
struct Standing {
    nearness: Nearness,
    offload: Offload,
}

/// Checks whether this Island could run the Cargo apart from free slots, and returns how near its files are.
pub fn usable(cargo: &CargoSpec, island: &Candidate<'_>) -> Result<Nearness, Reason> {
    standing(cargo, island).map(|standing| standing.nearness)
}

/// As [`usable`], for a job with this selection.
pub fn usable_by(
    cargo: &CargoSpec,
    selection: &Selection,
    island: &Candidate<'_>,
) -> Result<Nearness, Reason> {
    if selection.allows(island) { usable(cargo, island) } else { Err(Reason::Preferences) }
}

fn standing(cargo: &CargoSpec, island: &Candidate<'_>) -> Result<Standing, Reason> {
    if !island.online {
        return Err(Reason::Offline);
    }
    if island.draining {
        return Err(Reason::Draining);
    }
    let report = report(cargo, island.capabilities).ok_or(Reason::NoRuntime)?;
    allowed(cargo, island.capabilities)?;
    if island.capabilities.asking.as_ref().is_some_and(|asking| !asking.is_met(cargo)) {
        return Err(Reason::Price);
    }
    let nearness = nearness(cargo, island.models);
    if nearness == Nearness::Remote && !reachable(cargo, island) {
        return Err(Reason::ModelUnreachable);
    }
    let parts = island.capabilities.parts();
    // A loaded model has its memory: where it is follows from the Island's hardware.
    let need = match nearness {
        Nearness::Warm => fit(cargo, report, i64::MAX, &all_vram(island.capabilities), &parts).ok(),
        _ => Some(fit(cargo, report, island.free_ram_mb, &island.free_vram, &parts)?),
    };
    let offload = need.map_or(Offload::None, |need| need.offload(cargo));
    Ok(Standing { nearness, offload })
}

/// The memory that a job of this Cargo takes on an Island: none if its model is loaded, its requirement if it does not fit.
pub fn need(cargo: &CargoSpec, island: &Candidate<'_>) -> Need {
    if nearness(cargo, island.models) == Nearness::Warm {
        return Need::default();
    }
    let report = report(cargo, island.capabilities);
    let parts = island.capabilities.parts();
    let fitted =
        report.and_then(|report| fit(cargo, report, island.free_ram_mb, &island.free_vram, &parts).ok());
    fitted.unwrap_or_else(|| Need { ram_mb: cargo.ram_mb(), ..Need::default() })
}

fn fit(
    cargo: &CargoSpec,
    report: &RuntimeReport,
    free_ram_mb: i64,
    free_vram: &Vram,
    parts: &Parts,
) -> Result<Need, Reason> {
    let free_ram_mb = free_ram_mb.max(0) as u64;
    if cargo.required_vram_mb == 0 {
        return fitted(demand::fit(cargo, free_ram_mb, &Vram::new(), parts));
    }
    if let Some(gpus) = &report.gpus {
        let owned = free_vram.iter().filter(|(gpu, _)| gpus.contains(gpu)).map(|(gpu, mb)| (*gpu, *mb));
        return fitted(demand::fit(cargo, free_ram_mb, &owned.collect(), parts));
    }
    // Older Islands put a model on one GPU or on none, and require main memory in full in both cases.
    let gpu = free_vram.iter().find(|(_, free)| **free >= cargo.required_vram_mb);
    if gpu.is_none() && !cargo.runtime_type.gpu_is_optional() {
        return Err(Reason::NoVram);
    }
    if free_ram_mb < cargo.ram_mb() {
        return Err(Reason::NoRam);
    }
    let vram = gpu.map(|(gpu, _)| (*gpu, cargo.required_vram_mb)).into_iter().collect();
    Ok(Need { ram_mb: cargo.ram_mb(), vram })
}

fn fitted(fit: Result<Need, Shortage>) -> Result<Need, Reason> {
    fit.map_err(|shortage| match shortage {
        Shortage::Ram(_) => Reason::NoRam,
        Shortage::Vram(_) => Reason::NoVram,
    })
}

/// The memory of each GPU that jobs could use on an idle Island.
fn all_vram(capabilities: &Capabilities) -> Vram {
    let gpus = capabilities.gpus.iter();
    gpus.map(|gpu| (gpu.index, gpu.vram_mb.saturating_sub(DRIVER_MB))).collect()
}

/// The Island's report on the engine that a Cargo needs, if the engine is available.
fn report<'a>(cargo: &CargoSpec, capabilities: &'a Capabilities) -> Option<&'a RuntimeReport> {
    let simulated = cargo.is_simulated();
    let fits = |report: &&RuntimeReport| {
        report.kind == cargo.runtime_type && report.available && report.simulated == simulated
    };
    capabilities.runtimes.iter().find(fits)
}

/// Whether the engine of a Cargo runs models on a GPU of this Island.
pub fn has_gpu(cargo: &CargoSpec, capabilities: &Capabilities) -> bool {
    let gpus = report(cargo, capabilities).and_then(|report| report.gpus.as_ref());
    gpus.is_some_and(|gpus| !gpus.is_empty())
}

/// Checks that the owner allows a container Cargo's tier and its egress addresses. An Island that reports no rules
/// passes: it decides itself when it is offered the job.
fn allowed(cargo: &CargoSpec, capabilities: &Capabilities) -> Result<(), Reason> {
    let offer = capabilities.containers.as_ref().filter(|_| cargo.runtime_type == RuntimeType::Container);
    let Some(offer) = offer else { return Ok(()) };
    if cargo.sandbox_tier.unwrap_or_default() > offer.max_tier {
        return Err(Reason::NoTier);
    }
    // Malformed addresses were refused when the catalogue was loaded.
    let places = cargo.egress().unwrap_or_default();
    if offer.egress.refused(&places).is_some() {
        return Err(Reason::NoEgress);
    }
    Ok(())
}

/// Checks whether this Island's hardware could run the Cargo if the Island were idle.
pub fn able(cargo: &CargoSpec, island: &Candidate<'_>) -> Result<(), Reason> {
    let capabilities = island.capabilities;
    let idle = Candidate {
        online: true,
        draining: false,
        free_slots: 1,
        free_ram_mb: i64::try_from(capabilities.ram_mb).unwrap_or(i64::MAX),
        free_vram: Cow::Owned(all_vram(capabilities)),
        ..island.clone()
    };
    usable(cargo, &idle).map(|_| ())
}

fn fits_now(cargo: &CargoSpec, island: &Candidate<'_>) -> Result<Standing, Reason> {
    let standing = standing(cargo, island)?;
    if island.free_slots <= 0 {
        return Err(Reason::NoSlot);
    }
    Ok(standing)
}

fn score(
    cargo: &CargoSpec,
    selection: &Selection,
    island: &Candidate<'_>,
    standing: Standing,
) -> impl Ord + use<> {
    // A native back end of the system is faster than a portable one, even if the latter uses a GPU.
    let not_native =
        report(cargo, island.capabilities).and_then(|report| report.backend.as_deref()) != Some(NATIVE);
    let speed = Reverse(speed(cargo, island) + selection.bonus(island, standing.nearness));
    (
        island.last_resort,
        island.failures,
        island.unreliability,
        selection.is_not_first(island),
        selection.nearness(standing.nearness),
        not_native,
        standing.offload,
        speed,
        Reverse(island.free_slots),
        Reverse(proven_hours(island.karma_ms)),
    )
}

/// Whole hours of successful computation that count for an Island (0157). Without a limit, of equal Islands the one that got the first job would
/// get all others.
fn proven_hours(karma_ms: i64) -> i64 {
    const HOUR_MS: i64 = 3_600_000;
    const PROVEN: i64 = 10;
    (karma_ms / HOUR_MS).min(PROVEN)
}

/// Expected speed of one more attempt on an Island, in powers of two: the speed of its check, corrected by that of jobs of the Cargo's engine, and shared
/// among its attempts. Finer differences are noise and must not send all work to one Island.
fn speed(cargo: &CargoSpec, island: &Candidate<'_>) -> i32 {
    let checked = checked_speed(island.tokens_per_second);
    let shared = (checked / f64::from(island.running + 1)).max(1.0).log2();
    (shared + island.paces.of(cargo)).floor() as i32
}

/// Tokens per second by an Island's last check, within what is plausible. An Island that has not been checked counts as slow.
pub(crate) fn checked_speed(tokens_per_second: Option<f64>) -> f64 {
    tokens_per_second.unwrap_or(1.0).clamp(1.0, 1e6)
}

fn nearness(cargo: &CargoSpec, models: &[HostModel]) -> Nearness {
    if cargo.artifacts.is_empty() {
        return Nearness::OnDisk;
    }
    let copies: Option<Vec<&HostModel>> = cargo.artifacts.iter().map(|file| copy_of(file, models)).collect();
    match copies {
        None => Nearness::Remote,
        Some(copies) if copies.iter().all(|model| model.warm && model.free_slots > 0) => Nearness::Warm,
        Some(_) => Nearness::OnDisk,
    }
}

/// The Island's copy of a file, matched by digest if both are known, otherwise by address. A warm copy is preferred.
fn copy_of<'m>(file: &Artifact, models: &'m [HostModel]) -> Option<&'m HostModel> {
    let same = |model: &&HostModel| match (file.sha256, model.sha256) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => model.url == file.url,
    };
    models.iter().filter(same).max_by_key(|model| (model.warm, model.free_slots))
}

/// Whether missing files can be downloaded. A `file://` artifact may exist on the Island, which reports it when it is
/// offered the job.
fn reachable(cargo: &CargoSpec, island: &Candidate<'_>) -> bool {
    let offline = island.capabilities.hub_reachable == Some(false);
    let missing = cargo.artifacts.iter().filter(|file| copy_of(file, island.models).is_none());
    missing.into_iter().all(|file| !offline || file.url.starts_with("file://"))
}

/// A model up to this size is loaded within seconds from any disk.
const SMALL_BYTES: u64 = 1 << 30;

/// Chooses the Cargo with which an Island checks itself, of those that it can run now: a real engine before a scripted
/// one, a language model before others because its speed is the most informative, on a GPU before the processor; of models that are there the largest
/// that loads within seconds, because the shipped one is too small to show the speed of a GPU; then by nearness and size of the files. Files that would come from elsewhere than the coordinator are not downloaded for a check.
pub fn quickest<'c>(
    cargos: impl IntoIterator<Item = &'c CargoSpec>,
    island: &Candidate<'_>,
) -> Result<&'c CargoSpec, Option<Reason>> {
    let mut best = None;
    let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
    for cargo in cargos {
        match fits_now(cargo, island) {
            Ok(Standing { nearness: Nearness::Remote, .. }) if !is_shipped(cargo) => {}
            Ok(Standing { nearness, offload }) => {
                let bytes: u64 = cargo.artifacts.iter().filter_map(|file| file.size_bytes).sum();
                let generates = generates_text(cargo) && bytes <= SMALL_BYTES;
                let on_gpu = cargo.required_vram_mb > 0 && offload == Offload::Whole;
                // Two models of one size class are equally informative, and the nearer one is faster to check.
                let size = if generates && nearness != Nearness::Remote { bytes.max(1).ilog2() } else { 0 };
                let order = (
                    cargo.is_simulated(),
                    !generates,
                    !on_gpu,
                    Reverse(size),
                    nearness,
                    bytes,
                    cargo.required_ram_mb,
                    &cargo.slug,
                );
                if best.as_ref().is_none_or(|(best, _)| order < *best) {
                    best = Some((order, cargo));
                }
            }
            Err(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    let most_frequent = || reasons.into_iter().max_by_key(|(_, count)| *count).map(|(reason, _)| reason);
    best.map(|(_, cargo)| cargo).ok_or_else(most_frequent)
}

/// Whether the coordinator serves all of a Cargo's files.
fn is_shipped(cargo: &CargoSpec) -> bool {
    cargo.artifacts.iter().all(|file| file.url.starts_with("file://") && file.sha256.is_some())
}

#[cfg(test)]
mod tests;
