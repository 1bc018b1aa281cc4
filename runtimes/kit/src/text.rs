//! Text in and labels out.
//!
//! | module | content |
//! | --- | --- |
//! | [`tokens`] | the tokenizer of a repository, and the maximum length of a text |
//! | [`scores`] | logits to probabilities, and probabilities to labels |

pub mod scores;
pub mod tokens;
