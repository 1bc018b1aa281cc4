//! What a model is asked, and how its numbers become an answer.
//!
//! | module | what it answers |
//! | --- | --- |
//! | [`classifier`] | which label fits a picture |
//! | [`embedding`] | texts as vectors |
//! | [`picture`] | pictures into what models read |
//! | [`plane`] | depth maps, segments, pictures |
//! | [`tensors`] | whatever goes in and comes out, as JSON |
//! | [`language`] | replies, token by token |

pub mod classifier;
pub mod embedding;
pub mod language;
pub mod picture;
pub mod plane;
pub mod tensors;

use std::sync::Arc;

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_onnx::{repository::Repository, task::Pipeline};
use serde_json::Value;

use crate::model::Model;

/// What a driver is made of.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The model.
    pub model: Arc<dyn Model>,
    /// The files around it: a tokeniser, a chat template.
    pub repository: Repository,
    /// The entry's `[engine]` table: what the files do not say.
    pub settings: Value,
}

impl Parts {
    /// A text of the settings.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.settings.get(name).and_then(Value::as_str)
    }

    /// A flag of the settings.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.settings.get(name).and_then(Value::as_bool)
    }

    /// A number of the settings.
    pub fn number(&self, name: &str) -> Option<f32> {
        self.settings.get(name).and_then(Value::as_f64).map(|number| number as f32)
    }

    /// Labels that the settings list.
    pub fn labels(&self) -> Option<Vec<String>> {
        let labels = self.settings.get("labels")?.as_array()?;
        labels.iter().map(|label| label.as_str().map(str::to_owned)).collect()
    }
}

/// Makes a driver.
type Load = fn(Parts) -> Result<Box<dyn Pipeline>, Failure>;

/// Every task there is, by its name in an entry: `[engine] task`.
const TASKS: [(&str, Load); 7] = [
    ("tensors", tensors::load),
    ("image-classification", classifier::load),
    ("feature-extraction", embedding::load),
    ("depth-estimation", plane::load_depth),
    ("image-segmentation", plane::load_segments),
    ("image-to-image", plane::load_picture),
    ("text-generation", language::load),
];

/// Makes what answers an entry's task.
pub fn load(parts: Parts) -> Result<Box<dyn Pipeline>, Failure> {
    let task = parts.text("task").unwrap_or_default().to_owned();
    let Some((_, load)) = TASKS.iter().find(|(name, _)| *name == task) else {
        let message = format!("no driver answers the task {task:?}; those there are: {}", names().join(", "));
        return Err(Failure::of_host(FailureCode::ModelRejected, message));
    };
    load(parts)
}

/// The names of all tasks.
pub fn names() -> Vec<&'static str> {
    TASKS.iter().map(|(name, _)| *name).collect()
}
