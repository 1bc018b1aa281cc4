//! Logits to probabilities, and probabilities to labels.

use serde::Serialize;
use serde_json::Value;

use crate::{error::EngineError, keys::unsupported, repository::Repository};

/// A label and its score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scored {
    /// Its name in the model's settings.
    pub label: String,
    /// Between 0 and 1, but for a regression.
    pub score: f32,
}

/// Probabilities that sum to 1.
pub fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits.iter().map(|logit| (logit - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The probability of an independent label.
pub fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// Maximum number of classes.
const MAX_CLASSES: usize = 100_000;

/// How the scores of classes relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// One class applies: the scores are probabilities that sum to 1.
    OneOf,
    /// Classes are independent of each other: each score is a probability.
    AnyOf,
    /// Scores are values of any size.
    Regression,
}

impl Problem {
    /// From `config.json`. An error if its `problem_type` is unknown.
    pub fn of(repository: &Repository, classes: usize) -> Result<Self, EngineError> {
        let named = repository.config.get("problem_type").filter(|value| !value.is_null());
        match named.map(|value| value.as_str().unwrap_or_default()) {
            Some("regression") => Ok(Self::Regression),
            Some("multi_label_classification") => Ok(Self::AnyOf),
            None | Some("single_label_classification") if classes == 1 => Ok(Self::AnyOf),
            None | Some("single_label_classification") => Ok(Self::OneOf),
            Some(_) => Err(unsupported("config.json", "problem_type", named.unwrap_or(&Value::Null))),
        }
    }

    /// Logits to scores.
    pub fn scores(self, logits: &[f32]) -> Vec<f32> {
        match self {
            Self::OneOf => softmax(logits),
            Self::AnyOf => logits.iter().map(|&logit| sigmoid(logit)).collect(),
            Self::Regression => logits.to_vec(),
        }
    }
}

/// The number of a model's classes: a configuration without names has two.
pub fn class_count(repository: &Repository) -> usize {
    let named = repository.config.get("id2label").and_then(Value::as_object).map(serde_json::Map::len);
    let counted = || Some(repository.config.get("num_labels")?.as_u64()? as usize);
    named.or_else(counted).unwrap_or(2).clamp(1, MAX_CLASSES)
}

/// The names of a model's classes, by index. A number becomes a text.
pub fn labels(repository: &Repository, classes: usize) -> Vec<String> {
    let named = repository.config.get("id2label");
    let name = |class: usize| match named?.get(class.to_string())? {
        Value::String(name) => Some(name.clone()),
        Value::Number(name) => Some(name.to_string()),
        _ => None,
    };
    (0..classes).map(|class| name(class).unwrap_or_else(|| format!("LABEL_{class}"))).collect()
}

/// Sorted by descending score; equal scores keep their order.
pub fn top_k_labels(
    labels: impl IntoIterator<Item = String>,
    scores: &[f32],
    top_k: Option<usize>,
) -> Vec<Scored> {
    let mut all: Vec<Scored> =
        labels.into_iter().zip(scores).map(|(label, &score)| Scored { label, score }).collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all.truncate(top_k.unwrap_or(usize::MAX).max(1));
    all
}

/// The output of every task that chooses among labels.
pub fn answer(scores: &[Scored]) -> Value {
    let best = scores.first();
    serde_json::json!({
        "label": best.map(|best| &best.label),
        "score": best.map(|best| best.score),
        "scores": scores,
    })
}

/// The index of the maximum; the first one of equals.
pub fn argmax(values: impl IntoIterator<Item = f32>) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (place, value) in values.into_iter().enumerate() {
        if value > best.1 {
            best = (place, value);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    #[test]
    fn a_name_that_is_a_number_is_a_text() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("config.json");
        fs::write(&path, r#"{"id2label": {"0": 7, "1": "B"}}"#).expect("write");
        let repository = Repository::open(BTreeMap::from([("config.json".to_owned(), path)])).expect("known");
        assert_eq!(labels(&repository, 3), ["7", "B", "LABEL_2"]);
    }
}
