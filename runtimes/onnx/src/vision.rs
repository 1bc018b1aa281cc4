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

/// The names of a model's classes.
fn labels(repository: &Repository) -> Vec<String> {
    scores::labels(repository, scores::class_count(repository))
}
