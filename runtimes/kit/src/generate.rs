//! Text written token by token: translations, summaries, transcripts, captions.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`options`] | how to write, from the repository's settings and the job's wishes |
//! | [`logits_processors`] | changes of the scores before a token is chosen |
//! | [`search`] | greedy, sampled or beam search over any [`Decoder`] |
//! | [`stream`] | tokens to text, piece by piece |

pub mod logits_processors;
pub mod options;
pub mod search;
pub mod stream;

use ndarray::{Array2, ArrayView2};

use crate::error::EngineError;

/// A model that says, row by row, what could come next.
pub trait Decoder {
    /// Takes the new tokens of every row and gives the logits behind the last of them, `[rows, vocabulary]`.
    fn step(&mut self, tokens: ArrayView2<'_, i64>) -> Result<Array2<f32>, EngineError>;

    /// Row `n` goes on with what row `order[n]` was. May change how many rows there are.
    fn reorder(&mut self, order: &[usize]) -> Result<(), EngineError>;
}
