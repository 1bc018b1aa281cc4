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

use island_runtimes_graph::Graph;
use island_runtimes_kit::{error::EngineError, repository::Repository, text::scores};

/// The names of a model's classes.
fn labels(repository: &Repository) -> Vec<String> {
    scores::labels(repository, scores::class_count(repository))
}

/// Rejects a graph that needs another input than an image.
pub(crate) fn require_image(graph: &Graph) -> Result<(), EngineError> {
    graph.require_fed(&[preprocess::input(graph)])
}
