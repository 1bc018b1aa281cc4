//! On which devices each engine runs models, and why it does not use a GPU, in words for the owner. Pure.

use std::collections::BTreeMap;

use island_protocol::host::Device;
use island_runtimes_worker::launch::ProbeReport;
use serde::{Deserialize, Serialize};

use super::{
    devices::{card_of, cards_of, used},
    gpu::{Card, Vendor},
};

/// Probe details with this prefix explain why a module of an engine cannot be used.
const MODULE: &str = "module.";
/// Further such details.
const INTERFACES: [&str; 5] = ["webgpu", "cuda", "vulkan", "metal", "gpu"];

/// The devices of one engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineDevices {
    /// The engine.
    pub engine: String,
    /// The devices on which it runs models.
    pub devices: Vec<UsedDevice>,
    /// The GPUs that it does not use.
    #[serde(default)]
    pub unused: Vec<UnusedGpu>,
}

/// A device on which an engine runs models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedDevice {
    /// Its programming interfaces, such as `cuda` and `vulkan`.
    pub apis: Vec<String>,
    /// Its name.
    pub name: String,
    /// The number of the GPU that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
}

/// A GPU that an engine does not use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusedGpu {
    /// Its number.
    pub gpu: u32,
    /// Why, and what to do.
    pub reason: String,
}

impl EngineDevices {
    /// Describes an engine by its probe.
    pub fn of(engine: &str, report: &ProbeReport, cards: &[Card]) -> Self {
        let mut devices: Vec<UsedDevice> = Vec::new();
        for device in used(&report.devices, cards) {
            let card = card_of(device, &report.devices, cards);
            let (gpu, name) = match card {
                Some(card) => (Some(card.index), card.seen.name.clone()),
                None => (None, device.name.clone()),
            };
            let known = devices.iter_mut().find(|known| known.gpu == gpu && known.name == name);
            match known {
                Some(known) if known.apis.contains(&device.api) => {}
                Some(known) => known.apis.push(device.api.clone()),
                None => devices.push(UsedDevice { apis: vec![device.api.clone()], name, gpu }),
            }
        }
        let owned = cards_of(&report.devices, cards);
        let unused = cards.iter().filter(|card| !owned.contains(&card.index));
        let unused = unused.map(|card| UnusedGpu { gpu: card.index, reason: reason(report, card) }).collect();
        Self { engine: engine.to_owned(), devices, unused }
    }

    /// Moves the GPUs for which `reason` returns one to those that it does not use.
    #[must_use]
    pub fn without(mut self, reason: impl Fn(u32) -> Option<String>) -> Self {
        let withheld: BTreeMap<u32, String> =
            self.devices.iter().filter_map(|device| Some((device.gpu?, reason(device.gpu?)?))).collect();
        self.devices.retain(|device| device.gpu.is_none_or(|gpu| !withheld.contains_key(&gpu)));
        self.unused.extend(withheld.into_iter().map(|(gpu, reason)| UnusedGpu { gpu, reason }));
        self
    }

    /// The devices in words: `Vulkan on NVIDIA GeForce RTX 3090 (GPU 0)`. The processor is named only if there is nothing else.
    pub fn in_words(&self) -> String {
        let gpus: Vec<String> =
            self.devices.iter().filter(|device| !device.is_cpu()).map(UsedDevice::in_words).collect();
        if gpus.is_empty() { "processor".to_owned() } else { gpus.join(", ") }
    }

    /// The GPUs that it does not use, in words.
    pub fn notes(&self) -> impl Iterator<Item = (u32, String)> + '_ {
        let note = |unused: &UnusedGpu| {
            let UnusedGpu { gpu, reason } = unused;
            (*gpu, format!("GPU {gpu} is not used by {}: {reason}", self.engine))
        };
        self.unused.iter().map(note)
    }
}

impl UsedDevice {
    fn is_cpu(&self) -> bool {
        self.gpu.is_none() && self.apis.iter().all(|api| api == island_protocol::host::CPU)
    }

    fn in_words(&self) -> String {
        let apis: Vec<&str> = self.apis.iter().map(|api| Device::api_name(api)).collect();
        let number = self.gpu.map(|gpu| format!(" (GPU {gpu})")).unwrap_or_default();
        format!("{} on {}{number}", apis.join(" and "), self.name)
    }
}

/// What the engine's probe reports about the interfaces that could use this GPU, otherwise the driver that is probably missing.
fn reason(report: &ProbeReport, card: &Card) -> String {
    // Whatever the engine finds, no worker is granted any of it.
    if let Some(reason) = why_nothing_is_granted(card) {
        return reason;
    }
    let concerns = |key: &str| {
        let name = key.strip_prefix(MODULE).unwrap_or(key);
        let is_about_gpus = key.starts_with(MODULE) || INTERFACES.contains(&name);
        // CUDA is of NVIDIA, and optional where Vulkan works.
        is_about_gpus && (name != "cuda" || card.seen.vendor == Vendor::Nvidia)
    };
    let problems: Vec<&str> =
        report.details.iter().filter(|(key, _)| concerns(key)).map(|(_, problem)| problem.as_str()).collect();
    if !problems.is_empty() {
        return problems.join("; ");
    }
    let cure = match card.seen.vendor {
        Vendor::Nvidia => "install the driver's Vulkan library (nvidia-vulkan-icd), then restart the agent",
        Vendor::Amd | Vendor::Intel => "install mesa-vulkan-drivers, then restart the agent",
        Vendor::Apple | Vendor::Software => "this build of the engine cannot use it",
    };
    format!("it finds no such device; {cure}")
}

/// Why no worker is granted memory of a GPU, if so, with the rule of its owner that changes it.
fn why_nothing_is_granted(card: &Card) -> Option<String> {
    let unknown = card.seen.used_mb.as_ref().err().filter(|_| !card.is_granted())?;
    let reason = format!("its memory in use is unknown: {unknown}");
    let Card { index, seen, .. } = card;
    if seen.vendor != Vendor::Intel {
        return Some(reason);
    }
    // The rest is enough for a desktop.
    let most_mb = seen.vram_mb - seen.vram_mb / 8;
    Some(format!(
        "{reason}; to allow jobs an amount whatever other programs use, add a [[policy.gpu]] with `gpu = {index}` and \
         `max_vram_mb = {most_mb}`, or less, to the settings and restart the agent"
    ))
}

#[cfg(test)]
mod tests {
    use island_protocol::{cargo::RuntimeType, host::SandboxReport};

    use super::*;
    use crate::owner::policy::gpus::tests::card;

    fn report(devices: &[(&str, &str, Option<&str>)], details: &[(&str, &str)]) -> ProbeReport {
        let device = |(api, name, address): &(&str, &str, Option<&str>)| Device {
            api: (*api).into(),
            name: (*name).into(),
            address: address.map(Into::into),
            ..Device::default()
        };
        ProbeReport {
            kind: RuntimeType::Llmcpp,
            version: "1".into(),
            devices: devices.iter().map(device).collect(),
            backend: None,
            details: details.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect(),
            features: Vec::new(),
            unavailable: None,
            sandbox: SandboxReport::default(),
        }
    }

    fn two() -> Vec<Card> {
        vec![card(0, Vendor::Nvidia, 8000, Ok(0), None), card(1, Vendor::Amd, 8000, Ok(0), None)]
    }

    fn lines(engine: &EngineDevices) -> String {
        let notes = engine.notes().map(|(_, note)| note);
        std::iter::once(format!("{}: {}", engine.engine, engine.in_words()))
            .chain(notes)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn devices_and_missing_ones_are_described() {
        let cpu = ("cpu", "CPU", None);
        let both =
            [("cuda", "NVIDIA A", Some("0000:00:00.0")), ("vulkan", "NVIDIA A", Some("0000:00:00.0")), cpu];
        let no_cuda =
            [("module.cuda", "no cuda module: /usr/lib/island/backends/libggml-cuda.so does not exist")];
        let no_vulkan = [("webgpu", "no Vulkan driver was found"), ("cpu_variant", "haswell")];
        let described = [
            EngineDevices::of("llmcpp", &report(&both, &no_cuda), &two()),
            EngineDevices::of("onnx", &report(&[cpu], &no_vulkan), &two()),
            EngineDevices::of("diffusers", &report(&[cpu], &[]), &two()),
        ];
        insta::assert_snapshot!(described.iter().map(lines).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_gpu_whose_memory_in_use_is_unknown_is_not_shown_as_used() {
        let mut card = card(0, Vendor::Intel, 16_000, Ok(0), None);
        let arc = [("vulkan", "Intel(R) Arc(TM)", Some("0000:00:00.0")), ("cpu", "CPU", None)];
        let of =
            |card: &Card| lines(&EngineDevices::of("llmcpp", &report(&arc, &[]), std::slice::from_ref(card)));
        assert_eq!(of(&card), "llmcpp: Vulkan on Some GPU (GPU 0)");
        card.seen.used_mb = Err("it is hidden".into());
        assert_eq!(
            of(&card),
            "llmcpp: processor\nGPU 0 is not used by llmcpp: its memory in use is unknown: it is hidden; to allow jobs an amount \
             whatever other programs use, add a [[policy.gpu]] with `gpu = 0` and `max_vram_mb = 14000`, or less, to the settings and \
             restart the agent"
        );
        card.by_limit = true;
        assert_eq!(of(&card), "llmcpp: Vulkan on Some GPU (GPU 0)", "its owner has allowed an amount");
        (card.by_limit, card.seen.vendor) = (false, Vendor::Amd);
        assert!(of(&card).ends_with("unknown: it is hidden"), "a fault, for which no setting is a cure");
    }

    #[test]
    fn a_gpu_that_is_no_card_runs_no_models() {
        let integrated = [("vulkan", "Intel(R) UHD Graphics", Some("0000:00:02.0")), ("cpu", "CPU", None)];
        let engine = EngineDevices::of("llmcpp", &report(&integrated, &[]), &[]);
        assert_eq!(lines(&engine), "llmcpp: processor");
    }
}
