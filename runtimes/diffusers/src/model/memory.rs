//! What loading and running ask of memory, known before either.

use island_runtimes_kit::error::{EngineError, ErrorKind};

use super::Model;
use crate::{request::Request, vae::Tiles};

/// Bytes of a number while computing.
const NUMBER: u64 = 4;
/// Features, in first widths of the network, that are alive at once at full size: what the way up sees again, and a widened layer.
const UNET_WIDTHS: u64 = 24;
/// Layers of the autoencoder that are alive at once at full size.
const VAE_LAYERS: u64 = 4;
/// Everything that does not grow: code, threads' tables, the tokeniser.
const BASE: u64 = 256 << 20;
/// Pixels beyond which pictures are decoded in tiles even where memory would do: it takes no longer and touches less.
const WHOLE: usize = 1280 * 1280;

/// What a run needs besides the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Bytes for the steps.
    pub steps: u64,
    /// Bytes for the whole picture at once.
    pub whole: u64,
    /// Bytes for it in tiles.
    pub tiled: u64,
    /// Pixels of the picture.
    pixels: usize,
}

impl Need {
    /// Whether to work in tiles with `room` bytes left beside the weights, or why not at all.
    pub fn tiles(&self, weights: u64, limit: Option<u64>) -> Result<bool, EngineError> {
        let fits = |bytes: u64| limit.is_none_or(|limit| weights + BASE + bytes <= limit);
        let least = self.steps.max(self.tiled);
        if !fits(least) {
            let need = (weights + BASE + least) >> 20;
            let limit = limit.unwrap_or(0) >> 20;
            let message =
                format!("a picture of this size needs {need} MB of memory, and this Island lends {limit} MB");
            return Err(EngineError::new(ErrorKind::OutOfMemory, message));
        }
        Ok(self.pixels > WHOLE || !fits(self.whole))
    }
}

/// Refuses to load what cannot fit.
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
    let scale = model.vae.config().scale();
    let latents = (height / scale * (width / scale)) as u64;
    let first = model.unet.config().widths().first().copied().unwrap_or(0) as u64;
    let batch = if request.guidance > 1.0 { 2 } else { 1 };
    let widest = model.vae.config().widest() as u64;
    let decode = |pixels: usize| pixels as u64 * widest * NUMBER * VAE_LAYERS;
    let tile = Tiles::of(model.vae.config()).side();
    let finished = (height * width * 3) as u64 * NUMBER * (request.images as u64 + 3);
    Need {
        steps: latents * first * batch * UNET_WIDTHS * NUMBER + finished,
        whole: decode(height * width) + finished,
        tiled: decode(height.min(tile) * width.min(tile)) + finished,
        pixels: height * width,
    }
}
