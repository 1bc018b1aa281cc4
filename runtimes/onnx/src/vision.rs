//! Tasks that look at a picture.
//!
//! | module | what it answers |
//! | --- | --- |
//! | [`classify`] | which label fits |
//! | [`detect`] | what is there, and where |
//! | [`segment`] | which pixels belong to what |
//! | [`depth`] | how near things are |
//! | [`caption`] | what it shows, in words |
//! | [`ocr`] | the text in an image |
//!
//! [`preprocess`] makes of a picture what their graphs read.

pub mod caption;
pub mod classify;
pub mod depth;
pub mod detect;
pub mod ocr;
pub mod preprocess;
pub mod segment;

use island_runtimes_kit::{repository::Repository, text::scores};

/// Most classes of a model.
const MAX_CLASSES: usize = 100_000;

/// The names of a model's classes.
fn labels(repository: &Repository) -> Vec<String> {
    let named = repository.config.get("id2label").and_then(serde_json::Value::as_object);
    let count = repository.config.get("num_labels").and_then(serde_json::Value::as_u64);
    let count = named.map(serde_json::Map::len).or(count.map(|count| count as usize)).unwrap_or(0);
    scores::labels(repository, count.clamp(1, MAX_CLASSES))
}
