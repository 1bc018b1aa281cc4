//! Text in and labels out.
//!
//! | module | content |
//! | --- | --- |
//! | [`tokens`] | the tokenizer of a repository, and the maximum length of a text |
//! | [`rules`] | checks of SentencePiece's rules for normalization |
//! | [`scores`] | logits to probabilities, and probabilities to labels |

mod overrides;
pub mod rules;
pub mod scores;
pub mod tokens;
