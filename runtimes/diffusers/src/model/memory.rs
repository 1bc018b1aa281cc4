//! Memory of loading and running, estimated before either.

use island_runtimes_kit::error::{EngineError, ErrorKind};

use super::Model;
use crate::{networks::graphs::MAX_SCORES, request::Request, unet, vae::Tiles};

/// Bytes of a number during computation, but for that of the denoising network.
const NUMBER: u64 = 4;
/// Copies of scores that are alive at once: the scores, and the shares that they become.
const SCORES: u64 = 2;
/// Features, in multiples of the network's first width, that are alive at once at full size: skip connections, and a widened layer.
const UNET_WIDTHS: u64 = 24;
/// Layers of the autoencoder that are alive at once at full size.
const VAE_LAYERS: u64 = 4;
/// Everything of constant size: code, tables of threads, the tokenizer.
const BASE: u64 = 256 << 20;
/// Pixels beyond which images are decoded in tiles even with enough memory: it takes no longer and touches less.
const WHOLE: usize = 1280 * 1280;

/// Memory of a run besides the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Bytes for the steps.
    pub steps: u64,
    /// Bytes for decoding the whole image at once.
    pub whole: u64,
    /// Bytes for decoding it in tiles.
    pub tiled: u64,
    /// Pixels of the image.
    pixels: usize,
}

impl Need {
    /// Whether to decode in tiles. An error if the run exceeds the limit.
    pub fn tiles(&self, weights: u64, limit: Option<u64>) -> Result<bool, EngineError> {
        let fits = |bytes: u64| limit.is_none_or(|limit| weights + BASE + bytes <= limit);
        let least = self.steps.max(self.tiled);
        if !fits(least) {
            let need = (weights + BASE + least) >> 20;
            let limit = limit.unwrap_or(0) >> 20;
            let message =
                format!("an image of this size needs {need} MB of memory, and this Island lends {limit} MB");
            return Err(EngineError::new(ErrorKind::OutOfMemory, message));
        }
        Ok(self.pixels > WHOLE || !fits(self.whole))
    }
}

/// Rejects weights that exceed the limit.
pub(super) fn check_load(weights: u64, limit: Option<u64>) -> Result<(), EngineError> {
    match limit {
        Some(limit) if weights + BASE > limit => {
            let (need, limit) = ((weights + BASE) >> 20, limit >> 20);
            let message = format!("the model needs {need} MB of memory, and this Island lends {limit} MB");
            Err(EngineError::new(ErrorKind::OutOfMemory, message))
        }
        _ => Ok(()),
    }
}

pub(super) fn of_run(model: &Model, request: &Request) -> Need {
    let (height, width) = (request.height, request.width);
    let scale = model.vae.scale();
    let latents = (height / scale * (width / scale)) as u64;
    let first = model.unet.widths().first().copied().unwrap_or(0) as u64;
    let batch = if request.guidance > 1.0 { 2 } else { 1 };
    let widest = model.vae.widest() as u64;
    let costs = model.networks.costs();
    let number = costs.element.bytes();
    let decode = |pixels: usize| {
        let rows = (pixels / (scale * scale)) as u64;
        let scores = if costs.keeps_vae_scores { (rows * rows * NUMBER).min(MAX_SCORES) * SCORES } else { 0 };
        pixels as u64 * widest * NUMBER * VAE_LAYERS + scores
    };
    let tile = Tiles::of(&model.vae).side();
    let finished = (height * width * 3) as u64 * NUMBER * (request.images as u64 + 3);
    let scores = if costs.keeps_scores { scores(&model.unet, latents) * batch * number * SCORES } else { 0 };
    Need {
        steps: latents * first * batch * UNET_WIDTHS * number + scores + finished,
        whole: decode(height * width) + finished,
        tiled: decode(height.min(tile) * width.min(tile)) + finished,
        pixels: height * width,
    }
}

/// The most scores of an attention in the denoising network: one for each pair of pixels and each head.
fn scores(unet: &unet::Config, latents: u64) -> u64 {
    let blocks = (0..unet.widths().len()).filter(|&block| unet.attends(block));
    let of_block = |block: usize| (latents >> (2 * block)).pow(2) * unet.heads(block) as u64;
    blocks.map(of_block).max().unwrap_or(0)
}
