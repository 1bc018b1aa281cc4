//! One Cargo, checked.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use data_encoding::HEXLOWER;
use island_protocol::cargo::{CargoEntry, CargoSpec, Category, RuntimeType};
use island_protocol_api::WorkloadView;
use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::evaluation::{self, INPUT_STEPS, OUTPUT_STEPS};
use crate::placement;

/// Name of the file by which a language model takes pictures and sounds.
const PROJECTOR: &str = "mmproj";
/// Maximum number of tokens of a conversation where the Cargo states none.
const USUAL_CONTEXT: u64 = 4096;

/// A Cargo that passed every check.
#[derive(Debug, Clone)]
pub struct Cargo {
    /// Its number in SQL.
    pub number: i64,
    pub(super) version: OnceLock<String>,
    pub entry: CargoEntry,
    /// What an assignment sends to an Island.
    pub spec: Arc<CargoSpec>,
    pub input_schema: Value,
    pub output_schema: Value,
    pub input: Arc<Validator>,
    pub output: Arc<Validator>,
    /// Whether the author of the schemas is an account, so that their evaluation is limited.
    pub is_bounded: bool,
    pub example: Value,
}

/// Where and why a value violates a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolation {
    /// Dotted path of the value; empty for the whole.
    pub field: String,
    pub message: String,
}

impl Cargo {
    /// Names what its jobs run: the publication, or a digest of engine, files and schemas. Prices and limits are not part of it.
    pub fn version(&self) -> &str {
        self.version.get_or_init(|| {
            if let Some(published) = &self.entry.published {
                return published.publication.to_string();
            }
            let CargoSpec { runtime_type, onnx_task_type, artifacts, engine, .. } = self.spec.as_ref();
            let schemas = (&self.input_schema, &self.output_schema);
            let parts = serde_json::json!([runtime_type, onnx_task_type, artifacts, engine, schemas]);
            // Longer than an id of a publication.
            HEXLOWER.encode(&Sha256::digest(parts.to_string())[..20])
        })
    }

    /// Whether its author decides what a valid output is, and not the engine alone: its program, or the schema of a publication.
    pub fn has_own_outputs(&self) -> bool {
        matches!(self.spec.runtime_type, RuntimeType::Wasm | RuntimeType::Container)
            || self.entry.published.is_some()
    }

    /// Checks an input against the Cargo's schema.
    pub fn check_input(&self, input: &Value) -> Result<(), SchemaViolation> {
        if self.is_bounded {
            check_bounded(&self.input_schema, &self.input, input, INPUT_STEPS)?;
        } else {
            check(&self.input, input)?;
        }
        match oversized_number(input) {
            None => Ok(()),
            Some(field) => {
                Err(SchemaViolation { field, message: "the number is too large for any engine".to_owned() })
            }
        }
    }

    /// Checks an output against the Cargo's schema.
    pub fn check_output(&self, output: &Value) -> Result<(), SchemaViolation> {
        if self.is_bounded {
            return check_bounded(&self.output_schema, &self.output, output, OUTPUT_STEPS);
        }
        check(&self.output, output)
    }

    /// Whether the input schema has a field of this name.
    pub fn takes(&self, field: &str) -> bool {
        self.input_schema.pointer("/properties").and_then(|fields| fields.get(field)).is_some()
    }

    /// Whether it serves chat requests, including simulated models.
    pub fn is_chat(&self) -> bool {
        self.entry.category == Some(Category::Llm)
            || (placement::generates_text(&self.spec) && self.task().is_some())
    }

    /// Whether it is a language model that may be chosen for those who name none, not a simulated one or one for tests.
    pub(crate) fn is_language_model(&self) -> bool {
        self.entry.category == Some(Category::Llm) && !self.spec.is_simulated()
    }

    /// Whether the model reasons before it answers, as its file in the catalogue states.
    pub fn reasons(&self) -> bool {
        self.spec.engine.get("reasoning").and_then(Value::as_bool).unwrap_or(false)
    }

    /// Whether messages may contain pictures.
    pub fn sees(&self) -> bool {
        self.has_projector() && self.task() != Some("audio-text-to-text")
    }

    /// Whether messages may contain sounds.
    pub fn takes_sounds(&self) -> bool {
        self.has_projector() && matches!(self.task(), Some("audio-text-to-text" | "any-to-any"))
    }

    fn has_projector(&self) -> bool {
        self.spec.artifacts.iter().any(|file| file.name == PROJECTOR)
    }

    /// How the weights of its model are stored, such as `q4_k_m`, by the name of the file.
    pub fn quantization(&self) -> Option<String> {
        let model = self.spec.artifacts.iter().find(|file| file.name == "model")?;
        let file = model.url.rsplit([':', '/']).next()?.split('@').next()?.to_ascii_lowercase();
        let mut parts = file.strip_suffix(".gguf")?.split(['-', '.']);
        let is_one = |part: &&str| {
            let part = part.strip_prefix("ud_").unwrap_or(part);
            let numbered = part.strip_prefix("iq").or(part.strip_prefix('q'));
            numbered.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
                || matches!(part, "f16" | "bf16" | "f32" | "mxfp4")
        };
        parts.rfind(is_one).map(str::to_owned)
    }

    /// Whether its weights are stored in one of these ways; an empty list allows all.
    pub fn is_stored_as(&self, quantizations: &[String]) -> bool {
        let known = self.quantization().unwrap_or_default();
        quantizations.is_empty() || quantizations.iter().any(|wanted| wanted.eq_ignore_ascii_case(&known))
    }

    /// Maximum number of tokens of a conversation.
    pub fn context_tokens(&self) -> u64 {
        match self.spec.limits.context_tokens {
            0 => USUAL_CONTEXT,
            tokens => tokens,
        }
    }

    /// Whether it makes images from a prompt alone.
    pub fn makes_images(&self) -> bool {
        let needs = self.input_schema.get("required").and_then(Value::as_array);
        self.spec.runtime_type == RuntimeType::Diffusers
            && needs.is_some_and(|names| names.iter().all(|name| name == "prompt"))
    }

    /// Whether it makes images from a prompt and an image, with or without a mask.
    pub fn edits_images(&self, has_mask: bool) -> bool {
        let needs = self.input_schema.get("required").and_then(Value::as_array);
        let is_given = |name: &Value| match name.as_str() {
            Some("prompt" | "image") => true,
            Some("mask_image") => has_mask,
            _ => false,
        };
        self.spec.runtime_type == RuntimeType::Diffusers
            && self.takes("image")
            && needs.is_some_and(|names| names.iter().all(is_given))
    }

    /// Its task, for the engines that have tasks.
    pub fn task(&self) -> Option<&str> {
        let of_engine = || self.spec.engine.get("task").and_then(Value::as_str);
        self.spec.onnx_task_type.as_deref().or_else(of_engine)
    }

    /// Whether it is of a task that reads texts, on an engine whose input and output have the form of the API's.
    pub fn reads_texts(&self, task: &str) -> bool {
        matches!(self.spec.runtime_type, RuntimeType::Onnx | RuntimeType::Llmcpp) && self.task() == Some(task)
    }

    /// Whether it turns speech into text.
    pub fn transcribes(&self) -> bool {
        self.task() == Some("automatic-speech-recognition")
    }

    /// The categories of unwanted text that its labels mean, by label, as its file in the catalogue states. Empty if it does not moderate.
    pub fn moderation(&self) -> BTreeMap<String, String> {
        let labels = self.spec.engine.get("moderation").and_then(Value::as_object);
        let labels = labels.filter(|_| self.task() == Some("text-classification"));
        let labels = labels.into_iter().flatten();
        labels.filter_map(|(label, category)| Some((label.clone(), category.as_str()?.to_owned()))).collect()
    }

    /// The answer to `GET /workloads/:slug`.
    pub fn view(&self, is_enabled: bool) -> WorkloadView {
        WorkloadView {
            id: self.number,
            entry: self.entry.clone(),
            is_enabled,
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
            example: Some(self.example.clone()),
        }
    }
}

/// Path of a number that does not fit 64 bits: `1e300` is an integer according to JSON Schema.
fn oversized_number(value: &Value) -> Option<String> {
    let within = |name: &str, inner: &Value| {
        let path = oversized_number(inner)?;
        Some(if path.is_empty() { name.to_owned() } else { format!("{name}.{path}") })
    };
    match value {
        Value::Number(number) => (number.as_f64()?.abs() > 1e19).then(String::new),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| within(&index.to_string(), item))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, field)| within(name, field)),
        _ => None,
    }
}

/// Violations that are compared: enough to find a specific one, and bounded for a hostile body.
const MAX_ERRORS: usize = 16;

/// Returns one violation. The message names the field and never repeats the value.
pub fn check(schema: &Validator, value: &Value) -> Result<(), SchemaViolation> {
    let path = |error: &ValidationError<'_>| -> Vec<String> {
        error.instance_path().to_string().split('/').skip(1).map(str::to_owned).collect()
    };
    // The deepest of the first errors is the most specific one.
    let errors = schema.iter_errors(value).take(MAX_ERRORS).map(|error| (path(&error), error));
    let deepest = errors.reduce(|best, next| if next.0.len() > best.0.len() { next } else { best });
    let Some((mut names, error)) = deepest else { return Ok(()) };
    names.extend(named_by(error.kind()));
    Err(SchemaViolation { field: names.join("."), message: error.masked_with("the value").to_string() })
}

/// The same for a schema of an account, in at most this number of steps. Errors of a large evaluation have no field.
pub(crate) fn check_bounded(
    schema: &Value,
    validator: &Validator,
    value: &Value,
    limit: u64,
) -> Result<(), SchemaViolation> {
    let violation = |message: String| SchemaViolation { field: String::new(), message };
    let steps = evaluation::steps(schema, value, limit).ok_or_else(|| {
        violation(format!("the value takes more than {limit} steps to check against the schema"))
    })?;
    if validator.is_valid(value) {
        return Ok(());
    }
    if evaluation::is_explained(steps) {
        check(validator, value)?;
    }
    Err(violation("the value does not match the schema".to_owned()))
}

/// The field of an object that an error about the object names.
fn named_by(kind: &ValidationErrorKind) -> Option<String> {
    match kind {
        ValidationErrorKind::Required { property } => property.as_str().map(str::to_owned),
        ValidationErrorKind::AdditionalProperties { unexpected } => unexpected.first().cloned(),
        _ => None,
    }
}
