//! VITS, which computes all samples of a text at once.

use std::collections::HashMap;

use island_runtimes_graph::{Feeds, Graph};
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job},
    pipeline::Pipeline,
    repository::Repository,
    text::settings,
};
use ndarray::Array2;
use serde_json::Value;

use crate::task::Loader;

/// A loaded model.
#[derive(Debug)]
pub struct Vits {
    graph: Graph,
    letters: Letters,
    rate: u32,
}

/// How these models are tokenized: by character, with blanks between.
#[derive(Debug)]
struct Letters {
    ids: HashMap<String, i64>,
    unknown: Option<i64>,
    lower_cases: bool,
    /// Whether characters outside the vocabulary are dropped.
    filters: bool,
    blank: Option<i64>,
}

impl Vits {
    /// Loads a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let rate = loader.repository.config.get("sampling_rate").and_then(Value::as_u64);
        Ok(Self {
            graph: loader.graph(&["model"])?,
            letters: Letters::load(&loader.repository)?,
            rate: rate.unwrap_or(16_000) as u32,
        })
    }
}

impl Letters {
    fn load(repository: &Repository) -> Result<Self, EngineError> {
        let settings = settings::of(repository)?;
        let list = match repository.json("vocab.json")? {
            Some(list) => Some(list),
            None => repository.json("tokenizer.json")?.and_then(|file| file.pointer("/model/vocab").cloned()),
        };
        let list =
            list.ok_or_else(|| invalid_model("the repository has neither vocab.json nor tokenizer.json"))?;
        let ids: HashMap<String, i64> = list
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(letter, id)| Some((letter.clone(), id.as_i64()?)))
            .collect();
        let flag =
            |name: &str, otherwise: bool| settings.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        if flag("phonemize", false) {
            return Err(invalid_model(
                "this voice reads phonemes, not letters: it needs a phonemizer, which this engine lacks",
            ));
        }
        if flag("is_uroman", false) {
            return Err(invalid_model(
                "this voice reads its language in Latin letters only, and this engine has no transliteration",
            ));
        }
        let named = |name: &str| {
            let token = settings.get(name).map(|token| token.get("content").unwrap_or(token))?;
            ids.get(token.as_str()?).copied()
        };
        let blank = named("pad_token").or(Some(0)).filter(|_| flag("add_blank", true));
        let (lower_cases, filters) =
            (flag("do_lower_case", true) && flag("normalize", true), flag("normalize", true));
        Ok(Self { unknown: named("unk_token"), lower_cases, filters, blank, ids })
    }

    fn read(&self, text: &str) -> Result<Vec<i64>, EngineError> {
        let text = if self.lower_cases { text.to_lowercase() } else { text.to_owned() };
        let known = |letter: char| self.ids.contains_key(&letter.to_string());
        // Dropped characters must not leave blanks at the ends.
        let text: String = text.chars().filter(|&letter| !self.filters || known(letter)).collect();
        let id = |letter: char| self.ids.get(&letter.to_string()).copied().or(self.unknown);
        let mut ids: Vec<i64> = text.trim().chars().filter_map(id).collect();
        if ids.is_empty() {
            return Err(invalid_input("text has no letter of this voice"));
        }
        if let Some(blank) = self.blank {
            ids = std::iter::once(blank).chain(ids.into_iter().flat_map(|id| [id, blank])).collect();
        }
        Ok(ids)
    }
}

impl Pipeline for Vits {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let input = super::parse(input)?;
        if input.speaker_embeddings.is_some() {
            return Err(invalid_input("this voice has one speaker: leave out speaker_embeddings"));
        }
        let ids = self.letters.read(&input.text)?;
        job.step()?;
        let (ids, read) = (Array2::from_shape_fn((1, ids.len()), |(_, place)| ids[place]), ids.len());
        let mask = Array2::from_elem(ids.dim(), 1_i64);
        let feeds = Feeds::new().ints("input_ids", ids.into_dyn()).ints("attention_mask", mask.into_dyn());
        let samples: Vec<f32> = self.graph.run(feeds)?.floats("waveform")?.into_iter().collect();
        Ok(Answer::of(super::spoken(&samples, self.rate), read as u64))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.name().to_owned()]
    }
}
