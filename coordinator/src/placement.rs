//! Who can run a job, and who runs it best: pure.
//!
//! Hard filters first (engine, what the owner allows containers and asks for jobs, reachable files, memory, slots), then order: not tried already, model warm, model on
//! disk, an engine's native back end, whole model on a GPU, measured speed, free slots, karma. Language and ONNX models that do not fit a GPU run in main memory;
//! other engines need the GPU memory they ask for.

use std::{cmp::Reverse, collections::BTreeMap};

use island_protocol::{
    artifact::Artifact,
    cargo::{CargoSpec, RuntimeType},
    host::{Capabilities, HostModel, NATIVE, RuntimeReport},
    ids::HostId,
};

/// One Island as placement sees it, with what is already promised to others taken off.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<'a> {
    pub id: HostId,
    pub capabilities: &'a Capabilities,
    pub models: &'a [HostModel],
    pub online: bool,
    pub draining: bool,
    pub free_slots: i64,
    pub free_ram_mb: i64,
    pub free_vram_mb: i64,
    pub karma_ms: i64,
    /// Tokens a second of its last check's reply.
    pub tokens_per_second: Option<f64>,
    /// Attempts there now.
    pub running: u32,
    /// Attempts of this job that went wrong here.
    pub strikes: u32,
}

/// Why an Island cannot take a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    Offline,
    Draining,
    NoRuntime,
    NoTier,
    NoEgress,
    Price,
    ModelUnreachable,
    NoRam,
    NoVram,
    NoSlot,
}

impl Reason {
    /// The name in `waiting`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Draining => "draining",
            Self::NoRuntime => "no_runtime",
            Self::NoTier => "no_tier",
            Self::NoEgress => "no_egress",
            Self::Price => "price",
            Self::ModelUnreachable => "model_unreachable",
            Self::NoRam => "no_ram",
            Self::NoVram => "no_vram",
            Self::NoSlot => "no_slot",
        }
    }
}

/// How near a Cargo's files are. Nearer is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nearness {
    /// Loaded in a worker that has room.
    Warm,
    /// On disk, or nothing to fetch.
    OnDisk,
    /// To be downloaded first.
    Remote,
}

/// Islands that can take a job, best first, and why the others cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranking {
    pub hosts: Vec<HostId>,
    pub reasons: BTreeMap<Reason, u64>,
}

/// Orders the Islands that can take a job of `cargo` now.
pub(crate) fn rank<'a>(cargo: &CargoSpec, fleet: impl IntoIterator<Item = Candidate<'a>>) -> Ranking {
    let mut ranking = Ranking::default();
    let mut scored = Vec::new();
    for island in fleet {
        match fits_now(cargo, &island) {
            Ok(nearness) => scored.push((score(cargo, &island, nearness), island.id)),
            Err(reason) => *ranking.reasons.entry(reason).or_default() += 1,
        }
    }
    scored.sort();
    ranking.hosts = scored.into_iter().map(|(_, id)| id).collect();
    ranking
}

/// Whether this Island could serve the Cargo at all, and how near its files are: what model choice asks.
pub(crate) fn usable(cargo: &CargoSpec, island: &Candidate<'_>) -> Result<Nearness, Reason> {
    if !island.online {
        return Err(Reason::Offline);
    }
    if island.draining {
        return Err(Reason::Draining);
    }
    if report(cargo, island.capabilities).is_none() {
        return Err(Reason::NoRuntime);
    }
    allowed(cargo, island.capabilities)?;
    if island.capabilities.asking.as_ref().is_some_and(|asking| !asking.is_met(cargo)) {
        return Err(Reason::Price);
    }
    let nearness = nearness(cargo, island.models);
    if nearness == Nearness::Remote && !reachable(cargo, island) {
        return Err(Reason::ModelUnreachable);
    }
    if nearness != Nearness::Warm {
        memory(cargo, island)?;
    }
    Ok(nearness)
}

/// What an Island says of the engine that a Cargo needs, if it works there.
fn report<'a>(cargo: &CargoSpec, capabilities: &'a Capabilities) -> Option<&'a RuntimeReport> {
    let simulated = cargo.is_simulated();
    let fits = |report: &&RuntimeReport| {
        report.kind == cargo.runtime_type && report.available && report.simulated == simulated
    };
    capabilities.runtimes.iter().find(fits)
}

/// Whether the owner allows a container Cargo its tier and the places it declares. An Island that does not tell is asked.
fn allowed(cargo: &CargoSpec, capabilities: &Capabilities) -> Result<(), Reason> {
    let offer = capabilities.containers.as_ref().filter(|_| cargo.runtime_type == RuntimeType::Container);
    let Some(offer) = offer else { return Ok(()) };
    if cargo.sandbox_tier.unwrap_or_default() > offer.max_tier {
        return Err(Reason::NoTier);
    }
    // Places that are none were refused when the catalogue was read.
    let places = cargo.egress().unwrap_or_default();
    if offer.egress.refused(&places).is_some() {
        return Err(Reason::NoEgress);
    }
    Ok(())
}

/// Whether this Island's hardware could serve the Cargo if it had nothing else to do.
pub(crate) fn able(cargo: &CargoSpec, island: &Candidate<'_>) -> Result<(), Reason> {
    let capabilities = island.capabilities;
    let vram_mb: u64 = capabilities.gpus.iter().map(|gpu| gpu.vram_mb).sum();
    let idle = Candidate {
        online: true,
        draining: false,
        free_slots: 1,
        free_ram_mb: megabytes(capabilities.ram_mb),
        free_vram_mb: megabytes(vram_mb),
        ..island.clone()
    };
    usable(cargo, &idle).map(|_| ())
}

fn fits_now(cargo: &CargoSpec, island: &Candidate<'_>) -> Result<Nearness, Reason> {
    let nearness = usable(cargo, island)?;
    if island.free_slots <= 0 {
        return Err(Reason::NoSlot);
    }
    Ok(nearness)
}

fn score(cargo: &CargoSpec, island: &Candidate<'_>, nearness: Nearness) -> impl Ord + use<> {
    // A back end of the system's own is faster than what runs anywhere, also where the latter has a GPU.
    let not_native =
        report(cargo, island.capabilities).and_then(|report| report.backend.as_deref()) != Some(NATIVE);
    let off_gpu = !fits_gpu(cargo, island);
    let pace = Reverse(pace(island));
    (
        island.strikes,
        nearness,
        not_native,
        off_gpu,
        pace,
        Reverse(island.free_slots),
        Reverse(island.karma_ms),
    )
}

/// How fast an Island would be for one more, in powers of two: what was measured of it, shared among its attempts. Finer differences are
/// noise, and must not send all work to one. An Island that was not measured yet counts as a slow one.
fn pace(island: &Candidate<'_>) -> i32 {
    let measured = island.tokens_per_second.unwrap_or(1.0).clamp(1.0, 1e6);
    (measured / f64::from(island.running + 1)).max(1.0).log2() as i32
}

fn memory(cargo: &CargoSpec, island: &Candidate<'_>) -> Result<(), Reason> {
    let needs_gpu = cargo.required_vram_mb > 0 && !cargo.runtime_type.gpu_is_optional();
    if needs_gpu && !fits_gpu(cargo, island) {
        return Err(Reason::NoVram);
    }
    let on_gpu = cargo.required_vram_mb > 0 && fits_gpu(cargo, island);
    if !on_gpu && island.free_ram_mb < megabytes(cargo.required_ram_mb) {
        return Err(Reason::NoRam);
    }
    Ok(())
}

fn fits_gpu(cargo: &CargoSpec, island: &Candidate<'_>) -> bool {
    island.free_vram_mb > 0 && island.free_vram_mb >= megabytes(cargo.required_vram_mb)
}

fn megabytes(mb: u64) -> i64 {
    i64::try_from(mb).unwrap_or(i64::MAX)
}

fn nearness(cargo: &CargoSpec, models: &[HostModel]) -> Nearness {
    if cargo.artifacts.is_empty() {
        return Nearness::OnDisk;
    }
    let held: Option<Vec<&HostModel>> = cargo.artifacts.iter().map(|file| held(file, models)).collect();
    match held {
        None => Nearness::Remote,
        Some(held) if held.iter().all(|model| model.warm && model.free_slots > 0) => Nearness::Warm,
        Some(_) => Nearness::OnDisk,
    }
}

/// The Island's copy of a file: by digest where both are known, else by address. A warm copy wins.
fn held<'m>(file: &Artifact, models: &'m [HostModel]) -> Option<&'m HostModel> {
    let same = |model: &&HostModel| match (file.sha256, model.sha256) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => model.url == file.url,
    };
    models.iter().filter(same).max_by_key(|model| (model.warm, model.free_slots))
}

/// Whether what is missing can be fetched. A local file may be there: the Island says so when asked to run it.
fn reachable(cargo: &CargoSpec, island: &Candidate<'_>) -> bool {
    let offline = island.capabilities.hub_reachable == Some(false);
    let missing = cargo.artifacts.iter().filter(|file| held(file, island.models).is_none());
    missing.into_iter().all(|file| !offline || file.url.starts_with("file://"))
}

/// A model up to this size is loaded within seconds wherever it lies.
const SMALL_BYTES: u64 = 1 << 30;

/// The Cargo that shows soonest whether an Island works, of those it can run now: a real engine before a scripted one, a small language
/// model before all else, for its speed tells most, then by how near the files are and how small. Files that would come from elsewhere
/// than the coordinator are not fetched for it.
pub(crate) fn quickest<'c>(
    cargos: impl IntoIterator<Item = &'c CargoSpec>,
    island: &Candidate<'_>,
) -> Result<&'c CargoSpec, Option<Reason>> {
    let mut best = None;
    let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
    for cargo in cargos {
        match fits_now(cargo, island) {
            Ok(Nearness::Remote) if !is_shipped(cargo) => {}
            Ok(nearness) => {
                let bytes: u64 = cargo.artifacts.iter().filter_map(|file| file.size_bytes).sum();
                let writes = cargo.runtime_type == RuntimeType::Llmcpp && bytes <= SMALL_BYTES;
                let order =
                    (cargo.is_simulated(), !writes, nearness, bytes, cargo.required_ram_mb, &cargo.slug);
                if best.as_ref().is_none_or(|(least, _)| order < *least) {
                    best = Some((order, cargo));
                }
            }
            Err(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    let commonest = || reasons.into_iter().max_by_key(|(_, count)| *count).map(|(reason, _)| reason);
    best.map(|(_, cargo)| cargo).ok_or_else(commonest)
}

/// Whether the coordinator hands out all of a Cargo's files.
fn is_shipped(cargo: &CargoSpec) -> bool {
    cargo.artifacts.iter().all(|file| file.url.starts_with("file://") && file.sha256.is_some())
}

#[cfg(test)]
mod tests;
