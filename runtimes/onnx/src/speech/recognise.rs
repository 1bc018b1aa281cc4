//! Speech to text, by whichever kind of model a repository holds.

use island_protocol::job::Failure;
use serde::Deserialize;
use serde_json::Value;

use super::{ctc::Ctc, raw::Raw, whisper::Whisper};
use crate::{
    run::{self, Answer, Job, invalid_model},
    task::{Loader, Pipeline},
};

/// An input, with what it says of the generation.
#[derive(Debug, Deserialize)]
pub struct Asked {
    /// Base64 of a file.
    pub audio: String,
    /// Code of the language; absent, it is detected.
    pub language: Option<String>,
    /// `transcribe` or `translate`.
    pub task: Option<String>,
    /// Which times are wanted.
    #[serde(default)]
    pub timestamps: Timestamps,
    /// The whole input, for the settings of the generation.
    #[serde(skip)]
    pub wishes: Value,
}

/// Which times are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timestamps {
    /// None.
    #[default]
    None,
    /// Of what is said in one go.
    Segment,
    /// Of each word.
    Word,
}

/// What was on_token so far.
#[derive(Debug, Default)]
pub struct Heard {
    /// Tokens that decoding began with.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub written: u64,
    /// Whether every window's text ended by itself.
    pub has_ended: bool,
    /// The language spoken, where the model tells.
    pub language: Option<String>,
}

/// Any of the kinds of models.
#[derive(Debug)]
pub enum Recogniser {
    /// Listens to windows and writes.
    Whisper(Box<Whisper>),
    /// Labels every moment.
    Ctc(Ctc),
    /// Listens to samples and writes.
    Raw(Box<Raw>),
}

/// Loads a recogniser of speech.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, Failure> {
    let kind = loader.repository.config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    Ok(Box::new(match kind {
        "whisper" => Recogniser::Whisper(Whisper::load(loader)?.into()),
        "wav2vec2" | "wav2vec2-conformer" | "wav2vec2-bert" | "hubert" | "wavlm" | "unispeech"
        | "unispeech-sat" | "data2vec-audio" | "sew" | "sew-d" | "mctct" => {
            Recogniser::Ctc(Ctc::load(loader)?)
        }
        "moonshine" => Recogniser::Raw(Raw::load(loader)?.into()),
        other => {
            return Err(invalid_model(format!(
                "models of the kind {other:?} are not known to recognise speech"
            )));
        }
    }))
}

impl Pipeline for Recogniser {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, Failure> {
        let mut asked: Asked = run::input(input)?;
        asked.wishes = input.clone();
        if let Some(fields) = asked.wishes.as_object_mut() {
            fields.remove("audio");
        }
        match self {
            Self::Whisper(whisper) => whisper.hear(&asked, job),
            Self::Ctc(ctc) => ctc.hear(&asked, job),
            Self::Raw(raw) => raw.hear(&asked, job),
        }
    }

    fn graphs(&self) -> Vec<String> {
        match self {
            Self::Whisper(whisper) => whisper.graphs(),
            Self::Ctc(ctc) => ctc.graphs(),
            Self::Raw(raw) => raw.graphs(),
        }
    }
}
