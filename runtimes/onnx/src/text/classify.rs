//! Text classification.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::{Answer, Job, parse_input},
    pipeline::{Pipeline, TEXT},
    text::{
        scores::{self, Problem},
        tokens::{self, Tokens},
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    batch::{Batcher, Row, output},
    task::Loader,
};

#[derive(Debug, Deserialize)]
struct Input {
    text: String,
    top_k: Option<usize>,
    /// Whether long texts are truncated rather than rejected.
    #[serde(default)]
    truncate: bool,
}

struct Classifier {
    tokens: Tokens,
    graph: Batcher,
    labels: Vec<String>,
    problem: Problem,
}

/// Loads a text classifier.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let tokens = Tokens::load(&loader.repository)?;
    let graph = loader.text_graph(&tokens)?;
    let classes = scores::class_count(&loader.repository);
    let labels = scores::labels(&loader.repository, classes);
    let problem = Problem::of(&loader.repository, classes)?;
    graph.graph().require_numbers("logits", classes, "the classes of config.json")?;
    Ok(Box::new(Classifier { tokens, graph, labels, problem }))
}

impl Pipeline for Classifier {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { text, top_k, truncate } = parse_input(input)?;
        tokens::check(&text, "text")?;
        let encoding = if truncate {
            self.tokens.encode_cut(&text, None, self.tokens.max_length, 0)?
        } else {
            self.tokens.encode_whole(&text)?
        };
        let results = self.graph.run(vec![Row::of(&encoding)], job)?;
        let logits =
            output(&results[0], &["logits"]).ok_or_else(|| invalid_model("the graph gives no logits"))?;
        let logits: Vec<f32> = logits.iter().copied().collect();
        if logits.len() != self.labels.len() {
            let message =
                format!("the graph gives {} classes, config.json names {}", logits.len(), self.labels.len());
            return Err(invalid_model(message));
        }
        let scored = self.problem.scores(&logits);
        let top_k_labels = scores::top_k_labels(self.labels.iter().cloned(), &scored, top_k);
        Ok(Answer::of(scores::answer(&top_k_labels), encoding.len() as u64))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "text": TEXT }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.graph().name().to_owned()]
    }
}
