//! Logits to probabilities, and probabilities to labels.

use serde::Serialize;
use serde_json::Value;

use crate::repository::Repository;

/// A label and its score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scored {
    /// Its name in the model's settings.
    pub label: String,
    /// Between 0 and 1.
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

/// The names of a model's classes, by index.
pub fn labels(repository: &Repository, classes: usize) -> Vec<String> {
    let named = repository.config.get("id2label");
    let name = |class: usize| named?.get(class.to_string())?.as_str().map(str::to_owned);
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
