//! Prompts: tokens, and what the text encoders make of them.

pub mod clip;
pub mod prompt;
pub mod tokens;
