//! Cargos: the catalogue entry for consumers, and the part of it that Islands receive.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::VariantArray;

use crate::{
    artifact::Artifact,
    credits::MicroCredits,
    ids::{AccountId, PublicationId, Slug},
    time::Timestamp,
};

/// The engine that runs a Cargo. Names that this build does not know survive a round trip.
#[derive(
    Debug,
    Clone,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::AsRefStr,
    strum::Display,
    strum::EnumString,
)]
#[serde(from = "String", into = "String")]
#[strum(serialize_all = "lowercase")]
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
    /// An engine newer than this build.
    #[strum(default, transparent)]
    Unknown(String),
}

impl RuntimeType {
    /// The six engines of the specification.
    pub const ALL: [Self; 6] =
        [Self::Container, Self::Wasm, Self::Onnx, Self::Llmcpp, Self::Diffusers, Self::Coreml];

    /// Returns the name on the wire.
    pub fn as_str(&self) -> &str {
        self.as_ref()
    }

    /// Returns whether the engine can run in main memory if a GPU has too little: GPU memory is then preferred, not required.
    pub fn gpu_is_optional(&self) -> bool {
        matches!(self, Self::Llmcpp | Self::Onnx | Self::Diffusers | Self::Coreml | Self::Wasm)
    }

    /// Returns whether one worker runs all Cargos of this engine: they load in no time and keep no state worth a process each.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Container | Self::Wasm)
    }
}

impl From<String> for RuntimeType {
    fn from(name: String) -> Self {
        name.parse().unwrap_or(Self::Unknown(name))
    }
}

impl From<RuntimeType> for String {
    fn from(kind: RuntimeType) -> Self {
        kind.as_str().to_owned()
    }
}

/// Grouping of Cargos by use.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Category {
    /// Chat language models.
    Llm,
    /// Image generation.
    Image,
    /// Speech to text and text to speech.
    Audio,
    /// Detection, segmentation, captioning, depth, OCR.
    Vision,
    /// Classification, embeddings, extraction, translation, summarization.
    Text,
    /// Conversion, formatting, media processing.
    Utility,
}

impl Category {
    /// Every category, in the order of the specification.
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Resource limits of a sandboxed Cargo. The owner's limits always apply in addition.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SandboxTier {
    /// 256 MB, one processor, one minute, no GPU, no network.
    #[default]
    Restricted,
    /// 1 GB, two processors, five minutes, a GPU if the owner allows it, no network.
    Standard,
    /// 8 GB, four processors, ten minutes, a GPU, and network where the owner allows it.
    Elevated,
}

impl SandboxTier {
    /// Returns the maximum main memory, megabytes.
    pub fn memory_mb(self) -> u64 {
        match self {
            Self::Restricted => 256,
            Self::Standard => 1024,
            Self::Elevated => 8192,
        }
    }

    /// Returns the maximum duration, seconds.
    pub fn seconds(self) -> u64 {
        match self {
            Self::Restricted => 60,
            Self::Standard => 300,
            Self::Elevated => 600,
        }
    }

    /// Returns the maximum number of processors.
    pub fn cpus(self) -> u32 {
        match self {
            Self::Restricted => 1,
            Self::Standard => 2,
            Self::Elevated => 4,
        }
    }

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
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
    /// Task of an ONNX Cargo, null for other engines.
    pub onnx_task_type: Option<String>,
    /// Credits for one job, apart from its tokens; of one unit of it, if there is a unit.
    pub price_per_job: MicroCredits,
    /// What the price of a job is for; absent if it is for the whole job.
    #[serde(default, skip_serializing_if = "PriceUnit::is_job")]
    pub price_unit: PriceUnit,
    /// Prices of its tokens; absent if they cost nothing in addition.
    #[serde(flatten)]
    pub token_prices: TokenPrices,
    /// Required GPU memory, megabytes.
    pub required_vram_mb: u64,
    /// Required main memory, megabytes.
    pub required_ram_mb: u64,
    /// Grouping by use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Who published it; absent for a Cargo of the operators' catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// What the price of a job is for. Jobs are compared by it: one image, one minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PriceUnit {
    /// The whole job.
    #[default]
    Job,
    /// Each image that is requested.
    Image,
    /// Each minute of the sound in the input, second by second, and at least ten seconds.
    Minute,
}

impl PriceUnit {
    /// Whether the price is for the whole job.
    pub fn is_job(&self) -> bool {
        *self == Self::Job
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Image => "image",
            Self::Minute => "minute",
        }
    }
}

/// Prices of the tokens of a language model's jobs, in addition to the price of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TokenPrices {
    /// Credits for 1,000 tokens of the prompt.
    #[serde(default, skip_serializing_if = "MicroCredits::is_zero")]
    pub price_per_1k_input: MicroCredits,
    /// Credits for 1,000 tokens of the reply, reasoning included.
    #[serde(default, skip_serializing_if = "MicroCredits::is_zero")]
    pub price_per_1k_output: MicroCredits,
}

impl TokenPrices {
    /// Returns whether tokens cost nothing.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the price of a prompt and a reply, rounded up to a micro-credit.
    pub fn of(&self, input: u64, output: u64) -> MicroCredits {
        let cost = |price: MicroCredits, tokens: u64| i128::from(price.0) * i128::from(tokens);
        let thousandths = cost(self.price_per_1k_input, input) + cost(self.price_per_1k_output, output);
        let rounded = thousandths / 1000 + i128::from(thousandths % 1000 > 0);
        MicroCredits(i64::try_from(rounded).unwrap_or(i64::MAX))
    }
}

/// Origin of a Cargo that an account published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Published {
    /// The account that submitted it.
    pub publisher: AccountId,
    /// The version that is served.
    pub publication: PublicationId,
    /// Time at which an operator approved it.
    pub approved_at: Timestamp,
}

/// Limits of one job of a Cargo, enforced by the agent and passed to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum duration, seconds.
    pub timeout_s: u64,
    /// Maximum size of all events of a job, bytes.
    pub max_output_bytes: u64,
    /// Maximum number of tokens that a job may request; 0 if the Cargo has no tokens.
    pub max_tokens: u64,
    /// Context window of a language model, tokens; 0 is the model's own, at most 4096.
    pub context_tokens: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout_s: 600, max_output_bytes: 8 << 20, max_tokens: 4096, context_tokens: 0 }
    }
}

/// What an Island receives about a Cargo: everything needed to run it, and its price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CargoSpec {
    /// Identifier.
    pub slug: Slug,
    /// Which engine.
    pub runtime_type: RuntimeType,
    /// Task of an ONNX Cargo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onnx_task_type: Option<String>,
    /// Price of a job, apart from its tokens.
    #[serde(default)]
    pub price_per_job: MicroCredits,
    /// Prices of its tokens.
    #[serde(flatten)]
    pub token_prices: TokenPrices,
    /// Files to download, verify and pin before the run.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// Required GPU memory, megabytes.
    #[serde(default)]
    pub required_vram_mb: u64,
    /// Required main memory, megabytes.
    #[serde(default)]
    pub required_ram_mb: u64,
    /// Limits of a job.
    #[serde(default)]
    pub limits: Limits,
    /// Tier of a wasm or container Cargo; if absent, the lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_tier: Option<SandboxTier>,
    /// Settings for the engine only, from the catalogue's `[engine]` table.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub engine: Value,
}

/// Memory of a wasm program whose Cargo states none, megabytes.
const WASM_MEMORY_MB: u64 = 256;

impl CargoSpec {
    /// Returns the main memory that the Cargo may take without a GPU, megabytes: what it states, or what its engine gives a program whose
    /// Cargo states none.
    pub fn ram_mb(&self) -> u64 {
        match self.runtime_type {
            _ if self.required_ram_mb > 0 || !self.is_shared() => self.required_ram_mb,
            RuntimeType::Wasm => WASM_MEMORY_MB,
            _ => self.sandbox_tier.unwrap_or_default().memory_mb(),
        }
    }

    /// Returns the price by which Cargos are compared: of a job, with 1,000 tokens of a prompt and 1,000 of a reply if these have prices.
    pub fn usual_price(&self) -> MicroCredits {
        let MicroCredits(tokens) = self.token_prices.of(1000, 1000);
        MicroCredits(self.price_per_job.0.saturating_add(tokens))
    }

    /// Returns whether the simulated engine runs this Cargo instead of a real one.
    pub fn is_simulated(&self) -> bool {
        self.engine.get("simulated").and_then(Value::as_bool).unwrap_or(false)
    }

    /// Returns whether an interrupted reply can continue elsewhere after the text that was delivered. For the simulated engine the
    /// Cargo's settings decide.
    pub fn continues_text(&self) -> bool {
        let says = self.engine.get("continues").and_then(Value::as_bool).unwrap_or(false);
        self.runtime_type == RuntimeType::Llmcpp && (says || !self.is_simulated())
    }

    /// Returns whether one worker runs this Cargo next to others of its engine.
    pub fn is_shared(&self) -> bool {
        self.runtime_type.is_shared() && !self.is_simulated()
    }
}
