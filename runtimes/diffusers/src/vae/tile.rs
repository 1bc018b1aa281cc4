//! Large images in overlapping tiles that are blended, so that memory does not grow with the image.

use candle_core::{Device, Tensor};

use super::Config;
use crate::{compute::Computed, error::compute_error};

/// Overlap of neighboring tiles, as a share of a tile.
const OVERLAP: f64 = 0.25;

/// Size of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiles {
    /// Side in latents.
    latent: usize,
    /// Side in pixels.
    pixel: usize,
}

/// The elements of a tile, `[height, width, channels]`.
struct Tile {
    height: usize,
    width: usize,
    values: Vec<f32>,
}

impl Tiles {
    /// Tiles of the size of the autoencoder's training images.
    pub fn of(config: &Config) -> Self {
        Self { latent: config.sample_size / config.scale(), pixel: config.sample_size }
    }

    /// Whether latents of this size need more than one tile.
    pub fn split(self, height: usize, width: usize) -> bool {
        height.max(width) > self.latent
    }

    /// Side in pixels.
    pub fn side(self) -> usize {
        self.pixel
    }

    /// Images of latents `[batch, height, width, channels]`, each tile by `of`.
    pub fn decode(self, x: &Tensor, of: impl Fn(&Tensor) -> Computed<Tensor>) -> Computed<Tensor> {
        apply(x, (self.latent, self.pixel), of)
    }

    /// Latents of images `[batch, height, width, channels]`, each tile by `of`.
    pub fn encode(self, x: &Tensor, of: impl Fn(&Tensor) -> Computed<Tensor>) -> Computed<Tensor> {
        apply(x, (self.pixel, self.latent), of)
    }
}

fn apply(x: &Tensor, sides: (usize, usize), of: impl Fn(&Tensor) -> Computed<Tensor>) -> Computed<Tensor> {
    let failed = compute_error("split an image into tiles");
    let batch = x.dim(0).map_err(&failed)?;
    let pictures = (0..batch).map(|at| picture(&x.narrow(0, at, 1).map_err(&failed)?, sides, &of));
    Tensor::cat(&pictures.collect::<Computed<Vec<_>>>()?, 0).map_err(&failed)
}

fn picture(
    x: &Tensor,
    (side, side_out): (usize, usize),
    of: &impl Fn(&Tensor) -> Computed<Tensor>,
) -> Computed<Tensor> {
    let failed = compute_error("split an image into tiles");
    let (_, height, width, _) = x.dims4().map_err(&failed)?;
    let step = ((side as f64 * (1.0 - OVERLAP)) as usize).max(1);
    let blend = (side_out as f64 * OVERLAP) as usize;
    let keep = side_out - blend;
    let mut above: Vec<Tile> = Vec::new();
    let mut bands = Vec::new();
    let mut channels = 0;
    let part = |top: usize, left: usize| {
        let rows = x.narrow(1, top, side.min(height - top))?;
        rows.narrow(2, left, side.min(width - left))?.contiguous()
    };
    for top in (0..height).step_by(step) {
        let mut row: Vec<Tile> = Vec::new();
        for (at, left) in (0..width).step_by(step).enumerate() {
            let made = of(&part(top, left).map_err(&failed)?)?;
            let dims = made.dims4().map_err(&failed)?;
            channels = dims.3;
            let values = made.flatten_all().and_then(|made| made.to_vec1()).map_err(&failed)?;
            let mut tile = Tile { height: dims.1, width: dims.2, values };
            if let Some(above) = above.get(at) {
                blend_down(above, &mut tile, blend, channels);
            }
            if let Some(before) = row.last() {
                blend_across(before, &mut tile, blend, channels);
            }
            row.push(tile);
        }
        bands.push(band(&row, keep, channels));
        above = row;
    }
    let width = bands.first().map_or(0, |band| band.width);
    let height = bands.iter().map(|band| band.height).sum::<usize>();
    let values: Vec<f32> = bands.into_iter().flat_map(|band| band.values).collect();
    Tensor::from_vec(values, (1, height, width, channels), &Device::Cpu).map_err(&failed)
}

fn blend_down(above: &Tile, tile: &mut Tile, blend: usize, channels: usize) {
    let blend = blend.min(above.height).min(tile.height);
    let run = above.width.min(tile.width) * channels;
    for y in 0..blend {
        let share = y as f32 / blend as f32;
        let from = &above.values[(above.height - blend + y) * above.width * channels..][..run];
        let to = &mut tile.values[y * tile.width * channels..][..run];
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from * (1.0 - share) + *to * share);
    }
}

fn blend_across(before: &Tile, tile: &mut Tile, blend: usize, channels: usize) {
    let blend = blend.min(before.width).min(tile.width);
    for y in 0..tile.height.min(before.height) {
        for x in 0..blend {
            let share = x as f32 / blend as f32;
            let from = &before.values[(y * before.width + before.width - blend + x) * channels..][..channels];
            let to = &mut tile.values[(y * tile.width + x) * channels..][..channels];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from * (1.0 - share) + *to * share);
        }
    }
}

/// The blended row of tiles.
fn band(row: &[Tile], keep: usize, channels: usize) -> Tile {
    let height = row.iter().map(|tile| tile.height).min().unwrap_or(0).min(keep);
    let mut values = Vec::new();
    for y in 0..height {
        for tile in row {
            let start = y * tile.width * channels;
            values.extend_from_slice(&tile.values[start..start + tile.width.min(keep) * channels]);
        }
    }
    Tile { height, width: row.iter().map(|tile| tile.width.min(keep)).sum(), values }
}
