//! Text generation token by token: translations, summaries, transcripts, captions.
//!
//! | module | content |
//! | --- | --- |
//! | [`options`] | generation settings, from the repository and the job |
//! | [`logits_processors`] | changes of the scores before a token is chosen |
//! | [`search`] | greedy, sampled or beam search over any [`Decoder`] |
//! | [`stream`] | tokens to text, incrementally |
//! | [`window`] | the last tokens of a text, which are decoded with each further one |

mod class_defaults;
pub mod logits_processors;
pub mod options;
pub mod search;
pub mod stream;
pub mod window;

use ndarray::{Array2, ArrayView2};

use crate::error::EngineError;

/// A model that predicts the next token of every row.
pub trait Decoder {
    /// Takes the new tokens of every row and returns the logits after the last of them, `[rows, vocabulary]`.
    fn step(&mut self, tokens: ArrayView2<'_, i64>) -> Result<Array2<f32>, EngineError>;

    /// Row `n` continues as row `order[n]` was. May change the number of rows.
    fn reorder(&mut self, order: &[usize]) -> Result<(), EngineError>;

    /// What heads attended to at the last of these tokens, `[heads, positions]`. `None` if the decoder keeps none, or no row had these tokens.
    fn attention(&self, _tokens: &[u32]) -> Option<ArrayView2<'_, f32>> {
        None
    }
}
