//! What is written in a picture: one line, or a page that is first divided into lines.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`page`] | finding the lines of a page and reading each |
//! | [`regions`] | a map of likely letters to the boxes around them |
//! | [`letters`] | a strip's likelihoods to its text |

use island_runtimes_kit::{
    error::EngineError,
    job::{Answer, Job, parse_input},
    media::picture,
    pipeline::Pipeline,
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

/// Reads a picture of one line.
struct Line(Writer);

/// Loads what reads.
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

    fn graphs(&self) -> Vec<String> {
        self.0.names()
    }
}
