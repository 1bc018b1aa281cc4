//! Prompts as conditioning of a network, of one or two encoders, with a cache of the last ones.

use std::{collections::VecDeque, sync::Arc};

use candle_core::{D, Tensor};
use island_runtimes_kit::error::{EngineError, invalid_input, invalid_model};
use parking_lot::Mutex;

use super::{clip, tokens::Tokens};
use crate::{error::compute_error, lora::Adapters, networks::Networks, repository::Repository};

/// Size of the cache.
const CACHE_SIZE: usize = 16;

/// An encoded prompt.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// `[1, tokens, width]`.
    pub states: Tensor,
    /// `[1, width]`, with two encoders.
    pub pooled: Option<Tensor>,
}

impl Prompt {
    /// Zeros of the same shape.
    pub fn zeros(&self) -> Result<Self, EngineError> {
        let zeros = |tensor: &Tensor| tensor.zeros_like().map_err(compute_error("encode a prompt"));
        Ok(Self { states: zeros(&self.states)?, pooled: self.pooled.as_ref().map(zeros).transpose()? })
    }
}

/// The key of an encoded prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    prompt: String,
    clip_skip: Option<usize>,
    adapters: String,
}

/// The tokenizers of a repository's text encoders, and the cache.
#[derive(Debug)]
pub struct Prompts {
    encoders: Vec<Encoder>,
    cache: Mutex<VecDeque<(Key, Arc<Prompt>)>>,
}

/// What is known about a text encoder.
#[derive(Debug)]
pub struct Encoder {
    /// Its tokenizer.
    pub tokens: Tokens,
    /// Number of its layers.
    pub depth: usize,
    vocabulary: usize,
}

impl Encoder {
    /// An encoder with these settings, and the tokenizer in a folder.
    pub fn load(repository: &Repository, folder: &str, config: &clip::Config) -> Result<Self, EngineError> {
        let tokens = Tokens::load(repository, folder, config.max_position_embeddings)?;
        Ok(Self { tokens, depth: config.depth(), vocabulary: config.vocabulary() })
    }

    /// The tokens of a prompt.
    fn ids(&self, key: &Key) -> Result<Vec<u32>, EngineError> {
        let (ids, _) = self.tokens.of(&key.prompt)?;
        let most = self.depth - 1;
        if key.clip_skip.is_some_and(|skip| skip > most) {
            return Err(invalid_input(format!("clip_skip must be 0 to {most} with this model")));
        }
        if ids.iter().any(|id| *id as usize >= self.vocabulary) {
            return Err(invalid_model("the tokenizer has tokens that the text encoder lacks"));
        }
        Ok(ids)
    }
}

impl Prompts {
    /// One encoder, or two for SDXL.
    pub fn new(encoders: Vec<Encoder>) -> Self {
        Self { encoders, cache: Mutex::default() }
    }

    /// The encoders.
    pub fn encoders(&self) -> &[Encoder] {
        &self.encoders
    }

    /// Encodes a prompt, or takes it from the cache.
    pub fn encode(
        &self,
        networks: &dyn Networks,
        prompt: &str,
        clip_skip: Option<usize>,
        adapters: &Adapters,
    ) -> Result<Arc<Prompt>, EngineError> {
        let key = Key { prompt: prompt.to_owned(), clip_skip, adapters: adapters.key.clone() };
        let mut cache = self.cache.lock();
        if let Some(found) = cache.iter().position(|(other, _)| *other == key)
            && let Some(entry) = cache.remove(found)
        {
            let prompt = Arc::clone(&entry.1);
            cache.push_front(entry);
            return Ok(prompt);
        }
        drop(cache);
        let encoded = Arc::new(self.encode_now(networks, &key, adapters)?);
        let mut cache = self.cache.lock();
        cache.push_front((key, Arc::clone(&encoded)));
        cache.truncate(CACHE_SIZE);
        Ok(encoded)
    }

    fn encode_now(
        &self,
        networks: &dyn Networks,
        key: &Key,
        adapters: &Adapters,
    ) -> Result<Prompt, EngineError> {
        let encode = |at: usize, skip: usize| {
            let encoder = &self.encoders[at];
            networks.encode(at, &encoder.ids(key)?, encoder.depth - skip, adapters)
        };
        if self.encoders.len() == 1 {
            return Ok(Prompt { states: encode(0, key.clip_skip.unwrap_or(0))?.normed, pooled: None });
        }
        // Both lack the final norm, and their last layer unless more are skipped.
        let skip = key.clip_skip.unwrap_or(0) + 1;
        let all =
            (0..self.encoders.len()).map(|at| encode(at, skip)).collect::<Result<Vec<_>, EngineError>>()?;
        let states: Vec<&Tensor> = all.iter().map(|one| &one.state).collect();
        let states = Tensor::cat(&states, D::Minus1).map_err(compute_error("encode a prompt"))?;
        Ok(Prompt { states, pooled: all.last().map(|last| last.pooled.clone()) })
    }
}
