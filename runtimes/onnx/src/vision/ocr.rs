//! Text in an image: one line, or a page that is first split into lines.
//!
//! | module | content |
//! | --- | --- |
//! | [`page`] | finding the lines of a page and reading each |
//! | [`regions`] | text regions of a probability map |
//! | [`letters`] | character probabilities to text |

use island_runtimes_kit::{
    error::EngineError,
    job::{Answer, Job, parse_input},
    media::picture,
    pipeline::{Pipeline, example_picture},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caption::Writer;
use crate::task::Loader;

pub mod letters;
pub mod page;
pub mod regions;

#[derive(Debug, Deserialize)]
struct Input {
    image: String,
}

/// Reads an image of one line.
struct Line(Writer);

/// Loads a text recognition model.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    if loader.file("encoder_model").is_some() {
        return Ok(Box::new(Line(Writer::load(loader)?)));
    }
    Ok(Box::new(page::Page::load(loader)?))
}

impl Pipeline for Line {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { image } = parse_input(input)?;
        let options = self.0.options(input)?;
        let picture = picture::read(&image, "the image")?;
        job.step()?;
        let written = self.0.write(&picture, &options, job)?;
        Ok(written.answer(json!({ "text": written.text, "lines": [{ "text": written.text }] })))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "image": example_picture() }))
    }

    fn graphs(&self) -> Vec<String> {
        self.0.names()
    }
}
