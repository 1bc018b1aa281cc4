//! The networks of a repository on a device: the processor computes them with candle ([`Processor`]), a GPU as graphs
//! ([`Graphs`](graphs::Graphs)).

pub mod graphs;
mod processor;

use std::fmt::Debug;

use candle_core::Tensor;
use island_runtimes_kit::{
    error::EngineError,
    keys::{AUTOENCODER, TEXT_ENCODER, UNET, unsupported},
};
use serde_json::Value;

pub use processor::Processor;

use crate::{
    compute::Computed,
    lora::Adapters,
    repository::Repository,
    text::clip::{self, Encoded},
    unet, vae,
    weights::{Element, Weights},
};

/// The networks. Tensors in and out are `f32` in main memory, images with the channels last.
pub trait Networks: Debug + Send + Sync {
    /// Encodes the tokens of a prompt: the state before layer `layer`, or after the last one, of the text encoder with this index.
    fn encode(
        &self,
        encoder: usize,
        ids: &[u32],
        layer: usize,
        adapters: &Adapters,
    ) -> Computed<Encoded<Tensor>>;

    /// The network's prediction for a batch.
    fn predict(&self, inputs: &unet::Inputs<Tensor>, adapters: &Adapters) -> Computed<Tensor>;

    /// Mean and log variance, joined, of the latents of images `[batch, height, width, 3]` in -1..1.
    fn moments(&self, pictures: &Tensor) -> Computed<Tensor>;

    /// Images of latents `[batch, height, width, channels]`, which are scaled already.
    fn picture(&self, latents: &Tensor) -> Computed<Tensor>;

    /// What computes, for logs.
    fn describe(&self) -> String;

    /// The GPU that computes, as reported with a job's usage; `None` for the processor.
    fn device(&self) -> Option<String>;

    /// Bytes of GPU memory that the weights occupy; 0 on the processor.
    fn gpu_bytes(&self) -> u64;

    /// What its computation keeps in memory.
    fn costs(&self) -> Costs;
}

/// What the computation of networks keeps in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Elements of features, but for the autoencoder's, which are `f32`.
    pub element: Element,
    /// Whether the scores of attention are kept, in the denoising network.
    pub keeps_scores: bool,
    /// Whether those of the autoencoder are, in pieces.
    pub keeps_vae_scores: bool,
}

/// The settings and weights of all networks of a repository. The headers of all files are checked, no tensor is read.
#[derive(Debug)]
pub struct Parts {
    /// The text encoders.
    pub texts: Vec<(clip::Config, Weights)>,
    /// The denoising network.
    pub unet: (unet::Config, Weights),
    /// The autoencoder.
    pub vae: (vae::Config, Weights),
}

impl Parts {
    /// Opens the networks in these folders for text encoders, `unet` and `vae`.
    /// `element` is that of the computation, outside the autoencoder.
    pub fn open(repository: &Repository, texts: &[&str], element: Element) -> Result<Self, EngineError> {
        let weights = |part: &str| Weights::open(part, &repository.weights(part, element)?);
        let texts = texts
            .iter()
            .map(|part| {
                Ok((repository.settings(&format!("{part}/config.json"), &TEXT_ENCODER)?, weights(part)?))
            })
            .collect::<Result<_, EngineError>>()?;
        Ok(Self {
            texts,
            unet: (unet_settings(repository)?, weights("unet")?),
            vae: (
                repository.settings(AUTOENCODER.file, &AUTOENCODER)?,
                Weights::open("vae", &repository.weights("vae", Element::F32)?)?,
            ),
        })
    }

    /// The weights that adapters can change.
    pub fn adaptable(&self) -> impl Iterator<Item = &Weights> {
        self.texts.iter().map(|(_, weights)| weights).chain([&self.unet.1])
    }

    /// Bytes of all weights in memory. The autoencoder computes in `f32`.
    pub fn bytes(&self, element: Element) -> u64 {
        self.adaptable().map(|weights| weights.numbers() * element.bytes()).sum::<u64>()
            + self.vae.1.numbers() * Element::F32.bytes()
    }
}

/// The settings of the denoising network. Its middle block is absent if it is null, unlike other settings, which have their default then.
fn unet_settings(repository: &Repository) -> Result<unet::Config, EngineError> {
    const MIDDLE: &str = "mid_block_type";
    let file = repository.json(UNET.file)?.unwrap_or_default();
    match file.get(MIDDLE) {
        Some(absent @ Value::Null) => Err(unsupported(UNET.file, MIDDLE, absent)),
        _ => repository.settings(UNET.file, &UNET),
    }
}
