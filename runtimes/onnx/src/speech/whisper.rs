//! Whisper: sound of any length to text, window by window, with the times of what was said if they are asked for.

use island_protocol::job::{Failure, FinishReason, Usage};
use ndarray::{Array2, ArrayD, Axis};
use serde_json::{Map, Value, json};

use super::{
    mel::Ear,
    recognise::{Asked, Heard, Timestamps},
    times::{Segment, Times},
};
use crate::{
    generate::{
        Decoder,
        options::{Options, Settings},
        search::{self, Rule, Task},
        seq2seq::{Encoded, Seq2Seq},
        stream::Stream,
    },
    graph::{Feeds, Graph},
    media::sound,
    repository::Repository,
    run::{Answer, Job, invalid_input, invalid_model},
    task::Loader,
    text::{scores, tokens::Tokens},
};

/// Most tokens that decoding begins with: start, language, task, no times.
const LONGEST_PROMPT: usize = 4;

/// The encoder's states for the window of a sound that begins at a moment; what is missing at its end is silence.
pub type Windows<'n> = Box<dyn Fn(usize) -> Result<ArrayD<f32>, Failure> + 'n>;

/// The networks of a Whisper, whatever runs them.
pub trait Networks: Send + Sync + std::fmt::Debug {
    /// What it hears of a sound, and how much at once.
    fn ear(&self) -> &Ear;

    /// Most tokens that its decoder takes, where it says so.
    fn longest(&self) -> Option<usize>;

    /// Their paths in the repository.
    fn names(&self) -> Vec<String>;

    /// A sound of at least one window.
    fn hear(&self, samples: Vec<f32>) -> Windows<'_>;

    /// Begins to write about what was on_token.
    fn decoder(&self, states: ArrayD<f32>) -> Box<dyn Decoder + '_>;
}

/// Networks as ONNX graphs.
#[derive(Debug)]
struct Graphs {
    ear: Ear,
    encoder: Graph,
    decoder: Seq2Seq,
}

impl Networks for Graphs {
    fn ear(&self) -> &Ear {
        &self.ear
    }

    fn longest(&self) -> Option<usize> {
        None
    }

    fn names(&self) -> Vec<String> {
        std::iter::once(self.encoder.name().to_owned()).chain(self.decoder.names()).collect()
    }

    fn hear(&self, samples: Vec<f32>) -> Windows<'_> {
        let features = self.ear.hear(&samples);
        Box::new(move |begin| {
            let feeds =
                Feeds::new().floats("input_features", self.ear.window_of(&features, begin).into_dyn());
            self.encoder.run(feeds)?.floats("last_hidden_state")
        })
    }

    fn decoder(&self, states: ArrayD<f32>) -> Box<dyn Decoder + '_> {
        Box::new(self.decoder.begin(Encoded { states, mask: None }))
    }
}

/// A loaded Whisper.
#[derive(Debug)]
pub struct Whisper {
    networks: Box<dyn Networks>,
    tokens: Tokens,
    settings: Settings,
    start: u32,
    times: Times,
    /// Tokens of languages by their codes; empty where the model knows only English.
    languages: Map<String, Value>,
    tasks: Map<String, Value>,
    longest: usize,
}

impl Whisper {
    /// Loads a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, Failure> {
        let networks = Graphs {
            ear: Ear::load(&loader.repository)?,
            encoder: loader.graph(&["encoder_model"])?,
            decoder: Seq2Seq::load(loader)?,
        };
        Self::of(&loader.repository, Box::new(networks))
    }

    /// Of networks, and what a repository says of tokens.
    pub fn of(repository: &Repository, networks: Box<dyn Networks>) -> Result<Self, Failure> {
        let tokens = Tokens::load(repository)?;
        let file = repository.json("generation_config.json")?.unwrap_or_default();
        let config = &repository.config;
        let id = |name: &str| {
            file.get(name).or_else(|| config.get(name)).and_then(Value::as_u64).map(|id| id as u32)
        };
        let map = |name: &str| file.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
        let start = id("decoder_start_token_id").or_else(|| tokens.id("<|startoftranscript|>"));
        let none = id("no_timestamps_token_id").or_else(|| tokens.id("<|notimestamps|>"));
        let end = id("eos_token_id").or_else(|| tokens.id("<|endoftext|>"));
        let (Some(start), Some(none), Some(end)) = (start, none, end) else {
            return Err(invalid_model(
                "the repository does not name Whisper's tokens of start, end and no times",
            ));
        };
        let is_multilingual = file.get("is_multilingual").and_then(Value::as_bool).unwrap_or(true);
        let longest = config.get("max_target_positions").and_then(Value::as_u64).unwrap_or(448) as usize;
        let longest = networks.longest().map_or(longest, |most| most.min(longest));
        if longest <= LONGEST_PROMPT {
            return Err(invalid_model(format!(
                "the decoder takes {longest} tokens: no text can be begun in so few"
            )));
        }
        Ok(Self {
            settings: Settings::load(repository)?.by_default(1),
            start,
            times: Times { first: none + 1, none, end, latest_start: id("max_initial_timestamp_index") },
            languages: if is_multilingual { map("lang_to_id") } else { Map::new() },
            tasks: map("task_to_id"),
            longest,
            tokens,
            networks,
        })
    }

    /// The networks it runs.
    pub fn graphs(&self) -> Vec<String> {
        self.networks.names()
    }

    /// Transcribes or translates.
    pub fn hear(&self, asked: &Asked, job: &Job) -> Result<Answer, Failure> {
        if asked.timestamps == Timestamps::Word {
            return Err(invalid_input("this model gives times of segments, not of words"));
        }
        let ear = self.networks.ear();
        let mut samples = sound::decode(&asked.audio, ear.rate)?;
        let window = ear.window / ear.hop;
        let is_long = samples.len() > ear.window;
        let with_times = is_long || asked.timestamps != Timestamps::None;
        if !is_long {
            samples.resize(ear.window, 0.0);
        }
        let mut on_token = Heard { prompt_tokens: 0, written: 0, has_ended: true, ..Heard::default() };
        let mut prompt = None;
        let mut all = Vec::new();
        let (mut seek, moments) = (0, samples.len() / ear.hop);
        let windows = self.networks.hear(samples);
        let mut stream = Stream::new(&self.tokens, job);
        while seek < moments {
            if is_long {
                job.progress("transcribe", seek as u64, moments as u64);
            }
            let length = window.min(moments - seek);
            job.step()?;
            let states = windows(seek)?;
            let (begin, language) = match &prompt {
                Some(known) => known,
                None => prompt.insert(self.prompt(asked, with_times, &states)?),
            };
            on_token.language.clone_from(language);
            on_token.prompt_tokens += begin.len() as u64;
            let (written, has_ended) = self.write(states, begin, with_times, asked, job, &mut stream)?;
            on_token.written += written.len() as u64;
            on_token.has_ended &= has_ended;
            // Two moments of the features are one of the times.
            let (segments, done) = if with_times {
                self.times.segments(&written, (length / 2) as u32)
            } else {
                (vec![Segment { start: 0.0, end: 0.0, tokens: written }], 0)
            };
            if with_times {
                segments.iter().flat_map(|segment| &segment.tokens).for_each(|&token| stream.push(token));
            }
            let offset = (seek * ear.hop) as f32 / ear.rate as f32;
            all.extend(segments.into_iter().map(|segment| Segment {
                start: segment.start + offset,
                end: segment.end + offset,
                ..segment
            }));
            seek += match done as usize * 2 {
                // Nothing was said that ends in this window: on to the next.
                0 => length,
                done => done.min(length),
            };
            if !with_times {
                break;
            }
        }
        let text = stream.finish()?;
        self.answer(asked, on_token, &all, text)
    }

    /// The tokens of one window, and whether they ended by themselves.
    fn write(
        &self,
        states: ArrayD<f32>,
        begin: &[u32],
        with_times: bool,
        asked: &Asked,
        job: &Job,
        stream: &mut Stream<'_>,
    ) -> Result<(Vec<u32>, bool), Failure> {
        let options = Options { forced_bos_token_id: None, ..self.settings.with(&asked.wishes)? };
        let restrict =
            |tokens: &[u32], scores: &mut [f32]| self.times.restrict(&tokens[begin.len()..], scores);
        let rule: Option<&Rule<'_>> = if with_times { Some(&restrict) } else { None };
        let task = Task { begin, source: &[], longest: options.longest(begin.len(), self.longest), rule };
        let mut decoding = self.networks.decoder(states);
        let said = |token: u32| token < self.times.end;
        let written = search::write(decoding.as_mut(), &options, task, job, &mut |token| {
            // What is written behind the last time is on_token again in the next window: it is not certain yet.
            if said(token) && !with_times {
                stream.push(token);
            }
        })?;
        let mut tokens = written.tokens;
        if tokens.last() == Some(&self.times.end) {
            tokens.pop();
        }
        Ok((tokens, written.has_ended))
    }

    /// What decoding begins with, and the language.
    fn prompt(
        &self,
        asked: &Asked,
        with_times: bool,
        states: &ArrayD<f32>,
    ) -> Result<(Vec<u32>, Option<String>), Failure> {
        let mut prompt = vec![self.start];
        let mut spoken = None;
        if self.languages.is_empty() {
            let is_english = asked.language.as_deref().is_none_or(|code| code == "en");
            if !is_english || asked.task.as_deref() == Some("translate") {
                return Err(invalid_input("this model only transcribes English"));
            }
        } else {
            let token = match &asked.language {
                Some(code) => {
                    let token = self.languages.get(&format!("<|{code}|>")).and_then(Value::as_u64);
                    token.ok_or_else(|| invalid_input(format!("the model knows no language {code:?}")))?
                        as u32
                }
                None => self.detect(states)?,
            };
            prompt.push(token);
            let named = self.languages.iter().find(|(_, id)| id.as_u64() == Some(token.into()));
            spoken = named.map(|(name, _)| name.trim_matches(['<', '|', '>']).to_owned());
            let task = asked.task.as_deref().unwrap_or("transcribe");
            let task = self.tasks.get(task).and_then(Value::as_u64);
            prompt.push(task.ok_or_else(|| invalid_input("task must be transcribe or translate"))? as u32);
        }
        if !with_times {
            prompt.push(self.times.none);
        }
        Ok((prompt, spoken))
    }

    /// The likeliest language of a window.
    fn detect(&self, states: &ArrayD<f32>) -> Result<u32, Failure> {
        let mut decoding = self.networks.decoder(states.clone());
        let logits = decoding.step(Array2::from_elem((1, 1), i64::from(self.start)).view())?;
        let logits = logits.index_axis(Axis(0), 0);
        let ids: Vec<u32> = self.languages.values().filter_map(|id| Some(id.as_u64()? as u32)).collect();
        let best = scores::argmax(
            ids.iter().map(|&id| logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY)),
        );
        ids.get(best).copied().ok_or_else(|| invalid_model("lang_to_id names no language"))
    }

    fn answer(
        &self,
        asked: &Asked,
        on_token: Heard,
        all: &[Segment],
        text: String,
    ) -> Result<Answer, Failure> {
        let mut output = json!({ "text": text });
        if let Some(language) = on_token.language {
            output["language"] = language.into();
        }
        if asked.timestamps == Timestamps::Segment {
            let mut segments = Vec::with_capacity(all.len());
            for segment in all {
                let text = self.tokens.decode(&segment.tokens, true)?;
                let hundredths = |seconds: f32| (f64::from(seconds) * 100.0).round() / 100.0;
                segments.push(json!({
                    "start": hundredths(segment.start), "end": hundredths(segment.end), "text": text.trim(),
                }));
            }
            output["segments"] = segments.into();
        }
        let finish = if on_token.has_ended { FinishReason::Stop } else { FinishReason::Length };
        Ok(Answer {
            output,
            usage: Usage::tokens(on_token.prompt_tokens, on_token.written),
            finish_reason: Some(finish),
        })
    }
}
