//! Input and output of jobs that embed or rank texts.

use serde_json::{Map, Value, json};

use island_protocol::{cargo::CargoSpec, job::Failure};

use super::Purpose;
use crate::{model::rejected, request::RequestError};

/// Maximum size of a text in bytes.
const MAX_TEXT_BYTES: usize = 2 << 20;
/// Maximum number of texts of one job.
const MAX_TEXTS: usize = 2048;
/// Maximum number of documents of one job.
const MAX_DOCUMENTS: usize = 1000;

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Vectors of texts.
    Embed {
        /// The texts, each after the requested prompt.
        texts: Vec<String>,
        /// Length of the vectors; `None` is the model's own.
        dimensions: Option<usize>,
        /// Whether the vectors have length one.
        normalize: bool,
    },
    /// Relevance of documents.
    Rank {
        /// What they are compared with.
        query: String,
        /// The documents.
        documents: Vec<String>,
    },
}

impl Request {
    /// Parses a job's input for a model with this purpose. Prompts are those of the Cargo.
    pub fn of(purpose: Purpose, cargo: &CargoSpec, input: &Value) -> Result<Self, Failure> {
        let fields = input.as_object().ok_or(RequestError::Shape)?;
        match purpose {
            Purpose::Embeds => embed(cargo, fields),
            Purpose::Ranks => rank(fields).map_err(Failure::from),
        }
    }

    /// The output of a job from the vector of each of its texts.
    pub fn output(&self, mut vectors: Vec<Vec<f32>>) -> Result<Value, Failure> {
        match self {
            Self::Embed { dimensions, normalize, .. } => {
                for vector in &mut vectors {
                    if let Some(count) = *dimensions {
                        if count > vector.len() {
                            let must = "at most the length of the model's vectors";
                            return Err(RequestError::Field { field: "dimensions", must }.into());
                        }
                        vector.truncate(count);
                    }
                    if *normalize {
                        normalized(vector);
                    }
                }
                let dimensions = vectors.first().map_or(0, Vec::len);
                Ok(json!({ "embeddings": vectors, "dimensions": dimensions }))
            }
            Self::Rank { .. } => {
                let scores: Option<Vec<f32>> = vectors.iter().map(|head| score(head)).collect();
                scores
                    .map(|scores| json!({ "scores": scores }))
                    .ok_or_else(|| rejected("the model's head gives no number"))
            }
        }
    }
}

/// A head with one number gives a logit. That of Qwen3 has two, for "yes" and "no", and llama.cpp computes their probabilities.
fn score(head: &[f32]) -> Option<f32> {
    match head {
        [] => None,
        [logit] => Some(1.0 / (1.0 + (-logit).exp())),
        [probability, ..] => Some(probability.clamp(0.0, 1.0)),
    }
}

fn normalized(vector: &mut [f32]) {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt().max(1e-12);
    vector.iter_mut().for_each(|number| *number /= length);
}

fn embed(cargo: &CargoSpec, fields: &Map<String, Value>) -> Result<Request, Failure> {
    let must = "1 to 2048 texts of at most 2 MiB";
    let wrong = RequestError::Field { field: "input", must };
    let texts = match fields.get("input") {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(_)) => texts(fields, "input", must)?,
        _ => return Err(wrong.into()),
    };
    let is_sound = |text: &String| !text.is_empty() && text.len() <= MAX_TEXT_BYTES;
    if texts.is_empty() || texts.len() > MAX_TEXTS || !texts.iter().all(is_sound) {
        return Err(wrong.into());
    }
    let dimensions = match fields.get("dimensions").filter(|value| !value.is_null()) {
        None => None,
        Some(value) => {
            let number = value.as_u64().filter(|&number| number > 0);
            let must = "a whole number of at least 1";
            Some(number.ok_or(RequestError::Field { field: "dimensions", must })? as usize)
        }
    };
    let prompt = prompt(cargo, fields)?;
    Ok(Request::Embed {
        texts: texts.into_iter().map(|text| format!("{prompt}{text}")).collect(),
        dimensions,
        normalize: cargo.engine.get("normalize").and_then(Value::as_bool).unwrap_or(true),
    })
}

/// The prompt before each text: the named one, or the default one.
fn prompt<'c>(cargo: &'c CargoSpec, fields: &Map<String, Value>) -> Result<&'c str, Failure> {
    let default = || cargo.engine.get("default_prompt_name").and_then(Value::as_str);
    let name = match fields.get("prompt").filter(|value| !value.is_null()) {
        None => default(),
        Some(name) => {
            let must = "the name of one of the model's prompts";
            Some(name.as_str().ok_or(RequestError::Field { field: "prompt", must })?)
        }
    };
    let Some(name) = name else { return Ok("") };
    let prompts = cargo.engine.get("prompts").and_then(Value::as_object);
    let prompt = prompts.and_then(|prompts| prompts.get(name)).and_then(Value::as_str);
    prompt.ok_or_else(|| {
        let known: Vec<&str> = prompts.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let message = format!("the model has no prompt {name:?}; it has: {}", known.join(", "));
        Failure::of_job(island_protocol::job::FailureCode::InvalidInput, message)
    })
}

fn rank(fields: &Map<String, Value>) -> Result<Request, RequestError> {
    let query = fields.get("query").and_then(Value::as_str);
    let query = query.filter(|query| !query.is_empty() && query.len() <= MAX_TEXT_BYTES);
    let query = query.ok_or(RequestError::Field { field: "query", must: "a text of at most 2 MiB" })?;
    let must = "1 to 1000 texts of at most 2 MiB";
    let documents = texts(fields, "documents", must)?;
    let is_sound = documents.iter().all(|document| document.len() <= MAX_TEXT_BYTES);
    if documents.is_empty() || documents.len() > MAX_DOCUMENTS || !is_sound {
        return Err(RequestError::Field { field: "documents", must });
    }
    Ok(Request::Rank { query: query.to_owned(), documents })
}

fn texts(
    fields: &Map<String, Value>,
    field: &'static str,
    must: &'static str,
) -> Result<Vec<String>, RequestError> {
    let wrong = RequestError::Field { field, must };
    let list = fields.get(field).and_then(Value::as_array).ok_or(wrong.clone())?;
    list.iter().map(|text| text.as_str().map(str::to_owned).ok_or(wrong.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cargo() -> CargoSpec {
        let engine = json!({"prompts": {"query": "Q: "}});
        serde_json::from_value(json!({"slug": "a", "runtime_type": "llmcpp", "engine": engine}))
            .expect("a Cargo")
    }

    #[test]
    fn texts_come_after_their_prompt() {
        let read = |input: Value| Request::of(Purpose::Embeds, &cargo(), &input);
        let Request::Embed { texts, dimensions, normalize } =
            read(json!({"input": ["a", "b"], "prompt": "query", "dimensions": 2})).expect("a request")
        else {
            panic!("it embeds")
        };
        assert_eq!(
            (texts, dimensions, normalize),
            (vec!["Q: a".to_owned(), "Q: b".to_owned()], Some(2), true)
        );
        for bad in [
            json!({}),
            json!({"input": []}),
            json!({"input": [1]}),
            json!({"input": ""}),
            json!({"input": "a", "prompt": "x"}),
            json!({"input": "a", "dimensions": 0}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn vectors_are_cut_before_they_are_normalized() {
        let request = Request::of(Purpose::Embeds, &cargo(), &json!({"input": "a", "dimensions": 2}))
            .expect("a request");
        let output = request.output(vec![vec![3.0, 4.0, 9.0]]).expect("vectors");
        assert_eq!(output["dimensions"], 2);
        let vector: Vec<f64> =
            output["embeddings"][0].as_array().expect("numbers").iter().filter_map(Value::as_f64).collect();
        assert!((vector[0] - 0.6).abs() < 1e-6 && (vector[1] - 0.8).abs() < 1e-6, "{vector:?}");
        assert!(request.output(vec![vec![1.0]]).is_err(), "it is shorter");
    }

    #[test]
    fn scores_are_shares() {
        assert_eq!(score(&[0.0]), Some(0.5));
        assert_eq!(score(&[0.75, 0.25]), Some(0.75));
        assert_eq!(score(&[]), None);
    }
}
