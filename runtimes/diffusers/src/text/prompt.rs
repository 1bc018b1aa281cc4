//! Prompts as conditioning of a network, of one or two encoders, with a cache of the last ones.

use std::{collections::VecDeque, sync::Arc};

use candle_core::{D, Tensor};
use island_runtimes_kit::error::{EngineError, invalid_input};
use parking_lot::Mutex;

use super::{
    clip::{self, ClipText, Encoded},
    tokens::Tokens,
};
use crate::{
    error::compute_error,
    lora::Adapters,
    repository::Repository,
    weights::{Placement, Weights},
};

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

/// The encoders of a repository.
#[derive(Debug)]
pub struct Prompts {
    encoders: Vec<Encoder>,
    place: Placement,
    cache: Mutex<VecDeque<(Key, Arc<Prompt>)>>,
}

/// A tokenizer with its encoder.
#[derive(Debug)]
pub struct Encoder {
    /// The tokenizer.
    pub tokens: Tokens,
    /// The encoder.
    pub model: ClipText,
}

impl Encoder {
    /// Loads the encoder of one folder, and the tokenizer of another.
    pub fn load(
        repository: &Repository,
        (folder, tokenizer): (&str, &str),
        weights: &Weights,
    ) -> Result<Self, EngineError> {
        let config: clip::Config = repository.settings(&format!("{folder}/config.json"))?;
        let tokens = Tokens::load(repository, tokenizer, config.max_position_embeddings)?;
        Ok(Self { tokens, model: ClipText::load(&config, weights)? })
    }

    fn encode(&self, key: &Key, adapters: &Adapters, place: &Placement) -> Result<Encoded, EngineError> {
        let (ids, _) = self.tokens.of(&key.prompt)?;
        let most = self.model.depth() - 1;
        if key.clip_skip.is_some_and(|skip| skip > most) {
            return Err(invalid_input(format!("clip_skip must be 0 to {most} with this model")));
        }
        self.model.encode(&ids, adapters, place)
    }
}

impl Prompts {
    /// One encoder, or two for SDXL.
    pub fn new(encoders: Vec<Encoder>, place: Placement) -> Self {
        Self { encoders, place, cache: Mutex::default() }
    }

    /// The encoders.
    pub fn encoders(&self) -> &[Encoder] {
        &self.encoders
    }

    /// Encodes a prompt, or takes it from the cache. `named` is the key of the adapters.
    pub fn encode(
        &self,
        prompt: &str,
        clip_skip: Option<usize>,
        adapters: &Adapters,
        named: &str,
    ) -> Result<Arc<Prompt>, EngineError> {
        let key = Key { prompt: prompt.to_owned(), clip_skip, adapters: named.to_owned() };
        let mut cache = self.cache.lock();
        if let Some(found) = cache.iter().position(|(other, _)| *other == key)
            && let Some(entry) = cache.remove(found)
        {
            let prompt = Arc::clone(&entry.1);
            cache.push_front(entry);
            return Ok(prompt);
        }
        drop(cache);
        let encoded = Arc::new(self.encode_now(&key, adapters)?);
        let mut cache = self.cache.lock();
        cache.push_front((key, Arc::clone(&encoded)));
        cache.truncate(CACHE_SIZE);
        Ok(encoded)
    }

    fn encode_now(&self, key: &Key, adapters: &Adapters) -> Result<Prompt, EngineError> {
        let encode = |encoder: &Encoder| encoder.encode(key, adapters, &self.place);
        let all = self.encoders.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        if let [alone] = all.as_slice() {
            let states = match key.clip_skip {
                None => alone.last.clone(),
                Some(skip) => self.encoders[0].model.norm(&alone.hidden[alone.hidden.len() - 1 - skip])?,
            };
            return Ok(Prompt { states, pooled: None });
        }
        // Both lack the final norm, and their last layer unless more are skipped.
        let skip = key.clip_skip.unwrap_or(0) + 1;
        let states: Vec<&Tensor> = all.iter().map(|one| &one.hidden[one.hidden.len() - 1 - skip]).collect();
        let states = Tensor::cat(&states, D::Minus1).map_err(compute_error("encode a prompt"))?;
        Ok(Prompt { states, pooled: all.last().map(|last| last.pooled.clone()) })
    }
}
