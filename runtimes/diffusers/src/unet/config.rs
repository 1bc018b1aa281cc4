//! `unet/config.json`.

use std::{collections::BTreeSet, fmt};

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::{UNET, unsupported},
};
use serde::Deserialize;
use serde_json::Value;

/// One number for all blocks, or one per block.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Each {
    /// One for all.
    All(usize),
    /// One per block.
    By(Vec<usize>),
}

/// As in the file.
impl fmt::Debug for Each {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(number) => fmt::Debug::fmt(number, f),
            Self::By(numbers) => fmt::Debug::fmt(numbers, f),
        }
    }
}

impl Each {
    pub(super) fn at(&self, block: usize) -> usize {
        match self {
            Self::All(number) => *number,
            Self::By(numbers) => numbers.get(block).copied().unwrap_or(0),
        }
    }

    fn fits(&self, blocks: usize, least: usize, most: usize) -> bool {
        let is_right = match self {
            Self::All(_) => true,
            Self::By(numbers) => numbers.len() == blocks,
        };
        is_right && (0..blocks).all(|block| (least..=most).contains(&self.at(block)))
    }
}

/// Configuration of the network. Settings that are not supported are refused by [`island_runtimes_kit::keys::UNET`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Side of the latents in training, or height and width.
    pub sample_size: Value,
    /// The version of diffusers that wrote the settings.
    #[serde(rename = "_diffusers_version")]
    pub version: Option<String>,
    /// Input channels: 4, or 9 for inpainting.
    pub in_channels: usize,
    /// Output channels.
    pub out_channels: usize,
    pub(super) down_block_types: Vec<String>,
    pub(super) up_block_types: Vec<String>,
    pub(super) block_out_channels: Vec<usize>,
    pub(super) layers_per_block: Each,
    pub(super) transformer_layers_per_block: Each,
    attention_head_dim: Each,
    pub(super) cross_attention_dim: Each,
    /// Whether attention scores exceed the range of `f16`.
    pub(super) upcast_attention: bool,
    pub(super) norm_num_groups: usize,
    pub(super) norm_eps: f64,
    pub(super) flip_sin_to_cos: bool,
    pub(super) freq_shift: f64,
    /// Width of the embedded guidance scale: LCM.
    pub time_cond_proj_dim: Option<usize>,
    /// `text_time` for pooled prompts and sizes: SDXL.
    pub addition_embed_type: Option<String>,
    pub(super) addition_time_embed_dim: Option<usize>,
    pub(super) projection_class_embeddings_input_dim: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        let names = |names: [&str; 4]| names.map(str::to_owned).to_vec();
        let (down, plain) = ("CrossAttnDownBlock2D", "DownBlock2D");
        let up = "CrossAttnUpBlock2D";
        Self {
            sample_size: Value::Null,
            version: None,
            in_channels: 4,
            out_channels: 4,
            down_block_types: names([down, down, down, plain]),
            up_block_types: names(["UpBlock2D", up, up, up]),
            block_out_channels: vec![320, 640, 1280, 1280],
            layers_per_block: Each::All(2),
            transformer_layers_per_block: Each::All(1),
            attention_head_dim: Each::All(8),
            cross_attention_dim: Each::All(1280),
            upcast_attention: false,
            norm_num_groups: 32,
            norm_eps: 1e-5,
            flip_sin_to_cos: true,
            freq_shift: 0.0,
            time_cond_proj_dim: None,
            addition_embed_type: None,
            addition_time_embed_dim: None,
            projection_class_embeddings_input_dim: None,
        }
    }
}

impl Config {
    /// Rejects a network that this engine would compute differently from diffusers.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        if !self.sample_size.is_null() && self.sides().is_none() {
            return Err(unsupported(UNET.file, "sample_size", &self.sample_size));
        }
        let widths = &self.block_out_channels;
        let blocks = widths.len();
        let known = |types: &[String], plain: &str, cross: &str| {
            types.len() == blocks && types.iter().all(|kind| kind == plain || kind == cross)
        };
        let has_downs = known(&self.down_block_types, "DownBlock2D", "CrossAttnDownBlock2D");
        let has_ups = known(&self.up_block_types, "UpBlock2D", "CrossAttnUpBlock2D");
        let fits_widths = (1..=8).contains(&blocks)
            && widths[0].is_multiple_of(2)
            && widths.iter().all(|width| (1..=1 << 14).contains(width));
        let groups = self.norm_num_groups;
        let fits_groups = groups > 0 && widths.iter().all(|width| width % groups == 0);
        let fits_heads =
            (0..blocks).all(|at| self.heads(at) > 0 && widths[at].is_multiple_of(self.heads(at)));
        let guidance = self.time_cond_proj_dim.unwrap_or(4);
        let heads = &self.attention_head_dim;
        let layers = &self.layers_per_block;
        let deep = &self.transformer_layers_per_block;
        let attended = &self.cross_attention_dim;
        let checks: [(&str, bool, &dyn fmt::Debug); 10] = [
            ("block_out_channels", fits_widths, widths),
            ("down_block_types", has_downs, &self.down_block_types),
            ("up_block_types", has_ups, &self.up_block_types),
            ("norm_num_groups", fits_groups, &groups),
            ("layers_per_block", layers.fits(blocks, 1, 16), layers),
            ("transformer_layers_per_block", deep.fits(blocks, 1, 64), deep),
            ("cross_attention_dim", attended.fits(blocks, 1, 1 << 14), attended),
            ("attention_head_dim", fits_heads, heads),
            ("time_cond_proj_dim", (4..=1 << 14).contains(&guidance), &guidance),
            ("norm_eps", self.norm_eps > 0.0, &self.norm_eps),
        ];
        match checks.into_iter().find(|(_, fits, _)| !fits) {
            Some((key, _, value)) => {
                Err(invalid_model(format!("{}: {key} = {value:?} is not supported", UNET.file)))
            }
            None => Ok(()),
        }
    }

    /// Heads of a block. The setting is named after their width for historical reasons.
    pub fn heads(&self, block: usize) -> usize {
        self.attention_head_dim.at(block)
    }

    /// Whether a block attends to the prompt, by its place among the blocks of the way down.
    pub fn attends(&self, block: usize) -> bool {
        self.down_block_types.get(block).is_some_and(|kind| kind.starts_with("CrossAttn"))
    }

    /// Widths of the heads of all blocks.
    pub fn head_widths(&self) -> BTreeSet<usize> {
        let blocks = 0..self.block_out_channels.len();
        blocks.map(|at| self.block_out_channels[at] / self.heads(at).max(1)).collect()
    }

    /// Width of the time embedding.
    pub(super) fn time_width(&self) -> usize {
        4 * self.block_out_channels[0]
    }

    /// Height and width of the latents in training, if they are known.
    pub fn sides(&self) -> Option<(usize, usize)> {
        let side = |size: &Value| {
            let side = size.as_u64().and_then(|side| usize::try_from(side).ok());
            side.filter(|side| (1..=1024).contains(side))
        };
        match self.sample_size.as_array().map(Vec::as_slice) {
            Some([height, width]) => side(height).zip(side(width)),
            Some(_) => None,
            None => side(&self.sample_size).map(|side| (side, side)),
        }
    }

    /// Downsampling factor at its lowest resolution.
    pub fn widths(&self) -> &[usize] {
        &self.block_out_channels
    }
}
