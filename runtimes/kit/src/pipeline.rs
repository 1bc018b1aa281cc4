//! What every task implements.

use serde_json::Value;

use crate::{
    error::EngineError,
    job::{Answer, Job},
};

/// A loaded model that answers the inputs of one task. Concurrent jobs share it.
pub trait Pipeline: Send + Sync + 'static {
    /// Answers one input. Blocks; calls [`Job::step`] between steps.
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError>;

    /// Paths in the repository of the graphs it runs.
    fn graphs(&self) -> Vec<String>;
}
