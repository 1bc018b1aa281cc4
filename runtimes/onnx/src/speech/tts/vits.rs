//! VITS, which computes all samples of a text at once.

use island_runtimes_graph::{Feeds, Graph};
use island_runtimes_kit::{
    error::{EngineError, invalid_input},
    job::{Answer, Job},
    pipeline::{Pipeline, TEXT},
    values::sampling_rate,
};
use ndarray::Array2;
use serde_json::{Value, json};

use super::letters::Letters;
use crate::task::Loader;

/// A loaded model.
#[derive(Debug)]
pub struct Vits {
    graph: Graph,
    letters: Letters,
    rate: u32,
}

impl Vits {
    /// Loads a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let rate = sampling_rate("config.json", &loader.repository.config)?;
        Ok(Self {
            graph: loader.graph(&["model"], &["input_ids", "attention_mask"])?,
            letters: Letters::load(&loader.repository)?,
            rate: rate.unwrap_or(16_000),
        })
    }
}

impl Pipeline for Vits {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let input = super::parse(input)?;
        if input.speaker_embeddings.is_some() {
            return Err(invalid_input("this voice has one speaker: leave out speaker_embeddings"));
        }
        let ids = self.letters.read(&input.text);
        if ids.is_empty() {
            return Err(invalid_input("text has no letter of this voice"));
        }
        job.step()?;
        let (ids, read) = (Array2::from_shape_fn((1, ids.len()), |(_, place)| ids[place]), ids.len());
        let mask = Array2::from_elem(ids.dim(), 1_i64);
        let feeds = Feeds::new().ints("input_ids", ids.into_dyn()).ints("attention_mask", mask.into_dyn());
        let samples: Vec<f32> = self.graph.run(feeds)?.floats("waveform")?.into_iter().collect();
        Ok(Answer::of(super::spoken(&samples, self.rate), read as u64))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "text": TEXT }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.name().to_owned()]
    }
}
