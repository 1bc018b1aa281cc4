//! The style vectors of the voices, one JSON file for each.

use std::collections::BTreeMap;

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    repository::Repository,
};
use ndarray::{ArrayD, IxDyn};
use serde_json::Value;

const FOLDER: &str = "voice_styles/";
/// Maximum number of numbers in a style vector.
const MAX_NUMBERS: usize = 1 << 20;

/// How one person speaks.
#[derive(Debug)]
pub(super) struct Voice {
    /// The style of the sound.
    pub speech: ArrayD<f32>,
    /// The style of the lengths.
    pub duration: ArrayD<f32>,
}

/// All voices of a repository by name.
pub(super) fn load(repository: &Repository) -> Result<BTreeMap<String, Voice>, EngineError> {
    let mut voices = BTreeMap::new();
    let files: Vec<&str> = repository.names().filter(|name| name.starts_with(FOLDER)).collect();
    for file in files {
        let Some(name) = file.strip_prefix(FOLDER).and_then(|name| name.strip_suffix(".json")) else {
            continue;
        };
        let style = repository.json(file)?.unwrap_or_default();
        let vector = |field: &str| {
            array(&style[field]).ok_or_else(|| {
                invalid_model(format!("{field} of {file} must have dims, and as many finite numbers in data"))
            })
        };
        voices.insert(name.to_owned(), Voice { speech: vector("style_ttl")?, duration: vector("style_dp")? });
    }
    if voices.is_empty() {
        return Err(invalid_model(format!("the repository has no voice: no file {FOLDER}*.json")));
    }
    Ok(voices)
}

fn array(vector: &Value) -> Option<ArrayD<f32>> {
    let sizes: Option<Vec<usize>> =
        vector.get("dims")?.as_array()?.iter().map(|size| size.as_u64()?.try_into().ok()).collect();
    let sizes = sizes?;
    let count = sizes.iter().try_fold(1_usize, |count, &size| count.checked_mul(size))?;
    if count > MAX_NUMBERS {
        return None;
    }
    let mut numbers = Vec::with_capacity(count);
    let is_whole = flatten(vector.get("data")?, count, &mut numbers);
    let fits = is_whole && numbers.iter().all(|number| number.is_finite());
    if fits { ArrayD::from_shape_vec(IxDyn(&sizes), numbers).ok() } else { None }
}

/// Appends all numbers of nested lists. Returns whether there was nothing else, and no more than `most`.
fn flatten(value: &Value, most: usize, numbers: &mut Vec<f32>) -> bool {
    match value {
        Value::Array(items) => items.iter().all(|item| flatten(item, most, numbers)),
        Value::Number(number) => {
            numbers.push(number.as_f64().unwrap_or(f64::NAN) as f32);
            numbers.len() <= most
        }
        _ => false,
    }
}
