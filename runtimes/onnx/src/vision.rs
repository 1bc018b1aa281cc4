//! Tasks on images.
//!
//! | module | output |
//! | --- | --- |
//! | [`classify`] | labels |
//! | [`detect`] | objects and their boxes |
//! | [`segment`] | masks |
//! | [`depth`] | a depth map |
//! | [`caption`] | a description |
//! | [`ocr`] | the text in an image |
//!
//! [`preprocess`] converts images to the inputs of graphs.

pub mod caption;
pub mod classify;
pub mod depth;
pub mod detect;
pub mod ocr;
pub mod preprocess;
pub mod segment;

use island_runtimes_kit::{repository::Repository, text::scores};

/// Maximum number of classes of a model.
const MAX_CLASSES: usize = 100_000;

/// The names of a model's classes.
fn labels(repository: &Repository) -> Vec<String> {
    let named = repository.config.get("id2label").and_then(serde_json::Value::as_object);
    let count = repository.config.get("num_labels").and_then(serde_json::Value::as_u64);
    let count = named.map(serde_json::Map::len).or(count.map(|count| count as usize)).unwrap_or(0);
    scores::labels(repository, count.clamp(1, MAX_CLASSES))
}
