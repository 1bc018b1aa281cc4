//! CLIP's text encoder.

use candle_core::Tensor;
use island_runtimes_kit::{error::EngineError, keys::unsupported};
use serde::Deserialize;

use crate::{
    compute::{Compute, Computed, Rows, Weight},
    ops::{Activation, LayerNorm, Linear},
    weights::{Scope, Weights},
};

/// End tokens of configurations from before their value was correct: the end is then the maximum token.
const OLD_END: u32 = 2;

/// `config.json` of an encoder. Settings that are not supported are refused by [`island_runtimes_kit::keys::TEXT_ENCODER`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
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
    /// Rejects sizes that cannot be computed. `part` is the encoder's folder.
    fn check(&self, part: &str) -> Result<(), EngineError> {
        let (width, heads) = (self.hidden_size, self.num_attention_heads);
        let fits_heads = heads > 0 && width.is_multiple_of(heads);
        let (positions, layers) = (self.max_position_embeddings, self.num_hidden_layers);
        let checks = [
            ("hidden_size", width > 0, width),
            ("num_attention_heads", fits_heads, heads),
            ("max_position_embeddings", (3..=4096).contains(&positions), positions),
            ("num_hidden_layers", (1..=256).contains(&layers), layers),
        ];
        match checks.into_iter().find(|(_, fits, _)| !fits) {
            Some((key, _, value)) => Err(unsupported(&format!("{part}/config.json"), key, &value.into())),
            None => Ok(()),
        }
    }
}

/// The encoder's output for a prompt.
#[derive(Debug, Clone)]
pub struct Encoded<V> {
    /// The chosen state, without the final norm, rows: `[1, tokens, hidden]`.
    pub state: V,
    /// The chosen state, normalized.
    pub normed: V,
    /// The last state at the end of the prompt, normalized and, if the encoder has a projection, projected: `[1, width]`.
    pub pooled: V,
}

/// The inputs of the encoder: integers, one for each token or a single one.
#[derive(Debug, Clone)]
pub struct Inputs<V> {
    /// The tokens.
    pub ids: V,
    /// The position of the end token.
    pub end: V,
    /// Which state: 0 is that before the first layer.
    pub layer: V,
}

/// The encoder.
#[derive(Debug)]
pub struct ClipText<W = Tensor> {
    tokens: W,
    positions: W,
    layers: Vec<Layer<W>>,
    final_norm: LayerNorm<W>,
    projection: Option<Linear<W>>,
}

#[derive(Debug)]
struct Layer<W> {
    norms: [LayerNorm<W>; 2],
    query: Linear<W>,
    key: Linear<W>,
    value: Linear<W>,
    out: Linear<W>,
    widen: Linear<W>,
    narrow: Linear<W>,
    activation: Activation,
    heads: usize,
}

impl Config {
    /// The position of the end token of a prompt.
    pub fn end(&self, ids: &[u32]) -> usize {
        let end = if self.eos_token_id == OLD_END {
            let greatest = ids.iter().max();
            ids.iter().position(|id| Some(id) == greatest)
        } else {
            ids.iter().position(|id| *id == self.eos_token_id)
        };
        end.unwrap_or(0)
    }

    /// Number of layers.
    pub fn depth(&self) -> usize {
        self.num_hidden_layers
    }

    /// Number of tokens.
    pub fn vocabulary(&self) -> usize {
        self.vocab_size
    }
}

impl<W: Weight> ClipText<W> {
    /// Loads an encoder.
    pub fn load(config: &Config, weights: &Weights) -> Result<Self, EngineError> {
        config.check(weights.part())?;
        let root = weights.root();
        let model = root.at("text_model");
        let embeddings = model.at("embeddings");
        let width = config.hidden_size;
        let table = |name: &str, rows: usize| W::plain(&embeddings.at(name), "weight", &[rows, width]);
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
        })
    }

    /// Encodes the `count` tokens of a prompt.
    pub fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        inputs: &Inputs<C::Value>,
        count: usize,
    ) -> Computed<Encoded<C::Value>> {
        let mut states = vec![compute.embed(&self.tokens, &self.positions, &inputs.ids, count)?];
        for layer in &self.layers {
            let next = layer.forward(compute, &states[states.len() - 1])?;
            states.push(next);
        }
        let last = compute.layer_norm(&self.final_norm, &states[states.len() - 1])?;
        let at_end = compute.row(&last, &inputs.end)?;
        let pooled = match &self.projection {
            Some(projection) => compute.linear(projection, &at_end, None)?,
            None => at_end,
        };
        let state = compute.choose(&states, &inputs.layer)?;
        let normed = compute.layer_norm(&self.final_norm, &state)?;
        Ok(Encoded { state, normed, pooled })
    }
}

impl<W: Weight> Layer<W> {
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

    fn forward<C: Compute<Weight = W>>(&self, compute: &mut C, x: &C::Value) -> Computed<C::Value> {
        let normed = compute.layer_norm(&self.norms[0], x)?;
        let query = compute.linear(&self.query, &normed, None)?;
        let key = compute.linear(&self.key, &normed, None)?;
        let value = compute.linear(&self.value, &normed, None)?;
        let seen = compute.attention(&Rows {
            query: &query,
            key: &key,
            value: &value,
            heads: self.heads,
            width: self.query.outputs,
            causal: true,
            wide: false,
        })?;
        let x = compute.linear(&self.out, &seen, Some(x))?;
        let normed = compute.layer_norm(&self.norms[1], &x)?;
        let wide = compute.linear(&self.widen, &normed, None)?;
        let wide = compute.activation(self.activation, &wide)?;
        compute.linear(&self.narrow, &wide, Some(&x))
    }
}
