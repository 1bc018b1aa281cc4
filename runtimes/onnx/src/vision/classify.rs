//! Image classification.

use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::{Answer, Job, parse_input},
    media::picture,
    pipeline::{Pipeline, example_picture},
    text::scores::{self, Problem},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::preprocess::Preprocessor;
use crate::task::Loader;

/// Default number of labels of an answer.
const TOP_K: usize = 5;

#[derive(Debug, Deserialize)]
struct Input {
    image: String,
    top_k: Option<usize>,
}

struct Classifier {
    graph: Graph,
    preprocessor: Preprocessor,
    labels: Vec<String>,
    problem: Problem,
}

/// Loads an image classifier.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let labels = super::labels(&loader.repository);
    let graph = loader.image_graph(&["model"])?;
    graph.require_numbers("logits", labels.len(), "the classes of config.json")?;
    Ok(Box::new(Classifier {
        graph,
        preprocessor: Preprocessor::load(&loader.repository)?,
        // The reference knows no regression of images.
        problem: match Problem::of(&loader.repository, labels.len())? {
            Problem::Regression if labels.len() == 1 => Problem::AnyOf,
            Problem::Regression => Problem::OneOf,
            problem => problem,
        },
        labels,
    }))
}

impl Pipeline for Classifier {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { image, top_k } = parse_input(input)?;
        let picture = picture::read(&image, "the image")?;
        job.step()?;
        let prepared = self.preprocessor.prepare(&picture)?;
        let logits = self.graph.run(prepared.feeds(&self.graph))?.floats("logits")?;
        let logits: Vec<f32> = logits.iter().copied().collect();
        if logits.len() != self.labels.len() {
            let message =
                format!("the graph gives {} classes, config.json names {}", logits.len(), self.labels.len());
            return Err(invalid_model(message));
        }
        let probabilities = self.problem.scores(&logits);
        let top_k_labels =
            scores::top_k_labels(self.labels.iter().cloned(), &probabilities, Some(top_k.unwrap_or(TOP_K)));
        Ok(Answer::of(scores::answer(&top_k_labels), 0))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "image": example_picture() }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.name().to_owned()]
    }
}
