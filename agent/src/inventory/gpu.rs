//! GPUs of all vendors: which exist, their load, and the reasons for values that are not measured.
//!
//! A [`Probe`] polls the GPUs of one vendor; [`Gpus`] polls all probes and assigns each GPU a stable number. A value that cannot be read
//! has a reason and is never zero. GPUs may appear and disappear while the agent runs: [`follow`] reports it to the coordinator.

mod amd;
// On other systems only its tests use it.
#[cfg(any(target_os = "macos", test))]
mod apple;
mod clients;
pub mod follow;
mod intel;
mod limited;
#[cfg(target_os = "macos")]
mod macos;
pub mod nodes;
mod numbers;
pub mod nvidia;
mod nvml;
pub mod nvml_process;
pub mod own;
mod software;
mod suspension;
mod sysfs;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use island_protocol::{
    demand::Parts,
    host::{Device, Gpu, GpuLoad},
};
use serde::{Deserialize, Serialize};

use self::{clients::Clients, limited::Limited, numbers::Numbers, own::OwnProcesses};

const MB: u64 = 1 << 20;
/// Time for which a poll waits for NVIDIA's driver to be opened. Opening continues in its process, and a later poll has the result.
const OPENED_WITHIN: Duration = Duration::from_secs(3);
/// The same for a program that polls once.
const OPENED_ONCE_WITHIN: Duration = Duration::from_secs(12);
/// Time after which the result of a probe is not waited for: more than that of NVIDIA's GPUs needs to replace a process that hangs.
const POLLED_WITHIN: Duration = Duration::from_secs(15);
/// Reason for the values of a GPU that is suspended: reading them would wake it.
pub(crate) const ASLEEP: &str = "the GPU is suspended";
/// Reason for a value that is the difference between two polls, at the first.
const TWICE: &str = "it needs two polls";

/// A value, or why it is not measured.
pub type Reading<T> = Result<T, String>;

/// A vendor of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// Read through NVML.
    Nvidia,
    /// Read from sysfs.
    Amd,
    /// Read from sysfs.
    Intel,
    /// Read from the system's counters, on macOS.
    Apple,
    /// Emulated by the processor, for tests.
    Software,
}

impl Vendor {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether its GPUs use main memory.
    pub fn shares_memory(self) -> bool {
        matches!(self, Self::Apple | Self::Software)
    }
}

/// A GPU at one poll.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuReadings {
    /// Its identity: the UUID of its driver, or its PCI address.
    pub id: String,
    /// Its PCI address.
    pub address: String,
    /// Identity of the card of which it is a part, if it is not a whole one.
    pub part_of: Option<String>,
    /// Its vendor.
    pub vendor: Vendor,
    /// Marketing name.
    pub name: String,
    /// Memory, megabytes.
    pub vram_mb: u64,
    /// Memory in use, megabytes.
    pub used_mb: Reading<u64>,
    /// Load, 0 to 100.
    pub busy_percent: Reading<u32>,
    /// Degrees Celsius.
    pub temperature_c: Reading<u32>,
    /// Watts.
    pub power_w: Reading<f32>,
    /// Processes that compute on it, each with its memory there in megabytes if that is reported.
    pub computing: Reading<BTreeMap<u32, Option<u64>>>,
    /// Processes that its driver counts as drawing, likewise: for NVIDIA's, those that compute through Vulkan may be only among these.
    pub drawing: BTreeMap<u32, Option<u64>>,
    /// The name by which an engine can be restricted to this GPU, if the vendor has one.
    pub handle: Option<String>,
}

impl GpuReadings {
    /// The values that are not measured, each with the reason. A value that the next poll may have is not missing.
    pub fn missing(&self) -> Vec<String> {
        let readings = [
            ("memory in use", self.used_mb.as_ref().err()),
            ("load", self.busy_percent.as_ref().err()),
            ("temperature", self.temperature_c.as_ref().err()),
            ("power", self.power_w.as_ref().err()),
            ("other programs", self.computing.as_ref().err()),
        ];
        let reported = readings.into_iter().filter_map(|(what, reason)| Some((what, reason?)));
        reported
            .filter(|(_, reason)| is_lasting(reason))
            .map(|(what, reason)| format!("{what}: {reason}"))
            .collect()
    }

    /// All processes that use it, each with its memory there, megabytes. One may be listed as computing, as drawing, or as both.
    pub fn processes(&self) -> BTreeMap<u32, Option<u64>> {
        let mut all = self.drawing.clone();
        for (pid, mb) in self.computing.iter().flatten() {
            let known = all.entry(*pid).or_default();
            *known = (*known).max(*mb);
        }
        all
    }

    /// Makes the values that are only measured while it is awake those of a suspended one.
    fn fall_asleep(&mut self) {
        self.busy_percent = Err(ASLEEP.to_owned());
        self.temperature_c = Err(ASLEEP.to_owned());
        self.power_w = Err(ASLEEP.to_owned());
    }
}

/// Whether the value will also be missing at the next poll.
pub fn is_lasting(reason: &str) -> bool {
    ![ASLEEP, TWICE].contains(&reason)
}

/// What a probe found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProbeReport {
    /// The GPUs.
    pub seen: Vec<GpuReadings>,
    /// Why no GPU was found, if that is not a problem.
    pub none: Option<String>,
    /// Problems.
    pub problems: Vec<String>,
    /// Whether the driver does not answer, so that its GPUs and their use are unknown.
    pub is_silent: bool,
}

/// Polls the GPUs of one vendor.
pub trait Probe: fmt::Debug + Send + 'static {
    /// The GPUs that it polls, for people.
    fn name(&self) -> &'static str;

    /// Returns all of them. May block as long as a driver does.
    fn poll(&mut self, moment: &Moment) -> ProbeReport;
}

/// The time of a poll, and what is read once for all probes.
#[derive(Debug, Clone)]
pub struct Moment {
    /// A poll now.
    pub now: Instant,
    /// Whether workers that may use GPUs run.
    has_workers: bool,
    proc: PathBuf,
    clients: Arc<OnceLock<Clients>>,
}

impl Moment {
    /// A poll now, with the processes in `proc`.
    pub fn new(now: Instant, proc: &Path) -> Self {
        Self { now, has_workers: false, proc: proc.to_owned(), clients: Arc::default() }
    }

    /// The same while workers that may use GPUs run, if so.
    fn with_workers(self, has_workers: bool) -> Self {
        Self { has_workers, ..self }
    }

    fn clients(&self) -> &Clients {
        self.clients.get_or_init(|| Clients::scan(&self.proc))
    }
}

/// Where the kernel describes the machine. Other folders in tests.
#[derive(Debug, Clone)]
pub struct Roots {
    /// `/sys`
    pub sys: PathBuf,
    /// `/proc`
    pub proc: PathBuf,
    /// `/usr/share`, for the names of GPUs.
    pub share: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), share: "/usr/share".into() }
    }
}

/// A GPU with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// Its number, which never changes.
    pub index: u32,
    /// The values of the poll.
    pub seen: GpuReadings,
    /// Programs that compute on it and are not of this Island.
    pub foreign: Option<u32>,
    /// Memory used by workers, megabytes.
    pub ours_mb: Option<u64>,
    /// Whether the owner's limit decides how much of its memory jobs may use, because the memory in use is unknown. What workers were
    /// granted then counts as used until they end.
    pub by_limit: bool,
}

impl Card {
    /// Whether workers are granted memory of it: none of one whose memory in use is unknown, unless its owner's limit decides.
    pub fn is_granted(&self) -> bool {
        self.seen.used_mb.is_ok() || self.by_limit
    }
}

/// All GPUs at one poll.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// The GPUs that exist.
    pub cards: Vec<Card>,
    /// Why no GPU was found, if so.
    pub none: Option<String>,
    /// Problems for the owner: GPUs that disappeared, drivers that do not answer.
    pub problems: Vec<String>,
    /// Whether a driver does not answer: then it is unknown whether its GPUs are hot, or used by other programs.
    pub is_incomplete: bool,
}

impl View {
    /// The GPUs, for registration.
    pub fn list(&self) -> Vec<Gpu> {
        let gpu = |card: &Card| Gpu {
            index: card.index,
            name: card.seen.name.clone(),
            vram_mb: card.seen.vram_mb,
            id: Some(card.seen.id.clone()),
            vendor: Some(card.seen.vendor.as_str().to_owned()),
            part_of: card.seen.part_of.clone(),
            missing: card.seen.missing(),
        };
        self.cards.iter().map(gpu).collect()
    }

    /// The numbers of those that are parts of a card.
    pub fn parts(&self) -> Parts {
        self.cards.iter().filter(|card| card.seen.part_of.is_some()).map(|card| card.index).collect()
    }

    /// Their load, for heartbeats.
    pub fn loads(&self) -> Vec<GpuLoad> {
        let load = |card: &Card| GpuLoad {
            index: card.index,
            utilization_percent: card.seen.busy_percent.as_ref().ok().copied(),
            memory_used_mb: card.seen.used_mb.as_ref().ok().copied(),
            memory_total_mb: card.seen.vram_mb,
            temperature_c: card.seen.temperature_c.as_ref().ok().copied(),
            power_draw_w: card.seen.power_w.as_ref().ok().copied(),
        };
        self.cards.iter().map(load).collect()
    }

    /// All problems and missing values, for the owner.
    pub fn notes(&self) -> Vec<String> {
        let missing = self.cards.iter().flat_map(|card| {
            let index = card.index;
            card.seen.missing().into_iter().map(move |what| format!("GPU {index} reports no {what}"))
        });
        self.problems.iter().cloned().chain(missing).collect()
    }
}

/// Decides whether the owner's limit is used in place of a memory in use that is unknown.
struct Consent(Box<dyn Fn(&Card) -> bool + Send>);

impl fmt::Debug for Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consent").finish_non_exhaustive()
    }
}

/// The GPUs of this machine, polled repeatedly.
#[derive(Debug)]
pub struct Gpus {
    probes: Vec<Limited>,
    numbers: Numbers,
    proc: PathBuf,
    own: OwnProcesses,
    consent: Consent,
    /// Names of all GPUs found since the start.
    known: BTreeMap<u32, String>,
}

impl Gpus {
    /// The GPUs of this machine, with the numbers stored in `state`, and the emulated one of the engines' `devices`.
    pub fn here(state: &Path, devices: &[Device]) -> Self {
        let open = nvml_process::opener(OPENED_WITHIN);
        Self::under(&Roots::default(), open, Numbers::load(state), devices)
    }

    /// The same for a process that writes nothing.
    pub fn here_read_only(state: &Path, devices: &[Device]) -> Self {
        let numbers = Numbers::load(state).read_only();
        Self::under(&Roots::default(), nvml_process::opener(OPENED_ONCE_WITHIN), numbers, devices)
    }

    /// Distinguishes these processes from other programs.
    #[must_use]
    pub fn with_own(self, own: OwnProcesses) -> Self {
        Self { own, ..self }
    }

    /// Sets of which GPUs workers are granted memory by their owner's limit, see [`Card::by_limit`].
    #[must_use]
    pub fn with_consent(self, is_by_limit: impl Fn(&Card) -> bool + Send + 'static) -> Self {
        Self { consent: Consent(Box::new(is_by_limit)), ..self }
    }

    fn and_emulated(mut self, devices: &[Device]) -> Self {
        let emulated = software::Software::of(devices).map(|probe| Box::new(probe) as Box<dyn Probe>);
        self.probes.extend(emulated.map(Limited::new));
        self
    }

    fn under(roots: &Roots, open: nvidia::Open, numbers: Numbers, devices: &[Device]) -> Self {
        let probes: [Box<dyn Probe>; 3] = [
            Box::new(nvidia::Nvidia::new(open, roots)),
            Box::new(amd::Amd::new(roots)),
            Box::new(intel::Intel::new(roots).with_devices(devices)),
        ];
        let probes = probes.into_iter().chain(of_macos()).map(Limited::new).collect();
        Self::of(probes, numbers, roots.proc.clone()).and_emulated(devices)
    }

    fn of(probes: Vec<Limited>, numbers: Numbers, proc: PathBuf) -> Self {
        Self {
            probes,
            numbers,
            proc,
            own: OwnProcesses::default(),
            consent: Consent(Box::new(|_| false)),
            known: BTreeMap::new(),
        }
    }

    /// Polls all of them. Blocks for a limited time, whatever a driver does.
    pub fn poll(&mut self, now: Instant) -> View {
        let moment = Moment::new(now, &self.proc).with_workers(self.own.use_gpus());
        self.probes.iter_mut().for_each(|probe| probe.start(&moment));
        let until = Instant::now() + POLLED_WITHIN;
        let looks: Vec<ProbeReport> = self.probes.iter_mut().map(|probe| probe.result(until)).collect();
        let is_incomplete = looks.iter().any(|look| look.is_silent);
        let none: Vec<String> = looks.iter().filter_map(|look| look.none.clone()).collect();
        let mut problems: Vec<String> = looks.iter().flat_map(|look| look.problems.clone()).collect();
        let mut seen: Vec<GpuReadings> = looks.into_iter().flat_map(|look| look.seen).collect();
        // New GPUs get their numbers in the order in which they appear, whatever their vendor.
        seen.sort_by(|one, other| (&one.address, &one.id).cmp(&(&other.address, &other.id)));
        let mut cards: Vec<Card> = seen.into_iter().map(|seen| self.card(seen)).collect();
        cards.sort_by_key(|card| card.index);
        for card in &cards {
            self.known.insert(card.index, card.seen.name.clone());
        }
        let gone = self.known.iter().filter(|(index, _)| !cards.iter().any(|card| card.index == **index));
        problems.extend(gone.map(|(index, name)| format!("GPU {index} ({name}) has disappeared")));
        let none =
            cards.is_empty().then(|| none.into_iter().chain(problems.iter().cloned()).collect::<Vec<_>>());
        View { cards, none: none.map(|reasons| reasons.join("; ")), problems, is_incomplete }
    }

    fn card(&mut self, seen: GpuReadings) -> Card {
        let is_foreign = |pid: u32| self.own.is_foreign(&self.proc, pid);
        let computing = seen.computing.as_ref().ok();
        // A program that only draws, such as a desktop, is not one that computes.
        let foreign = computing.map(|all| all.keys().filter(|pid| is_foreign(**pid)).count() as u32);
        let ours = seen.processes().into_iter().filter(|(pid, _)| !is_foreign(*pid)).map(|(_, mb)| mb);
        let ours_mb = computing.and_then(|_| ours.sum::<Option<u64>>());
        let card = Card { index: self.numbers.of(&seen.id), foreign, ours_mb, seen, by_limit: false };
        Card { by_limit: (self.consent.0)(&card), ..card }
    }
}

#[cfg(target_os = "macos")]
fn of_macos() -> Option<Box<dyn Probe>> {
    Some(Box::new(apple::Apple(Box::new(macos::Reader::start()))))
}

#[cfg(not(target_os = "macos"))]
fn of_macos() -> Option<Box<dyn Probe>> {
    None
}

#[cfg(test)]
mod tests;
