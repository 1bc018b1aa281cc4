//! CLIP's text encoder.

use candle_core::{Result as Computed, Tensor};
use island_runtimes_kit::error::{EngineError, invalid_model};
use serde::Deserialize;

use crate::{
    error::compute_error,
    lora::Adapters,
    ops::{Activation, LayerNorm, Linear, attention},
    weights::{Placement, Scope, Weights},
};

/// End tokens of configurations from before their value was correct: the end is then the maximum token.
const OLD_END: u32 = 2;

/// `config.json` of an encoder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    architectures: Vec<String>,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    projection_dim: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    /// Maximum number of tokens.
    pub max_position_embeddings: usize,
    hidden_act: Activation,
    layer_norm_eps: f64,
    eos_token_id: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            architectures: Vec::new(),
            vocab_size: 49408,
            hidden_size: 512,
            intermediate_size: 2048,
            projection_dim: 512,
            num_hidden_layers: 12,
            num_attention_heads: 8,
            max_position_embeddings: 77,
            hidden_act: Activation::QuickGelu,
            layer_norm_eps: 1e-5,
            eos_token_id: 49407,
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), EngineError> {
        let known = ["CLIPTextModel", "CLIPTextModelWithProjection"];
        if let Some(other) = self.architectures.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(invalid_model(format!("unsupported text encoder {other}")));
        }
        let heads = self.num_attention_heads;
        let is_sane = heads > 0
            && self.hidden_size > 0
            && self.hidden_size.is_multiple_of(heads)
            && (3..=4096).contains(&self.max_position_embeddings)
            && (1..=256).contains(&self.num_hidden_layers);
        if is_sane { Ok(()) } else { Err(invalid_model("invalid settings of the text encoder")) }
    }
}

/// The encoder's output for a prompt.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// States before each layer and after the last, without the final norm: `[1, tokens, hidden]`.
    pub hidden: Vec<Tensor>,
    /// The last state, normalized.
    pub last: Tensor,
    /// The state at the end of the prompt, normalized and, if the encoder has a projection, projected: `[1, width]`.
    pub pooled: Tensor,
}

/// The encoder.
#[derive(Debug)]
pub struct ClipText {
    tokens: Tensor,
    positions: Tensor,
    layers: Vec<Layer>,
    final_norm: LayerNorm,
    projection: Option<Linear>,
    end: u32,
}

#[derive(Debug)]
struct Layer {
    norms: [LayerNorm; 2],
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    widen: Linear,
    narrow: Linear,
    activation: Activation,
    heads: usize,
}

impl ClipText {
    /// Loads an encoder.
    pub fn load(config: &Config, weights: &Weights) -> Result<Self, EngineError> {
        config.check()?;
        let root = weights.root();
        let model = root.at("text_model");
        let embeddings = model.at("embeddings");
        let width = config.hidden_size;
        let table = |name: &str, rows: usize| embeddings.at(name).get("weight", &[rows, width]);
        let layers =
            (0..config.num_hidden_layers).map(|at| Layer::load(config, &model.at("encoder.layers").at(at)));
        let projection = root.at("text_projection");
        let projects = projection.has("weight");
        Ok(Self {
            tokens: table("token_embedding", config.vocab_size)?,
            positions: table("position_embedding", config.max_position_embeddings)?,
            layers: layers.collect::<Result<_, _>>()?,
            final_norm: LayerNorm::load(&model.at("final_layer_norm"), width, config.layer_norm_eps)?,
            projection: projects
                .then(|| Linear::load(&projection, width, config.projection_dim))
                .transpose()?,
            end: config.eos_token_id,
        })
    }

    /// Number of its layers.
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    /// The final norm of a hidden state.
    pub fn norm(&self, hidden: &Tensor) -> Result<Tensor, EngineError> {
        self.final_norm.forward(hidden).map_err(compute_error("encode a prompt"))
    }

    /// Encodes one prompt's tokens.
    pub fn encode(
        &self,
        ids: &[u32],
        adapters: &Adapters,
        place: &Placement,
    ) -> Result<Encoded, EngineError> {
        let size = self.tokens.dim(0).unwrap_or(0);
        if ids.iter().any(|id| *id as usize >= size) {
            return Err(invalid_model("the tokenizer has tokens that the text encoder lacks"));
        }
        self.forward(ids, adapters, place).map_err(compute_error("encode a prompt"))
    }

    fn forward(&self, ids: &[u32], adapters: &Adapters, place: &Placement) -> Computed<Encoded> {
        let tokens = Tensor::from_slice(ids, ids.len(), &place.device)?;
        let states = self.tokens.index_select(&tokens, 0)?.add(&self.positions.narrow(0, 0, ids.len())?)?;
        let mut hidden = vec![states.unsqueeze(0)?];
        for layer in &self.layers {
            let next = layer.forward(&hidden[hidden.len() - 1], adapters)?;
            hidden.push(next);
        }
        let last = self.final_norm.forward(&hidden[hidden.len() - 1])?;
        let end = if self.end == OLD_END {
            let greatest = ids.iter().max();
            ids.iter().position(|id| Some(id) == greatest)
        } else {
            ids.iter().position(|id| *id == self.end)
        };
        let at_end = last.narrow(1, end.unwrap_or(0), 1)?.squeeze(1)?.contiguous()?;
        let pooled = match &self.projection {
            Some(projection) => projection.forward(&at_end, None, adapters)?,
            None => at_end,
        };
        Ok(Encoded { hidden, last, pooled })
    }
}

impl Layer {
    fn load(config: &Config, scope: &Scope<'_>) -> Result<Self, EngineError> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let norm = |name: &str| LayerNorm::load(&scope.at(name), width, config.layer_norm_eps);
        let attention = scope.at("self_attn");
        let square = |name: &str| Linear::load(&attention.at(name), width, width);
        Ok(Self {
            norms: [norm("layer_norm1")?, norm("layer_norm2")?],
            query: square("q_proj")?,
            key: square("k_proj")?,
            value: square("v_proj")?,
            out: square("out_proj")?,
            widen: Linear::load(&scope.at("mlp.fc1"), width, inner)?,
            narrow: Linear::load(&scope.at("mlp.fc2"), inner, width)?,
            activation: config.hidden_act,
            heads: config.num_attention_heads,
        })
    }

    fn forward(&self, x: &Tensor, adapters: &Adapters) -> Computed<Tensor> {
        let normed = self.norms[0].forward(x)?;
        let project = |layer: &Linear| layer.forward(&normed, None, adapters);
        let (query, key, value) = (project(&self.query)?, project(&self.key)?, project(&self.value)?);
        let seen = attention(&query, &key, &value, self.heads, true)?;
        let x = self.out.forward(&seen, Some(x), adapters)?;
        let wide = self.widen.forward(&self.norms[1].forward(&x)?, None, adapters)?;
        self.narrow.forward(&self.activation.of(&wide)?, Some(&x), adapters)
    }
}
