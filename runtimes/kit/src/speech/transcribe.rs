//! Speech to text: the input of a job, and the pipeline around any kind of model.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    error::EngineError,
    job::{Answer, Job, parse_input},
    pipeline::{Pipeline, example_sound},
};

/// The input of a transcription.
#[derive(Debug, Deserialize)]
pub struct Request {
    /// The audio file in base64.
    pub audio: String,
    /// Language code; absent, the language is detected.
    pub language: Option<String>,
    /// `transcribe` or `translate`.
    pub task: Option<String>,
    /// Which timestamps the output has.
    #[serde(default)]
    pub timestamps: Timestamps,
    /// Whether the output has the duration of the audio. Schemas of the last version do not know that field.
    #[serde(default)]
    pub duration: bool,
    /// The other fields of the input: the user's generation options.
    #[serde(skip)]
    pub user_options: Value,
}

/// Which timestamps an output has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timestamps {
    /// None.
    #[default]
    None,
    /// Of segments.
    Segment,
    /// Of words.
    Word,
}

/// The duration of audio in seconds, to the millisecond.
pub fn duration(samples: usize, rate: u32) -> f64 {
    (samples as f64 / f64::from(rate) * 1000.0).round() / 1000.0
}

/// A model that transcribes audio.
pub trait Transcriber: Send + Sync + std::fmt::Debug + 'static {
    /// Transcribes or translates. Blocks; calls [`Job::step`] between steps.
    fn transcribe(&self, request: &Request, job: &Job) -> Result<Answer, EngineError>;

    /// Paths in the repository of the graphs it runs.
    fn graphs(&self) -> Vec<String>;
}

/// The pipeline of a model that transcribes.
#[derive(Debug)]
pub struct SpeechRecognition<T>(pub T);

impl<T: Transcriber> Pipeline for SpeechRecognition<T> {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let mut request: Request = parse_input(input)?;
        request.user_options = input.clone();
        if let Some(fields) = request.user_options.as_object_mut() {
            fields.remove("audio");
        }
        let mut answer = self.0.transcribe(&request, job)?;
        if let Some(output) = answer.output.as_object_mut().filter(|_| !request.duration) {
            output.remove("duration");
        }
        Ok(answer)
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "audio": example_sound() }))
    }

    fn graphs(&self) -> Vec<String> {
        self.0.graphs()
    }
}
