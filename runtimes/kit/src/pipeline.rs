//! What every task implements.

use ndarray::Array2;
use serde_json::Value;

use crate::{
    error::{EngineError, ErrorKind, invalid_model},
    job::{Answer, Job},
    media::{gray, sound},
};

/// The text of examples.
pub const TEXT: &str = "The ship lies in the harbour.";
/// Sides of their picture in pixels.
const SIDE: usize = 64;
/// Samples in a second of their sound.
const RATE: u32 = 16_000;
/// Context of the errors of a trial.
const TRIAL: &str = "a trial job failed";

/// A loaded model that answers the inputs of one task. Concurrent jobs share it.
pub trait Pipeline: Send + Sync + 'static {
    /// Answers one input. Blocks; calls [`Job::step`] between steps.
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError>;

    /// A small input, for the trial that ends loading. `None` if only the consumers of the model know one.
    fn example(&self) -> Option<Value>;

    /// Computes what a job of the example may not reach.
    fn try_rest(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Paths in the repository of the graphs it runs.
    fn graphs(&self) -> Vec<String>;
}

/// A picture of all shades, as in the inputs of tasks.
pub fn example_picture() -> String {
    let shades = Array2::from_shape_fn((SIDE, SIDE), |(y, x)| (y + x) as u8 * 2);
    gray::png(&shades).expect("a picture of a fixed size")
}

/// A second of a low tone, as in the inputs of tasks.
pub fn example_sound() -> String {
    let tone = |at: u32| (at as f32 / RATE as f32 * 220.0 * std::f32::consts::TAU).sin() / 4.0;
    sound::wav(&(0..RATE).map(tone).collect::<Vec<_>>(), RATE)
}

/// Runs a job of the example, which ends at its first token or after some steps: a model that loads and fails in every job is rejected. Returns
/// the reason if the example is not for this model, such as an English text for a voice of another alphabet.
pub fn try_out(pipeline: &dyn Pipeline) -> Result<Option<EngineError>, EngineError> {
    let Some(input) = pipeline.example() else { return Ok(None) };
    let job = Job::trial();
    let tried = job.stop().clone().within(|| pipeline.answer(&input, &job).and_then(|_| pipeline.try_rest()));
    let Err(error) = tried else { return Ok(None) };
    match error.kind() {
        // It has come as far as it may.
        ErrorKind::Interrupted => Ok(None),
        ErrorKind::InvalidInput | ErrorKind::ContextLength => Ok(Some(error)),
        ErrorKind::InvalidOutput | ErrorKind::TemplateLimit => {
            Err(invalid_model(error.message()).within(TRIAL))
        }
        _ => Err(error.within(TRIAL)),
    }
}
