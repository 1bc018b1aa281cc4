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
    let tried = job.stop().clone().within(|| match pipeline.answer(&input, &job) {
        // It has come as far as it may.
        Err(error) if error.kind() == ErrorKind::Interrupted => pipeline.try_rest(),
        answered => answered.and_then(|_| pipeline.try_rest()),
    });
    let Err(error) = tried else { return Ok(None) };
    match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::ContextLength => Ok(Some(error)),
        ErrorKind::InvalidOutput | ErrorKind::TemplateLimit => {
            Err(invalid_model(error.message()).within(TRIAL))
        }
        _ => Err(error.within(TRIAL)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;

    use super::*;
    use crate::error::invalid_input;

    /// Takes `most` steps, writes a token at step `writes_at`, and answers with `end`.
    struct Steps {
        taken: AtomicU64,
        most: u64,
        writes_at: u64,
        end: Result<(), EngineError>,
        rest: Result<(), EngineError>,
    }

    impl Pipeline for Steps {
        fn answer(&self, _input: &Value, job: &Job) -> Result<Answer, EngineError> {
            for step in 0..self.most {
                job.step()?;
                self.taken.fetch_add(1, Ordering::Relaxed);
                if step == self.writes_at {
                    job.token("a", 1);
                }
            }
            self.end.clone().map(|()| Answer::of(Value::Null, 0))
        }

        fn example(&self) -> Option<Value> {
            Some(json!({}))
        }

        fn try_rest(&self) -> Result<(), EngineError> {
            self.rest.clone()
        }

        fn graphs(&self) -> Vec<String> {
            Vec::new()
        }
    }

    fn steps(most: u64, end: Result<(), EngineError>) -> Steps {
        Steps { taken: AtomicU64::new(0), most, writes_at: u64::MAX, end, rest: Ok(()) }
    }

    #[test]
    fn a_trial_ends_at_a_token_or_its_last_step() {
        for (writes_at, taken) in [(u64::MAX, 16), (0, 1), (2, 3)] {
            let pipeline = Steps { writes_at, ..steps(u64::MAX, Ok(())) };
            assert!(matches!(try_out(&pipeline), Ok(None)));
            assert_eq!(pipeline.taken.load(Ordering::Relaxed), taken);
            let rest = Steps { writes_at, rest: Err(invalid_model("the rest")), ..steps(u64::MAX, Ok(())) };
            assert_eq!(try_out(&rest).expect_err("tried").message(), "a trial job failed: the rest");
        }
    }

    #[test]
    fn a_failed_trial_is_a_fault_of_the_model() {
        for kind in [ErrorKind::InvalidModel, ErrorKind::InvalidOutput, ErrorKind::TemplateLimit] {
            let error = try_out(&steps(1, Err(EngineError::new(kind, "why")))).expect_err("refused");
            assert_eq!(
                (error.kind(), error.message().as_str()),
                (ErrorKind::InvalidModel, "a trial job failed: why")
            );
        }
        for kind in [ErrorKind::Host, ErrorKind::OutOfMemory, ErrorKind::Crashed] {
            let error = try_out(&steps(1, Err(EngineError::new(kind, "why")))).expect_err("it fails");
            assert_eq!(error.kind(), kind, "the host's fault stays one");
        }
        let unsuitable = try_out(&steps(1, Err(invalid_input("no letter of this voice")))).expect("it loads");
        assert_eq!(unsuitable.expect("a reason").message(), "no letter of this voice");
    }
}
