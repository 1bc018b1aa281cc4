//! Image captions: an image encoder and a text decoder.

use image::RgbImage;
use island_protocol::job::{FinishReason, Usage};
use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::EngineError,
    generate::{
        options::{Options, Settings},
        search::{self, Task},
        stream::Stream,
    },
    job::{Answer, Job, parse_input},
    keys::CONFIG,
    media::picture,
    pipeline::{Pipeline, example_picture},
    text::tokens::Tokens,
    values::{positions, read},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::preprocess::Preprocessor;
use crate::{
    seq2seq::{self, Encoded, Seq2Seq},
    task::Loader,
    text::seq2seq::start,
};

/// Maximum number of tokens of a decoder, if the repository does not define it.
const USUAL_LONGEST: usize = 1024;

#[derive(Debug, Deserialize)]
struct Input {
    image: String,
}

/// An image-to-text model.
#[derive(Debug)]
pub struct Writer {
    tokens: Tokens,
    encoder: Graph,
    decoder: Seq2Seq,
    preprocessor: Preprocessor,
    settings: Settings,
    /// Maximum number of tokens of the decoder.
    longest: usize,
}

/// A generated text.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// Number of its tokens.
    pub count: u64,
    /// Whether it ended with an end token.
    pub has_ended: bool,
}

/// Loads a captioning model.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    Ok(Box::new(Writer::load(loader)?))
}

impl Writer {
    /// Loads a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let config = &loader.repository.config;
        let settings = Settings::load(&loader.repository)?.by_default(1).checked()?;
        let decoder = read(CONFIG.file, config, "decoder", |decoder| decoder.is_object().then_some(decoder))?;
        let longest = positions(decoder.unwrap_or(config))?;
        Ok(Self {
            tokens: Tokens::load(&loader.repository)?,
            encoder: loader.image_graph(&["encoder_model"])?,
            decoder: Seq2Seq::load(loader, &seq2seq::FED)?,
            preprocessor: Preprocessor::load(&loader.repository)?,
            settings,
            longest: longest.unwrap_or(USUAL_LONGEST).clamp(8, 1 << 16),
        })
    }

    /// The generation settings of a job.
    pub fn options(&self, input: &Value) -> Result<Options, EngineError> {
        self.settings.with(input)
    }

    /// Describes or reads an image. Tokens are streamed to the job.
    pub fn write(&self, picture: &RgbImage, options: &Options, job: &Job) -> Result<Generated, EngineError> {
        let prepared = self.preprocessor.prepare(picture)?;
        let states = self.encoder.run(prepared.feeds(&self.encoder))?.floats("last_hidden_state")?;
        let begin = start(options)?;
        let task = Task {
            begin: &begin,
            source: &[],
            longest: options.longest(begin.len(), self.longest),
            rule: None,
        };
        let mut decoding = self.decoder.begin(Encoded { states, mask: None });
        let mut stream = Stream::after(&begin, &self.tokens, job);
        let written = search::write(&mut decoding, options, task, job, &mut |token| stream.push(token))?;
        let text = stream.finish()?;
        Ok(Generated { text, count: written.tokens.len() as u64, has_ended: written.has_ended })
    }

    /// Its graphs, by their paths in the repository.
    pub fn names(&self) -> Vec<String> {
        std::iter::once(self.encoder.name().to_owned()).chain(self.decoder.names()).collect()
    }
}

impl Generated {
    /// The output for this text.
    pub fn answer(&self, output: Value) -> Answer {
        let reason = if self.has_ended { FinishReason::Stop } else { FinishReason::Length };
        Answer { output, usage: Usage::tokens(0, self.count), finish_reason: Some(reason), stop_text: None }
    }
}

impl Pipeline for Writer {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { image } = parse_input(input)?;
        let options = self.options(input)?;
        let picture = picture::read(&image, "the image")?;
        job.step()?;
        let written = self.write(&picture, &options, job)?;
        Ok(written.answer(json!({ "text": written.text })))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "image": example_picture() }))
    }

    fn graphs(&self) -> Vec<String> {
        self.names()
    }
}
