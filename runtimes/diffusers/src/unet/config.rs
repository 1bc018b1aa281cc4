//! `unet/config.json`.

use std::collections::BTreeSet;

use island_runtimes_kit::error::{EngineError, invalid_model};
use serde::Deserialize;
use serde_json::Value;

/// One number for all blocks, or one per block.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Each {
    /// One for all.
    All(usize),
    /// One per block.
    By(Vec<usize>),
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
    /// Side of the latents in training.
    pub sample_size: Value,
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
    num_attention_heads: Option<Each>,
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
            in_channels: 4,
            out_channels: 4,
            down_block_types: names([down, down, down, plain]),
            up_block_types: names(["UpBlock2D", up, up, up]),
            block_out_channels: vec![320, 640, 1280, 1280],
            layers_per_block: Each::All(2),
            transformer_layers_per_block: Each::All(1),
            attention_head_dim: Each::All(8),
            num_attention_heads: None,
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
        let refused = |why: String| Err(invalid_model(format!("unet/config.json: {why}")));
        let known = |types: &[String], plain: &str, cross: &str| {
            types.iter().all(|kind| kind == plain || kind == cross)
        };
        if !known(&self.down_block_types, "DownBlock2D", "CrossAttnDownBlock2D")
            || !known(&self.up_block_types, "UpBlock2D", "CrossAttnUpBlock2D")
        {
            return refused("some of its blocks are not supported".to_owned());
        }
        let blocks = self.block_out_channels.len();
        let groups = self.norm_num_groups;
        let is_sane = (1..=8).contains(&blocks)
            && self.down_block_types.len() == blocks
            && self.up_block_types.len() == blocks
            && groups > 0
            && self
                .block_out_channels
                .iter()
                .all(|width| *width > 0 && *width <= 1 << 14 && width % groups == 0)
            && self.block_out_channels[0].is_multiple_of(2)
            && self.layers_per_block.fits(blocks, 1, 16)
            && self.transformer_layers_per_block.fits(blocks, 1, 64)
            && self.cross_attention_dim.fits(blocks, 1, 1 << 14)
            && (0..blocks)
                .all(|at| self.heads(at) > 0 && self.block_out_channels[at].is_multiple_of(self.heads(at)))
            && self.time_cond_proj_dim.is_none_or(|width| (4..=1 << 14).contains(&width))
            && self.norm_eps > 0.0;
        if is_sane { Ok(()) } else { refused("its numbers are inconsistent".to_owned()) }
    }

    /// Heads of a block. The setting is named after their width for historical reasons.
    pub fn heads(&self, block: usize) -> usize {
        self.num_attention_heads.as_ref().unwrap_or(&self.attention_head_dim).at(block)
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

    /// Side of the latents in training, if it is known.
    pub fn side(&self) -> Option<usize> {
        let size = self.sample_size.as_array().and_then(|sides| sides.first()).unwrap_or(&self.sample_size);
        size.as_u64().map(|side| side as usize).filter(|side| (1..=1024).contains(side))
    }

    /// Downsampling factor at its lowest resolution.
    pub fn widths(&self) -> &[usize] {
        &self.block_out_channels
    }
}
