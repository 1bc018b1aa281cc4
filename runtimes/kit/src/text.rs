//! Text in and labels out.
//!
//! | module | content |
//! | --- | --- |
//! | [`settings`] | the settings beside a tokenizer |
//! | [`tokens`] | the tokenizer of a repository, and the maximum length of a text |
//! | [`rules`] | checks of SentencePiece's rules for normalization |
//! | [`scores`] | logits to probabilities, and probabilities to labels |

mod overrides;
pub mod rules;
pub mod scores;
pub mod settings;
mod specials;
pub mod tokens;
