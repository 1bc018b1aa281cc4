//! Labels of the job's input for a text: a model of natural-language inference scores "this example is about …" for each.

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    keys::unsupported,
    pipeline::{Pipeline, TEXT},
    text::{
        scores,
        tokens::{self, Tokens},
    },
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    batch::{Batcher, Row, output},
    task::Loader,
};

/// Maximum number of labels of one job.
const MAX_LABELS: usize = 256;

#[derive(Debug, Deserialize)]
struct Input {
    text: String,
    labels: Vec<String>,
    #[serde(default)]
    multi_label: bool,
    #[serde(default = "template")]
    hypothesis_template: String,
}

fn template() -> String {
    "This example is {}.".to_owned()
}

struct ZeroShot {
    tokens: Tokens,
    graph: Batcher,
    /// The class of entailment.
    entailment: usize,
    classes: usize,
}

/// Loads an inference model.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let tokens = Tokens::load(&loader.repository)?;
    let graph = loader.text_graph(&tokens)?;
    let ids = loader.repository.config.get("label2id").and_then(Value::as_object);
    let ids = ids.ok_or_else(|| invalid_model("config.json: label2id is missing"))?;
    let entailment = entailment(ids)?;
    let classes = ids.len();
    graph.graph().require_numbers("logits", classes, "the classes of label2id in config.json")?;
    Ok(Box::new(ZeroShot { tokens, graph, entailment, classes }))
}

/// The class of entailment; as in the reference the last one if no label is named so.
fn entailment(ids: &Map<String, Value>) -> Result<usize, EngineError> {
    let last = ids.len().saturating_sub(1);
    let entails = ids.iter().find(|(label, _)| label.to_lowercase().starts_with("entail"));
    let Some((label, id)) = entails else { return Ok(last) };
    let class = id.as_u64().map(|id| id as usize).filter(|class| *class <= last);
    class.ok_or_else(|| unsupported("config.json", &format!("label2id.{label}"), id))
}

impl Pipeline for ZeroShot {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { text, labels, multi_label, hypothesis_template } = parse_input(input)?;
        tokens::check(&text, "text")?;
        if labels.is_empty()
            || labels.len() > MAX_LABELS
            || labels.iter().any(|label| label.trim().is_empty())
        {
            return Err(invalid_input(format!("labels must be 1 to {MAX_LABELS} texts that are not empty")));
        }
        if !hypothesis_template.contains("{}") {
            return Err(invalid_input("hypothesis_template has no {} for the label"));
        }
        let longest = self.tokens.max_length;
        let encodings = labels.iter().map(|label| {
            self.tokens.encode_pair_cut(&text, &hypothesis_template.replacen("{}", label, 1), longest)
        });
        let encodings = encodings.collect::<Result<Vec<_>, _>>()?;
        let results = self.graph.run(encodings.iter().map(Row::of).collect(), job)?;
        let mut entailments = Vec::with_capacity(labels.len());
        for result in &results {
            let logits =
                output(result, &["logits"]).ok_or_else(|| invalid_model("the graph gives no logits"))?;
            let logits: Vec<f32> = logits.iter().copied().collect();
            if logits.len() != self.classes {
                return Err(invalid_model(format!(
                    "the graph gives {} classes, not {}",
                    logits.len(),
                    self.classes
                )));
            }
            let against = logits[if self.entailment == 0 { logits.len() - 1 } else { 0 }];
            entailments.push((logits[self.entailment], against));
        }
        let probabilities: Vec<f32> = if multi_label || labels.len() == 1 {
            entailments.iter().map(|&(follows, against)| scores::softmax(&[against, follows])[1]).collect()
        } else {
            scores::softmax(&entailments.iter().map(|&(follows, _)| follows).collect::<Vec<_>>())
        };
        let tokens = encodings.iter().map(|encoding| encoding.len() as u64).sum();
        Ok(Answer::of(scores::answer(&scores::top_k_labels(labels, &probabilities, None)), tokens))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "text": TEXT, "labels": ["ships"] }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.graph().name().to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_entailment_is_one_of_the_classes() {
        let of = |ids: Value| entailment(ids.as_object().expect("ids")).map_err(|error| error.message());
        assert_eq!(of(json!({"CONTRADICTION": 0, "Entailment": 1, "NEUTRAL": 2})), Ok(1));
        assert_eq!(of(json!({"LABEL_0": 0, "LABEL_1": 1})), Ok(1), "the last one");
        for id in [json!(3), json!("2"), json!(0.5), json!(-1)] {
            let refused =
                of(json!({"contradiction": 0, "entailment": id, "neutral": 1})).expect_err("no class");
            assert_eq!(refused, format!("config.json: label2id.entailment = {id} is not supported"));
        }
    }
}
