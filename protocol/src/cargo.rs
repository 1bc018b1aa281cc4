//! Cargos: the catalogue entry consumers see, and the part of it an Island is told.

use std::{convert::Infallible, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{artifact::Artifact, credits::MicroCredits, ids::Slug};

/// Which engine runs a Cargo. Names that this build does not know survive a round trip.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RuntimeType {
    /// Docker or Podman.
    Container,
    /// wasmtime.
    Wasm,
    /// ONNX Runtime.
    Onnx,
    /// llama.cpp.
    Llmcpp,
    /// Stable Diffusion on candle.
    Diffusers,
    /// Core ML.
    Coreml,
    /// Anything newer than this build.
    Unknown(String),
}

impl RuntimeType {
    /// The six that the specification names.
    pub const ALL: [Self; 6] =
        [Self::Container, Self::Wasm, Self::Onnx, Self::Llmcpp, Self::Diffusers, Self::Coreml];

    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Container => "container",
            Self::Wasm => "wasm",
            Self::Onnx => "onnx",
            Self::Llmcpp => "llmcpp",
            Self::Diffusers => "diffusers",
            Self::Coreml => "coreml",
            Self::Unknown(name) => name,
        }
    }

    /// Whether the engine runs in main memory where a GPU has no room: GPU memory is then a wish, not a need.
    pub fn gpu_is_optional(&self) -> bool {
        matches!(self, Self::Llmcpp | Self::Onnx | Self::Diffusers | Self::Coreml | Self::Wasm)
    }

    /// Whether one worker runs all Cargos of this engine: they load in no time and hold no state worth a process each.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Container | Self::Wasm)
    }
}

impl From<String> for RuntimeType {
    fn from(name: String) -> Self {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name).unwrap_or(Self::Unknown(name))
    }
}

impl FromStr for RuntimeType {
    type Err = Infallible;
    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(name.to_owned().into())
    }
}

impl From<RuntimeType> for String {
    fn from(kind: RuntimeType) -> Self {
        kind.as_str().to_owned()
    }
}

impl fmt::Display for RuntimeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Grouping of Cargos by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// Chat language models.
    Llm,
    /// Image generation.
    Image,
    /// Speech to text and text to speech.
    Audio,
    /// Detection, segmentation, captioning, depth, OCR.
    Vision,
    /// Classification, embeddings, extraction, translation, summarisation.
    Text,
    /// Conversion, formatting, media processing.
    Utility,
}

impl Category {
    /// All six, in the order of the specification.
    pub const ALL: [Self; 6] = [Self::Llm, Self::Image, Self::Audio, Self::Vision, Self::Text, Self::Utility];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Vision => "vision",
            Self::Text => "text",
            Self::Utility => "utility",
        }
    }
}

/// How much of a host a sandboxed Cargo may ask for. What the owner allows is never exceeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SandboxTier {
    /// 256 MB, one processor, one minute, no GPU, no network.
    #[default]
    Restricted,
    /// 1 GB, two processors, five minutes, a GPU where the owner lends one, no network.
    Standard,
    /// 8 GB, four processors, ten minutes, a GPU, and network where the owner allows it.
    Elevated,
}

impl SandboxTier {
    /// Most main memory, megabytes.
    pub fn memory_mb(self) -> u64 {
        match self {
            Self::Restricted => 256,
            Self::Standard => 1024,
            Self::Elevated => 8192,
        }
    }

    /// Most seconds from start to end.
    pub fn seconds(self) -> u64 {
        match self {
            Self::Restricted => 60,
            Self::Standard => 300,
            Self::Elevated => 600,
        }
    }

    /// Most processors.
    pub fn cpus(self) -> u32 {
        match self {
            Self::Restricted => 1,
            Self::Standard => 2,
            Self::Elevated => 4,
        }
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Standard => "standard",
            Self::Elevated => "elevated",
        }
    }
}

/// A catalogue entry as `GET /cargos` lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CargoEntry {
    /// Identifier, usable as `workload` and as chat `model`.
    pub slug: Slug,
    /// Display name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Which engine runs it.
    pub runtime_type: RuntimeType,
    /// Task of an ONNX Cargo, null for the others.
    pub onnx_task_type: Option<String>,
    /// Credits for one job.
    pub price_per_job: MicroCredits,
    /// GPU memory needed, megabytes.
    pub required_vram_mb: u64,
    /// Main memory needed, megabytes.
    pub required_ram_mb: u64,
    /// Grouping by use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
}

/// Bounds on one job of a Cargo. The agent enforces them; engines are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Seconds from start to end.
    pub timeout_s: u64,
    /// Bytes of events a job may emit.
    pub max_output_bytes: u64,
    /// Most tokens a job may ask for; 0 where tokens mean nothing.
    pub max_tokens: u64,
    /// Context window to load a language model with, tokens; 0 takes the model's own, at most 4096.
    pub context_tokens: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout_s: 600, max_output_bytes: 8 << 20, max_tokens: 4096, context_tokens: 0 }
    }
}

/// What an Island is told about a Cargo: everything needed to run it, and what it pays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CargoSpec {
    /// Identifier.
    pub slug: Slug,
    /// Which engine.
    pub runtime_type: RuntimeType,
    /// Task of an ONNX Cargo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onnx_task_type: Option<String>,
    /// What a job of it pays.
    #[serde(default)]
    pub price_per_job: MicroCredits,
    /// Files to fetch, verify and pin before the run.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// GPU memory needed, megabytes.
    #[serde(default)]
    pub required_vram_mb: u64,
    /// Main memory needed, megabytes.
    #[serde(default)]
    pub required_ram_mb: u64,
    /// Bounds on a job.
    #[serde(default)]
    pub limits: Limits,
    /// How much of the host a wasm or container Cargo may ask for; absent, as little as there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_tier: Option<SandboxTier>,
    /// Settings for the engine alone, as the catalogue's `[engine]` table gives them.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub engine: Value,
}

impl CargoSpec {
    /// Whether the scripted stand-in runs this Cargo instead of a real engine.
    pub fn is_simulated(&self) -> bool {
        self.engine.get("simulated").and_then(Value::as_bool).unwrap_or(false)
    }

    /// Whether a reply that broke off can go on elsewhere behind the text that was delivered. A scripted engine does so where its
    /// Cargo says it.
    pub fn continues_text(&self) -> bool {
        let says = self.engine.get("continues").and_then(Value::as_bool).unwrap_or(false);
        self.runtime_type == RuntimeType::Llmcpp && (says || !self.is_simulated())
    }

    /// Whether one worker runs this Cargo beside others of its engine.
    pub fn is_shared(&self) -> bool {
        self.runtime_type.is_shared() && !self.is_simulated()
    }
}
