//! Models that read samples and generate text: Moonshine.

use island_protocol::job::{FinishReason, Usage};
use island_runtimes_graph::{Feeds, Graph};
use island_runtimes_kit::{
    error::{EngineError, invalid_input},
    generate::{
        options::Settings,
        search::{self, Task},
        stream::Stream,
    },
    job::{Answer, Job},
    keys::FEATURE_EXTRACTOR,
    media::sound,
    speech::{
        ctc::normalise,
        features,
        transcribe::{Request, Timestamps, Transcriber, duration},
    },
    text::tokens::Tokens,
    values::sampling_rate,
};
use ndarray::Array2;
use serde_json::{Value, json};

use crate::{
    seq2seq::{self, Encoded, Seq2Seq},
    task::Loader,
    text::seq2seq::start,
};

/// Maximum duration of audio in seconds.
const MAX_SECONDS: usize = 64;
/// Maximum tokens per second of speech; more is repetition.
const TOKENS_PER_S: f32 = 6.5;

/// A loaded model.
#[derive(Debug)]
pub struct Raw {
    encoder: Graph,
    decoder: Seq2Seq,
    tokens: Tokens,
    settings: Settings,
    rate: u32,
    /// Whether samples get a mean of 0 and a variance of 1.
    normalises: bool,
}

impl Raw {
    /// Loads a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let settings = features(&loader.repository)?;
        Ok(Self {
            encoder: loader.graph(&["encoder_model"], &["input_values", "attention_mask"])?,
            decoder: Seq2Seq::load(loader, &seq2seq::FED)?,
            tokens: Tokens::load(&loader.repository)?,
            settings: Settings::load(&loader.repository)?.by_default(1).checked()?,
            rate: sampling_rate(FEATURE_EXTRACTOR.file, &settings)?.unwrap_or(16_000),
            // A file without the setting has the default of its class.
            normalises: settings.get("do_normalize").and_then(Value::as_bool).unwrap_or(settings.is_object()),
        })
    }
}

impl Transcriber for Raw {
    fn graphs(&self) -> Vec<String> {
        std::iter::once(self.encoder.name().to_owned()).chain(self.decoder.names()).collect()
    }

    fn transcribe(&self, request: &Request, job: &Job) -> Result<Answer, EngineError> {
        if request.language.is_some() || request.task.as_deref().is_some_and(|task| task != "transcribe") {
            return Err(invalid_input("this model transcribes one language: leave out language and task"));
        }
        if request.timestamps != Timestamps::None {
            return Err(invalid_input("this model has no timestamps"));
        }
        let mut samples = sound::decode(&request.audio, self.rate)?;
        let seconds = samples.len() as f32 / self.rate as f32;
        if samples.len() > MAX_SECONDS * self.rate as usize {
            return Err(invalid_input(format!(
                "audio has {seconds:.0} seconds, this model takes {MAX_SECONDS}"
            )));
        }
        let duration = duration(samples.len(), self.rate);
        if self.normalises {
            normalise(&mut samples);
        }
        let input = Array2::from_shape_vec((1, samples.len()), samples).expect("one row");
        let mask = Array2::from_elem(input.dim(), 1_i64);
        let feeds =
            Feeds::new().floats("input_values", input.into_dyn()).ints("attention_mask", mask.into_dyn());
        let states = self.encoder.run(feeds)?.floats("last_hidden_state")?;
        let mut options = self.settings.with(&request.user_options)?;
        let begin = start(&options)?;
        let bound = ((seconds * TOKENS_PER_S) as usize).max(begin.len() + 1);
        if request.user_options.get("max_new_tokens").is_none()
            && request.user_options.get("max_length").is_none()
        {
            options.max_new_tokens = None;
            options.max_length = bound;
        }
        let task =
            Task { begin: &begin, source: &[], longest: options.longest(begin.len(), 4096), rule: None };
        let mut decoding = self.decoder.begin(Encoded { states, mask: None });
        let mut stream = Stream::after(&begin, &self.tokens, job);
        let written = search::write(&mut decoding, &options, task, job, &mut |token| stream.push(token))?;
        Ok(Answer {
            output: json!({ "text": stream.finish()?, "duration": duration }),
            usage: Usage::tokens(begin.len() as u64, written.tokens.len() as u64),
            finish_reason: Some(if written.has_ended { FinishReason::Stop } else { FinishReason::Length }),
            stop_text: None,
        })
    }
}
