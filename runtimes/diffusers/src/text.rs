//! Prompts: tokenizers and text encoders.

pub mod clip;
pub mod prompt;
pub mod tokens;
