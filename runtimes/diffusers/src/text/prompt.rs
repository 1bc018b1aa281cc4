//! Prompts as a network is told them: one or two encoders, with what they made of the last prompts kept.

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
    weights::{Place, Weights},
};

/// Prompts that are kept.
const KEPT: usize = 16;

/// An encoded prompt.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// `[1, tokens, width]`.
    pub states: Tensor,
    /// `[1, width]`, where there are two encoders.
    pub pooled: Option<Tensor>,
}

impl Prompt {
    /// One of the same shape that says nothing at all.
    pub fn silent(&self) -> Result<Self, EngineError> {
        let silent = |tensor: &Tensor| tensor.zeros_like().map_err(compute_error("encode a prompt"));
        Ok(Self { states: silent(&self.states)?, pooled: self.pooled.as_ref().map(silent).transpose()? })
    }
}

/// What a prompt's encoding depends on.
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
    place: Place,
    kept: Mutex<VecDeque<(Key, Arc<Prompt>)>>,
}

/// A tokeniser with its encoder.
#[derive(Debug)]
pub struct Encoder {
    /// Makes tokens.
    pub tokens: Tokens,
    /// Makes sense of them.
    pub model: ClipText,
}

impl Encoder {
    /// Loads the encoder of a folder, with the tokeniser of another.
    pub fn load(
        repository: &Repository,
        (folder, tokenizer): (&str, &str),
        weights: &Weights,
    ) -> Result<Self, EngineError> {
        let config: clip::Config = repository.settings(&format!("{folder}/config.json"))?;
        let tokens = Tokens::load(repository, tokenizer, config.max_position_embeddings)?;
        Ok(Self { tokens, model: ClipText::load(&config, weights)? })
    }

    fn encode(&self, key: &Key, adapters: &Adapters, place: &Place) -> Result<Encoded, EngineError> {
        let (ids, _) = self.tokens.of(&key.prompt)?;
        let most = self.model.depth() - 1;
        if key.clip_skip.is_some_and(|skip| skip > most) {
            return Err(invalid_input(format!("clip_skip may be 0 to {most} with this model")));
        }
        self.model.encode(&ids, adapters, place)
    }
}

impl Prompts {
    /// One encoder, or two for SDXL.
    pub fn new(encoders: Vec<Encoder>, place: Place) -> Self {
        Self { encoders, place, kept: Mutex::default() }
    }

    /// The encoders.
    pub fn encoders(&self) -> &[Encoder] {
        &self.encoders
    }

    /// Encodes a prompt, or takes it from the last ones. `named` says which adapters there are.
    pub fn encode(
        &self,
        prompt: &str,
        clip_skip: Option<usize>,
        adapters: &Adapters,
        named: &str,
    ) -> Result<Arc<Prompt>, EngineError> {
        let key = Key { prompt: prompt.to_owned(), clip_skip, adapters: named.to_owned() };
        let mut kept = self.kept.lock();
        if let Some(found) = kept.iter().position(|(other, _)| *other == key)
            && let Some(entry) = kept.remove(found)
        {
            let prompt = Arc::clone(&entry.1);
            kept.push_front(entry);
            return Ok(prompt);
        }
        drop(kept);
        let encoded = Arc::new(self.encode_now(&key, adapters)?);
        let mut kept = self.kept.lock();
        kept.push_front((key, Arc::clone(&encoded)));
        kept.truncate(KEPT);
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
        // Both lack the final norm, and their last layer unless more are to be skipped.
        let skip = key.clip_skip.unwrap_or(0) + 1;
        let states: Vec<&Tensor> = all.iter().map(|one| &one.hidden[one.hidden.len() - 1 - skip]).collect();
        let states = Tensor::cat(&states, D::Minus1).map_err(compute_error("encode a prompt"))?;
        Ok(Prompt { states, pooled: all.last().map(|last| last.pooled.clone()) })
    }
}
