//! Tasks on text.

pub(crate) mod attention;
pub mod classify;
pub mod embed;
pub mod entities;
pub mod gliner;
pub mod mask;
pub mod rank;
mod sentence;
pub mod seq2seq;
pub mod span;
pub mod zero_shot;
