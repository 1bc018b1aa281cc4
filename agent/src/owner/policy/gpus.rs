//! The owner's rules for single GPUs, and what follows from them for jobs. Pure.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, str::FromStr};

use island_protocol::{demand::Vram, host::Gpu};
use island_runtimes_worker::launch::GpuGrant;
use serde::{Deserialize, Serialize};

use super::RECOVERED;
use crate::inventory::{
    gpu::{Card, Reading, Vendor, View, is_lasting},
    pci::pci_address,
};

/// GPUs that are paused, with the reason.
pub type PausedGpus = BTreeMap<u32, String>;

/// Variables that restrict drivers to some GPUs.
const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const ROCM: &str = "ROCR_VISIBLE_DEVICES";
const VULKAN: &str = "GGML_VK_VISIBLE_DEVICES";
const CONTAINER: &str = "NVIDIA_VISIBLE_DEVICES";

/// The owner's rule for one GPU, as in `[[policy.gpu]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuRule {
    /// The GPU: its number, UUID or PCI address.
    pub gpu: GpuName,
    /// Never used for jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
    /// Megabytes of its memory that all jobs together may use; of an Intel GPU whose memory in use is hidden they get nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vram_mb: Option<u64>,
    /// Degrees Celsius at which this GPU is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_temperature_c: Option<u32>,
    /// Watts at which this GPU is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_power_w: Option<u32>,
}

/// How an owner names a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum GpuName {
    /// By its number on this Island.
    Index(u32),
    /// By its UUID in lower case, or by its PCI address as the kernel writes it.
    Id(String),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a GPU is named by its number, its UUID or its PCI address")]
enum Written {
    Number(i64),
    Text(String),
}

/// A text that does not name a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' names no GPU: wanted is its number, its UUID such as GPU-8f6b1c2e-4a5d-4e0f-9b7a-3c2d1e0f5a6b, or its PCI address such \
     as 0000:03:00.0"
)]
pub struct GpuNameError(String);

impl FromStr for GpuName {
    type Err = GpuNameError;

    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        let name = text.trim().to_lowercase();
        if let Ok(index) = name.parse() {
            return Ok(Self::Index(index));
        }
        if is_uuid(&name) {
            return Ok(Self::Id(name));
        }
        let address = if is_address(&name) { pci_address(&name) } else { None };
        address.map(Self::Id).ok_or_else(|| GpuNameError(text.to_owned()))
    }
}

/// Domain, bus, device and function, as the kernel or NVIDIA's tools write them.
fn is_address(name: &str) -> bool {
    let is_hex = |part: &str, digits: RangeInclusive<usize>| {
        digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts = name.split(':');
    let (Some(domain), Some(bus), Some(rest), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let Some((device, function)) = rest.split_once('.') else { return false };
    is_hex(domain, 4..=8) && is_hex(bus, 2..=2) && is_hex(device, 2..=2) && is_hex(function, 1..=1)
}

/// A UUID of NVIDIA for a GPU or a MIG instance, or of AMD, which has sixteen digits.
fn is_uuid(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("gpu-").or_else(|| name.strip_prefix("mig-")) else { return false };
    let is_number = rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number || (rest.len() == 36 && uuid::Uuid::parse_str(rest).is_ok())
}

impl TryFrom<Written> for GpuName {
    type Error = GpuNameError;

    fn try_from(written: Written) -> Result<Self, GpuNameError> {
        match written {
            Written::Number(number) => {
                u32::try_from(number).map(Self::Index).map_err(|_| GpuNameError(number.to_string()))
            }
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<GpuName> for Written {
    fn from(name: GpuName) -> Self {
        match name {
            GpuName::Index(index) => Self::Number(index.into()),
            GpuName::Id(id) => Self::Text(id),
        }
    }
}

impl fmt::Display for GpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Id(id) => f.write_str(id),
        }
    }
}

impl GpuName {
    /// Whether it is this GPU. The address of a GPU that is split matches all of its instances.
    pub fn means(&self, card: &Card) -> bool {
        let seen = &card.seen;
        match self {
            Self::Index(index) => *index == card.index,
            Self::Id(id) => {
                let place = seen.address.split('#').next().unwrap_or_default();
                let names = [Some(seen.id.as_str()), Some(place), seen.handle.as_deref()];
                names.into_iter().flatten().any(|name| name.eq_ignore_ascii_case(id))
            }
        }
    }
}

/// The limits of one GPU: the strictest of all rules for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Never used for jobs.
    pub never: bool,
    /// Megabytes.
    pub max_vram_mb: Option<u64>,
    /// Degrees Celsius.
    pub max_temperature_c: Option<u32>,
    /// Watts.
    pub max_power_w: Option<u32>,
}

/// Returns the limits of this GPU.
pub fn limits(rules: &[GpuRule], card: &Card) -> Limits {
    fn strictest<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
        one.into_iter().chain(other).min()
    }
    rules.iter().filter(|rule| rule.gpu.means(card)).fold(Limits::default(), |limits, rule| Limits {
        never: limits.never || rule.never,
        max_vram_mb: strictest(limits.max_vram_mb, rule.max_vram_mb),
        max_temperature_c: strictest(limits.max_temperature_c, rule.max_temperature_c),
        max_power_w: strictest(limits.max_power_w, rule.max_power_w),
    })
}

/// Returns the GPUs that the owner offers, each with the memory that jobs may use; the reason if no GPU is offered.
pub fn offered(rules: &[GpuRule], view: &View) -> (Vec<Gpu>, Option<String>) {
    let offered = |(card, gpu): (&Card, Gpu)| {
        let limits = limits(rules, card);
        let vram_mb = limits.max_vram_mb.map_or(gpu.vram_mb, |most| most.min(gpu.vram_mb));
        (!limits.never).then_some(Gpu { vram_mb, ..gpu })
    };
    let gpus: Vec<Gpu> = view.cards.iter().zip(view.list()).filter_map(offered).collect();
    let excluded = || "the owner excludes every GPU".to_owned();
    let none = gpus.is_empty().then(|| view.none.clone().unwrap_or_else(excluded));
    (gpus, none)
}

/// Returns the GPUs that exceed a limit of temperature or power; `before` is the previous result. A GPU whose limit is not measured is
/// paused, too: no work is better than forbidden work.
pub fn paused_gpus(rules: &[GpuRule], view: &View, before: &PausedGpus) -> PausedGpus {
    let rests = |card: &Card| {
        let limits = limits(rules, card);
        let over = |value: Result<f32, &String>, limit: Option<u32>, unit: &str| {
            let limit = limit?;
            let bound = limit as f32 * if before.contains_key(&card.index) { RECOVERED } else { 1.0 };
            match value {
                Ok(value) if value >= bound => {
                    Some(format!("{value:.0} {unit}, the limit is {limit} {unit}"))
                }
                Err(reason) if is_lasting(reason) => {
                    Some(format!("has a limit of {limit} {unit}, and {reason}"))
                }
                _ => None,
            }
        };
        let celsius = as_number(&card.seen.temperature_c, |celsius| celsius as f32);
        let watts = as_number(&card.seen.power_w, |watts| watts);
        let reason =
            over(celsius, limits.max_temperature_c, "°C").or_else(|| over(watts, limits.max_power_w, "W"));
        (!limits.never).then_some((card.index, reason?))
    };
    view.cards.iter().filter_map(rests).collect()
}

fn as_number<T: Copy>(reading: &Reading<T>, number: impl Fn(T) -> f32) -> Result<f32, &String> {
    reading.as_ref().map(|value| number(*value))
}

/// Returns the GPUs that workers may use, each with the memory that jobs may still take of it, megabytes.
pub fn usable(rules: &[GpuRule], paused_gpus: &PausedGpus, view: &View) -> Vram {
    let usable = |card: &Card| {
        let limits = limits(rules, card);
        let is_usable = !limits.never && !paused_gpus.contains_key(&card.index);
        is_usable.then(|| (card.index, free_mb(&limits, card)))
    };
    view.cards.iter().filter_map(usable).collect()
}

/// Returns the grants of a worker that may use this much of each GPU.
pub fn grants(memory: &Vram, view: &View) -> Vec<GpuGrant> {
    let grant = |(index, memory_mb): (&u32, &u64)| {
        let card = view.cards.iter().find(|card| card.index == *index);
        let address = card.and_then(|card| pci_address(&card.seen.address));
        GpuGrant { index: *index, address, memory_mb: *memory_mb }
    };
    memory.iter().filter(|(_, memory_mb)| **memory_mb > 0).map(grant).collect()
}

/// Returns the variables that hide other GPUs than the granted ones from the drivers. Engines select devices by address; this holds for
/// libraries that enumerate all of them, and it alone selects an instance of a GPU that is split. Vulkan has its own numbers, so it is
/// hidden only from workers without a GPU.
pub fn environment(granted: &[GpuGrant], view: &View) -> BTreeMap<String, String> {
    let is_granted = |card: &&Card| granted.iter().any(|grant| grant.index == card.index);
    let is_instance = |card: &Card| card.seen.address.contains('#');
    if view.cards.iter().all(|card| is_granted(&card) && !is_instance(card)) {
        return BTreeMap::new();
    }
    let names = |vendor| {
        let cards = view.cards.iter().filter(|card| card.seen.vendor == vendor).filter(is_granted);
        cards.filter_map(|card| card.seen.handle.as_deref()).collect::<Vec<_>>().join(",")
    };
    let mut variables =
        BTreeMap::from([(CUDA.to_owned(), names(Vendor::Nvidia)), (ROCM.to_owned(), names(Vendor::Amd))]);
    if granted.is_empty() {
        variables.insert(VULKAN.to_owned(), String::new());
    }
    variables
}

/// Returns the variable that names the granted GPUs to the worker of containers.
pub fn container_environment(granted: &[GpuGrant], view: &View) -> BTreeMap<String, String> {
    let is_granted = |card: &&Card| granted.iter().any(|grant| grant.index == card.index);
    let names = view.cards.iter().filter(is_granted).filter_map(|card| card.seen.handle.as_deref());
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| (CONTAINER.to_owned(), names.join(","))).into_iter().collect()
}

/// Memory of a GPU that jobs together may use, megabytes.
pub fn most_mb(rules: &[GpuRule], card: &Card, reserve_mb: u64) -> u64 {
    let without_reserve = card.seen.vram_mb.saturating_sub(reserve_mb);
    limits(rules, card).max_vram_mb.map_or(without_reserve, |most| most.min(without_reserve))
}

/// Whether the owner's limit decides how much memory of a GPU jobs may use: the memory in use is unknown, and a rule for this GPU allows
/// jobs an amount. Only of Intel's, whose kernel drivers report it to privileged programs alone; of others it is missing by a fault.
pub fn is_by_limit(rules: &[GpuRule], card: &Card) -> bool {
    let is_hidden = card.seen.vendor == Vendor::Intel && card.seen.used_mb.is_err();
    is_hidden && limits(rules, card).max_vram_mb.is_some()
}

/// [`is_by_limit`] with these rules.
pub fn consent(rules: Vec<GpuRule>) -> impl Fn(&Card) -> bool + Send + 'static {
    move |card| is_by_limit(&rules, card)
}

/// Memory of a GPU that jobs may still use, megabytes. What workers hold of one whose limit decides is not measured, so it is not subtracted.
fn free_mb(limits: &Limits, card: &Card) -> u64 {
    let Ok(used) = card.seen.used_mb else {
        // If the use is unknown, no memory is known to be free: it is used only as far as its owner allows it.
        let allowed = limits.max_vram_mb.filter(|_| card.by_limit);
        return allowed.map_or(0, |most| most.min(card.seen.vram_mb));
    };
    let free = card.seen.vram_mb.saturating_sub(used);
    // If the use by workers is unknown, all of it may be theirs.
    let ours = card.ours_mb.unwrap_or(used);
    limits.max_vram_mb.map_or(free, |most| free.min(most.saturating_sub(ours)))
}

#[cfg(test)]
pub(crate) mod tests;
