//! What is written in a picture: one line, or a page that is first divided into lines.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`page`] | finding the lines of a page and reading each |
//! | [`regions`] | a map of likely letters to the boxes around them |
//! | [`letters`] | a strip's likelihoods to its text |

use island_protocol::job::Failure;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caption::Writer;
use crate::{
    media::picture,
    run::{self, Answer, Job},
    task::{Loader, Pipeline},
};

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
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, Failure> {
    if loader.repository.graph("encoder_model").is_some() {
        return Ok(Box::new(Line(Writer::load(loader)?)));
    }
    Ok(Box::new(page::Page::load(loader)?))
}

impl Pipeline for Line {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, Failure> {
        let Input { image } = run::input(input)?;
        let options = self.0.options(input)?;
        let picture = picture::read(&image)?;
        job.step()?;
        let written = self.0.write(&picture, &options, job)?;
        Ok(written.answer(json!({ "text": written.text, "lines": [{ "text": written.text }] })))
    }

    fn graphs(&self) -> Vec<String> {
        self.0.names()
    }
}
