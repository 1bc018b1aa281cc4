//! GPUs: ONNX Runtime's plugins for them, and the devices on which those run graphs.
//!
//! A plugin is one library, registered in the stock ONNX Runtime: for WebGPU, which runs on Vulkan and so on GPUs of every maker, and for
//! CUDA where its provider is installed. Plugins are registered by probes and by workers that were granted a GPU, inside the sandbox: they
//! open drivers, which start threads.

use std::{
    collections::BTreeMap,
    env,
    ffi::CStr,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use half::f16;
use island_protocol::host::Device;
use island_runtimes_kit::error::{EngineError, ErrorKind};
use ort::{
    device::Device as ProviderDevice,
    environment::Environment,
    session::{Session, builder::SessionBuilder},
    value::{PrimitiveTensorElementType, Tensor},
};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    library, native, trial,
    vulkan::{self, Adapter, WEBGPU},
};

/// Name of the fact that contains a device's PCI address.
const ADDRESS: &CStr = c"pci_bus_id";

/// A plugin for a kind of GPU.
#[derive(Debug)]
struct Plugin {
    /// Programming interface: [`Device::api`].
    api: &'static str,
    /// Name of its library, which lies beside ONNX Runtime.
    library: &'static str,
    /// Environment variable that may name the library's path.
    variable: Option<&'static str>,
    /// Whether ONNX Runtime is expected to have it.
    is_shipped: bool,
}

/// All plugins; earlier ones are preferred for a GPU that several of them find.
const PLUGINS: [Plugin; 2] = [
    Plugin { api: "cuda", library: "libonnxruntime_providers_cuda.so", variable: None, is_shipped: false },
    Plugin {
        api: WEBGPU,
        library: "libonnxruntime_providers_webgpu.so",
        variable: Some("ISLAND_WEBGPU_PLUGIN"),
        is_shipped: true,
    },
];

/// A device that a plugin offers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    /// Name of the plugin's provider.
    provider: String,
    /// What it is.
    device: Device,
}

/// What plugins offer, and why others offer nothing, by their programming interface.
#[derive(Debug, Default)]
struct Offers {
    candidates: Vec<Candidate>,
    problems: BTreeMap<String, String>,
}

/// The devices of this machine on which graphs run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// GPUs, preferred ones first, and the processor.
    pub devices: Vec<Device>,
    /// Why plugins offer no device, by their programming interface.
    pub problems: BTreeMap<String, String>,
}

/// A GPU that runs graphs. One for each process, because the plugin has one device for all sessions.
#[derive(Debug)]
pub struct Gpu {
    environment: &'static Environment,
    provider: String,
    device: Device,
    has_half: bool,
    limit: u64,
    used: AtomicU64,
    /// Held during use of the device.
    turn: Mutex<()>,
}

/// Memory of a GPU that weights occupy.
#[derive(Debug)]
pub struct Reserved {
    gpu: &'static Gpu,
    bytes: u64,
}

impl Reserved {
    /// Waits until nobody else uses the device.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.gpu.turn()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.gpu.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Finds the devices of this machine, and runs a small graph on each kind of GPU. Opens drivers.
pub fn probe(environment: &'static Environment) -> Found {
    let Offers { candidates, mut problems } = offers(environment);
    let mut devices: Vec<Device> = Vec::new();
    for plugin in &PLUGINS {
        let mut own = candidates.iter().filter(|candidate| candidate.device.api == plugin.api).peekable();
        let Some(first) = own.peek() else { continue };
        if let Err(error) = computes::<f32>(environment, first, 2.0) {
            problems.insert(plugin.api.to_owned(), failed_trial(first, &error));
            continue;
        }
        let is_new = |device: &Device| {
            device.address.is_none() || devices.iter().all(|known| known.address != device.address)
        };
        let new: Vec<_> = own.map(|candidate| candidate.device.clone()).filter(is_new).collect();
        devices.extend(new);
    }
    devices.push(Device::cpu());
    Found { devices, problems }
}

impl Gpu {
    /// Opens the GPU that was granted: one of these PCI addresses, or any if none is known. `limit_mb` is the memory that weights may occupy.
    /// Drivers start threads, so this follows the sandbox. Later calls return the GPU of the first.
    ///
    /// # Errors
    /// If no plugin can use the GPU, with the reason of each.
    pub fn open(
        environment: &'static Environment,
        addresses: &[Option<String>],
        limit_mb: u64,
    ) -> Result<&'static Self, EngineError> {
        static OPENED: OnceLock<Result<Gpu, EngineError>> = OnceLock::new();
        OPENED.get_or_init(|| Self::try_open(environment, addresses, limit_mb)).as_ref().map_err(Clone::clone)
    }

    fn try_open(
        environment: &'static Environment,
        addresses: &[Option<String>],
        limit_mb: u64,
    ) -> Result<Self, EngineError> {
        let Offers { candidates, mut problems } = offers(environment);
        for plugin in &PLUGINS {
            let own: Vec<_> =
                candidates.iter().filter(|candidate| candidate.device.api == plugin.api).collect();
            if own.is_empty() {
                continue;
            }
            let Some(candidate) = choose(plugin, &own, addresses) else {
                let seen: Vec<_> = own.iter().map(|candidate| describe(&candidate.device)).collect();
                problems.insert(plugin.api.to_owned(), format!("it would use {}", seen.join(" or ")));
                continue;
            };
            if let Err(error) = computes::<f32>(environment, candidate, 2.0) {
                problems.insert(plugin.api.to_owned(), failed_trial(candidate, &error));
                continue;
            }
            let half = computes(environment, candidate, f16::from_f32(2.0));
            if let Err(error) = &half {
                tracing::info!(device = candidate.device.name, %error, "the GPU does not compute in half precision");
            }
            return Ok(Self {
                environment,
                provider: candidate.provider.clone(),
                device: candidate.device.clone(),
                has_half: half.is_ok(),
                limit: limit_mb << 20,
                used: AtomicU64::new(0),
                turn: Mutex::new(()),
            });
        }
        let granted: Vec<_> = addresses.iter().flatten().map(String::as_str).collect();
        let granted = if granted.is_empty() { "that was granted".to_owned() } else { granted.join(", ") };
        let problems: Vec<_> = problems.iter().map(|(api, problem)| format!("{api}: {problem}")).collect();
        Err(EngineError::host(format!("the GPU {granted} cannot run graphs: {}", problems.join("; "))))
    }

    /// What it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its interface and name, as in [`island_protocol::job::Usage::device`].
    pub fn label(&self) -> String {
        format!("{}: {}", self.device.api, self.device.name)
    }

    /// Whether it computes in half precision.
    pub fn has_half(&self) -> bool {
        self.has_half
    }

    /// Name of the provider that runs its nodes.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// Memory that the weights of its graphs occupy, megabytes.
    pub fn used_mb(&self) -> u64 {
        self.used.load(Ordering::Relaxed) >> 20
    }

    /// Counts the weights of another graph, until the result is dropped.
    ///
    /// # Errors
    /// If all together would need more memory than was granted.
    pub fn reserve(&'static self, bytes: u64) -> Result<Reserved, EngineError> {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.limit)
        });
        taken.map(|_| Reserved { gpu: self, bytes }).map_err(|used| {
            let (needed, limit) = (used.saturating_add(bytes) >> 20, self.limit >> 20);
            let message =
                format!("the model's weights need {needed} MB of GPU memory, and {limit} MB were granted");
            EngineError::new(ErrorKind::OutOfMemory, message)
        })
    }

    /// Waits until nobody else uses the device. Sessions share it without locks: concurrent runs of two crash
    /// (<https://github.com/microsoft/onnxruntime/issues/32561>).
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Whether it still runs a small graph: a device that its driver has reset runs none. The caller has its turn.
    pub(crate) fn works(&self) -> bool {
        let candidate = Candidate { provider: self.provider.clone(), device: self.device.clone() };
        computes::<f32>(self.environment, &candidate, 2.0).is_ok()
    }

    /// Makes a session run on it. Nodes that it does not support remain on the processor.
    pub fn run_on(&self, builder: SessionBuilder) -> ort::Result<SessionBuilder> {
        on(self.environment, &self.provider, &self.device, builder)
    }
}

/// The GPU to use among those that a plugin offers.
///
/// CUDA runs on the one that it is given. WebGPU runs on the first, which must be a granted one.
fn choose<'c>(
    plugin: &Plugin,
    offered: &[&'c Candidate],
    addresses: &[Option<String>],
) -> Option<&'c Candidate> {
    let is_granted = |candidate: &&&Candidate| {
        let address = &candidate.device.address;
        address.is_none() || addresses.iter().any(|granted| granted.is_none() || granted == address)
    };
    let limit = if plugin.api == WEBGPU { 1 } else { offered.len() };
    offered.iter().take(limit).find(is_granted).copied()
}

/// All that the plugins offer. Each is registered when this is first called.
fn offers(environment: &'static Environment) -> Offers {
    static REGISTERED: OnceLock<Vec<Result<String, String>>> = OnceLock::new();
    let registered =
        REGISTERED.get_or_init(|| PLUGINS.iter().map(|plugin| register(environment, plugin)).collect());
    let mut offers = Offers::default();
    for (plugin, registered) in PLUGINS.iter().zip(registered) {
        let found = match registered {
            Ok(provider) if plugin.api == WEBGPU => webgpu(provider),
            Ok(provider) => Ok(devices(environment, provider, plugin.api)),
            // An option that is not installed is not a problem.
            Err(problem) if problem.is_empty() => continue,
            Err(problem) => Err(problem.clone()),
        };
        match found {
            Ok(candidates) => offers.candidates.extend(candidates),
            Err(problem) => {
                offers.problems.insert(plugin.api.to_owned(), problem);
            }
        }
    }
    offers
}

/// Registers a plugin, and returns the name of its provider. The problem is empty if the plugin is an option that is not installed.
fn register(environment: &'static Environment, plugin: &Plugin) -> Result<String, String> {
    let Some(path) = locate(plugin)? else {
        if !plugin.is_shipped {
            return Err(String::new());
        }
        return Err(format!("there is no {} beside ONNX Runtime", plugin.library));
    };
    let names = || -> Vec<String> {
        environment.devices().filter_map(|device| device.ep().ok().map(str::to_owned)).collect()
    };
    let before = names();
    environment
        .register_ep_library(plugin.api, &path)
        .map_err(|error| format!("{} cannot be registered: {error}", path.display()))?;
    let new = names().into_iter().find(|name| !before.contains(name));
    new.ok_or_else(|| format!("{} finds no GPU in this machine", plugin.library))
}

/// The path of a plugin's library.
fn locate(plugin: &Plugin) -> Result<Option<PathBuf>, String> {
    if let Some(variable) = plugin.variable
        && let Some(path) = env::var_os(variable).map(PathBuf::from)
    {
        let missing = || format!("{variable} names {}, which does not exist", path.display());
        return if path.is_file() { Ok(Some(path)) } else { Err(missing()) };
    }
    let paths = library::plugin_folders().into_iter().map(|folder| folder.join(plugin.library));
    Ok(paths.into_iter().find(|path| path.is_file()))
}

/// Folders that contain plugins, which the sandbox of a worker with a GPU must allow to be loaded.
pub fn folders() -> Vec<PathBuf> {
    let found = PLUGINS.iter().filter_map(|plugin| locate(plugin).ok().flatten());
    let mut folders: Vec<PathBuf> =
        found.filter_map(|path| path.canonicalize().ok()?.parent().map(Path::to_owned)).collect();
    folders.dedup();
    folders
}

/// The devices of WebGPU: those of Vulkan, because its provider does not report them.
fn webgpu(provider: &str) -> Result<Vec<Candidate>, String> {
    let adapters = vulkan::adapters()?;
    let usable = usable(&adapters, library::allows_software())?;
    Ok(usable.into_iter().map(|device| Candidate { provider: provider.to_owned(), device }).collect())
}

/// The devices among these on which graphs may run: GPUs, and emulated ones if those are allowed.
fn usable(adapters: &[Adapter], allows_software: bool) -> Result<Vec<Device>, String> {
    let usable: Vec<Device> = adapters
        .iter()
        .map(|adapter| adapter.device.clone())
        .filter(|device| allows_software || !device.is_software)
        .collect();
    match (usable.is_empty(), adapters.first()) {
        (true, Some(only)) => Err(format!(
            "Vulkan's only device is {}, which the processor emulates; install the GPU's driver",
            only.device.name
        )),
        (true, None) => Err("Vulkan finds no device; install the GPU's driver".to_owned()),
        (false, _) => Ok(usable),
    }
}

/// The devices of a provider that runs on the one it is given.
fn devices(environment: &'static Environment, provider: &str, api: &str) -> Vec<Candidate> {
    let own = environment.devices().filter(|device| device.ep().is_ok_and(|name| name == provider));
    let candidate = |device: ProviderDevice<'_>| {
        let hardware = device.hardware_device();
        Candidate {
            provider: provider.to_owned(),
            device: Device {
                api: api.to_owned(),
                name: hardware.vendor().unwrap_or("GPU").to_owned(),
                address: native::metadata(&hardware, ADDRESS),
                ..Device::default()
            },
        }
    };
    own.map(candidate).collect()
}

/// Makes a session run on a device of a provider.
fn on(
    environment: &'static Environment,
    provider: &str,
    device: &Device,
    builder: SessionBuilder,
) -> ort::Result<SessionBuilder> {
    let own = || environment.devices().filter(|device| device.ep().is_ok_and(|name| name == provider));
    let has_address = |own: &ProviderDevice<'_>| {
        device.address.is_some() && native::metadata(&own.hardware_device(), ADDRESS) == device.address
    };
    let chosen = own().find(has_address).or_else(|| own().next());
    let chosen = chosen.ok_or_else(|| ort::Error::new(format!("{provider} has no device")))?;
    builder.with_devices([chosen], None).map_err(ort::Error::from)
}

/// Doubles a number on a device.
fn computes<T: PrimitiveTensorElementType + std::fmt::Debug + Copy + PartialEq + 'static>(
    environment: &'static Environment,
    candidate: &Candidate,
    number: T,
) -> ort::Result<()>
where
    f32: From<T>,
{
    let builder = Session::builder(environment)?.with_intra_threads(1)?.with_disable_cpu_fallback()?;
    let mut session = on(environment, &candidate.provider, &candidate.device, builder)?
        .commit_from_memory(&trial::doubling(T::into_tensor_element_type()))?;
    let input = Tensor::from_array(([trial::LENGTH], vec![number; trial::LENGTH]))?;
    let outputs = session.run(ort::inputs![input])?;
    let (_, doubled) = outputs[0].try_extract_tensor::<T>()?;
    let expected = 2.0 * f32::from(number);
    if doubled.iter().any(|&sum| f32::from(sum) != expected) {
        return Err(ort::Error::new(format!("it computes 2 + 2 = {:?}", doubled.first())));
    }
    Ok(())
}

fn failed_trial(candidate: &Candidate, error: &ort::Error) -> String {
    format!("{} fails at a small graph: {}", describe(&candidate.device), error.message())
}

/// A device in words.
fn describe(device: &Device) -> String {
    let address = device.address.as_deref().map(|address| format!(" at {address}"));
    format!("{}{}", device.name, address.unwrap_or_default())
}

#[cfg(test)]
mod tests;
