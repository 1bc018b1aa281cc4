//! Relevance of documents to a query: a cross-encoder reads the query together with each document.

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    keys::{RANKING, RANKING_TRANSFORMER, unsupported},
    pipeline::{Pipeline, TEXT},
    text::{
        scores,
        tokens::{self, MAX_TEXT_BYTES, Tokens},
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::sentence::{self, Sentences};
use crate::{
    batch::{Batcher, Row, output},
    task::Loader,
};

/// Maximum number of documents of one job.
const MAX_DOCUMENTS: usize = 1000;
/// Pairs that wait in the batcher at one time: the tokens of the others are not in memory yet.
const CHUNK: usize = 64;

#[derive(Debug, Deserialize)]
struct Input {
    query: String,
    documents: Vec<String>,
}

struct CrossEncoder {
    tokens: Tokens,
    graph: Batcher,
    /// Maximum number of tokens of a pair.
    max_length: usize,
    /// The prompt before a query; empty if the model has none.
    prompt: String,
}

/// Loads a cross-encoder.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let classes = scores::class_count(&loader.repository);
    if classes != 1 {
        let config = &loader.repository.config;
        let key = if config.get("id2label").is_some() { "id2label" } else { "num_labels" };
        let refused = unsupported("config.json", key, config.get(key).unwrap_or(&Value::Null));
        return Err(refused.followed_by(format!("{classes} classes, and a model that ranks has one")));
    }
    sentence::check_network_alone(&loader.repository)?;
    let mut tokens = Tokens::load(&loader.repository)?;
    let sentences = Sentences::load(loader, &mut tokens, &RANKING_TRANSFORMER, &RANKING)?;
    let prompt = sentences.default_prompt.as_deref().and_then(|name| sentences.prompt(name));
    let prompt = prompt.unwrap_or_default().to_owned();
    let graph = loader.text_graph(&tokens)?;
    graph.graph().require_numbers("logits", 1, "a model that ranks gives one number for each pair")?;
    Ok(Box::new(CrossEncoder { tokens, graph, max_length: sentences.max_length, prompt }))
}

impl CrossEncoder {
    /// The scores of documents, and the number of tokens that were read.
    fn scores(&self, query: &str, documents: &[String], job: &Job) -> Result<(Vec<f32>, u64), EngineError> {
        let query = format!("{}{query}", self.prompt);
        let encoded = |document: &String| self.tokens.encode_pair(&query, document, self.max_length);
        let encodings = documents.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
        let read = encodings.iter().map(|encoding| encoding.len() as u64).sum();
        let results = self.graph.run(encodings.iter().map(Row::of).collect(), job)?;
        let scores = results.iter().map(|result| {
            let logits =
                output(result, &["logits"]).ok_or_else(|| invalid_model("the graph gives no logits"))?;
            let mut logits = logits.iter();
            match (logits.next(), logits.next()) {
                (Some(&logit), None) => Ok(scores::sigmoid(logit)),
                _ => Err(invalid_model("the graph does not give one number for each pair")),
            }
        });
        Ok((scores.collect::<Result<_, _>>()?, read))
    }
}

impl Pipeline for CrossEncoder {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { query, documents } = parse_input(input)?;
        tokens::check(&query, "query")?;
        if documents.is_empty() || documents.len() > MAX_DOCUMENTS {
            return Err(invalid_input(format!("documents must be 1 to {MAX_DOCUMENTS} texts")));
        }
        if let Some(bytes) = documents.iter().map(String::len).find(|&bytes| bytes > MAX_TEXT_BYTES) {
            let message = format!("a document has {bytes} bytes, at most {MAX_TEXT_BYTES} are read");
            return Err(invalid_input(message));
        }
        let (mut scores, mut read) = (Vec::with_capacity(documents.len()), 0);
        for documents in documents.chunks(CHUNK) {
            let (some, tokens) = self.scores(&query, documents, job)?;
            scores.extend(some);
            read += tokens;
        }
        Ok(Answer::of(json!({ "scores": scores }), read))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "query": TEXT, "documents": [TEXT] }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.graph().name().to_owned()]
    }
}
