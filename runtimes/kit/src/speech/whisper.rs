//! Whisper: audio of any length to text, window by window, with the times of segments or of words if the job requests them.

use defaults::Defaults;
use island_protocol::{
    job::{FinishReason, Usage},
    transcript::Span,
};
use ndarray::{Array2, Array3, ArrayD, Axis};
use serde_json::{Map, Value, json};
use timed::{TimedTokens, attention, hundredths};

use super::{
    alignment::{Alignment, Head},
    mel::LogMel,
    times::{Segment, Times},
    transcribe::{Request, Timestamps, Transcriber, duration},
    words,
};
use crate::{
    error::{EngineError, invalid_input, invalid_model},
    generate::{
        Decoder,
        options::{Options, Settings},
        search::{self, Rule, Task},
        stream::Stream,
    },
    job::{Answer, Job},
    keys::{CONFIG, GENERATION},
    media::sound,
    repository::Repository,
    text::{scores, tokens::Tokens},
    values::{count, read, token_id},
};

mod defaults;
mod timed;

/// Maximum number of tokens of the prompt: start, language, task, no timestamps.
const LONGEST_PROMPT: usize = 4;
/// Maximum number of tokens of a decoder whose settings name none.
const USUAL_LONGEST: usize = 448;

/// Returns the encoder's states for the window that begins at a frame, padded with silence.
pub type Windows<'n> = Box<dyn Fn(usize) -> Result<ArrayD<f32>, EngineError> + 'n>;

/// The networks of a Whisper model.
pub trait Networks: Send + Sync + std::fmt::Debug {
    /// The features that the encoder reads, and the size of its window.
    fn features(&self) -> &LogMel;

    /// Maximum number of tokens of the decoder, if it is fixed.
    fn longest(&self) -> Option<usize>;

    /// Their paths in the repository.
    fn names(&self) -> Vec<String>;

    /// The windows of audio that is at least one window long.
    fn windows(&self, samples: Vec<f32>) -> Windows<'_>;

    /// Starts decoding from the encoder's states, and keeps what these heads attend to.
    fn decoder(&self, states: ArrayD<f32>, heads: &[Head]) -> Box<dyn Decoder + '_>;

    /// Why the decoder does not give what these heads attend to; `None` if it does.
    fn without_attention(&self, heads: &[Head]) -> Option<String>;
}

/// The result so far.
#[derive(Debug, Default)]
struct Transcribed {
    /// Tokens of all prompts.
    prompt_tokens: u64,
    /// Generated tokens.
    written: u64,
    /// Whether every window's text ended with the end token.
    has_ended: bool,
    /// The language, if the model is multilingual.
    language: Option<String>,
    /// Words with their times, if the job requests them.
    words: Vec<Span>,
}

/// The text of one window.
#[derive(Debug)]
struct Written {
    /// Its tokens, without the one that ended it.
    tokens: Vec<u32>,
    /// Whether a token ended it.
    has_ended: bool,
    /// What the heads of the alignment attended to at each token but the last, `[heads, tokens, moments]`, if the job requests words.
    attention: Option<Array3<f32>>,
}

/// A loaded Whisper.
#[derive(Debug)]
pub struct Whisper {
    networks: Box<dyn Networks>,
    tokens: Tokens,
    settings: Settings,
    start: u32,
    times: Times,
    /// How the times of words are found, or why they cannot be.
    alignment: Result<Alignment, String>,
    /// Tokens of languages by code; empty if the model supports only English.
    languages: Map<String, Value>,
    tasks: Map<String, Value>,
    /// What the repository sets for jobs that choose nothing.
    defaults: Defaults,
    longest: usize,
}

impl Whisper {
    /// Uses `networks`, and the tokens of a repository.
    pub fn of(repository: &Repository, networks: Box<dyn Networks>) -> Result<Self, EngineError> {
        let tokens = Tokens::load(repository)?;
        let settings = Settings::load(repository)?.by_default(1).checked()?;
        let file = repository.json(GENERATION.file)?.unwrap_or_default();
        let config = &repository.config;
        let id = |name: &str| id(&file, config, name);
        let start = id("decoder_start_token_id")?.or_else(|| tokens.id("<|startoftranscript|>"));
        let none = id("no_timestamps_token_id")?.or_else(|| tokens.id("<|notimestamps|>"));
        let end = id("eos_token_id")?.or_else(|| tokens.id("<|endoftext|>"));
        let (Some(start), Some(none), Some(end)) = (start, none, end) else {
            return Err(invalid_model(
                "the repository does not name Whisper's tokens of start, end and no times",
            ));
        };
        let is_multilingual =
            read(GENERATION.file, &file, "is_multilingual", Value::as_bool)?.unwrap_or(true);
        let longest = read(CONFIG.file, config, "max_target_positions", count)?.unwrap_or(USUAL_LONGEST);
        let longest = networks.longest().map_or(longest, |most| most.min(longest));
        if longest <= LONGEST_PROMPT {
            return Err(invalid_model(format!("the decoder takes {longest} tokens: too few for a text")));
        }
        let (languages, tasks) = (ids(&file, "lang_to_id")?, ids(&file, "task_to_id")?);
        let languages = if is_multilingual { languages } else { Map::new() };
        let alignment = Alignment::of(&file, config).map_err(|error| error.message());
        let alignment = alignment.and_then(|alignment| match networks.without_attention(&alignment.heads) {
            Some(why) => Err(why),
            None => Ok(alignment),
        });
        Ok(Self {
            settings,
            start,
            times: Times {
                first: none.saturating_add(1),
                none,
                end,
                latest_start: id("max_initial_timestamp_index")?,
            },
            defaults: Defaults::of(&file, config, &languages, &tasks, none)?,
            alignment,
            languages,
            tasks,
            longest,
            tokens,
            networks,
        })
    }

    /// How the times of words are found, or why they cannot be.
    pub fn alignment(&self) -> Result<&Alignment, &str> {
        self.alignment.as_ref().map_err(String::as_str)
    }
}

/// A number of `generation_config.json`, or else of `config.json`. A list of tokens names none.
fn id(file: &Value, config: &Value, name: &str) -> Result<Option<u32>, EngineError> {
    let one = |value: &Value| if value.is_array() { Some(None) } else { token_id(value).map(Some) };
    let id = match file.get(name) {
        Some(_) => read(GENERATION.file, file, name, one)?,
        None => read(CONFIG.file, config, name, one)?,
    };
    Ok(id.flatten())
}

/// Tokens of `generation_config.json` by name.
fn ids(file: &Value, name: &str) -> Result<Map<String, Value>, EngineError> {
    let ids = |value: &Value| {
        let ids = value.as_object()?;
        ids.values().all(|id| token_id(id).is_some()).then(|| ids.clone())
    };
    Ok(read(GENERATION.file, file, name, ids)?.unwrap_or_default())
}

impl Transcriber for Whisper {
    fn graphs(&self) -> Vec<String> {
        self.networks.names()
    }

    fn transcribe(&self, request: &Request, job: &Job) -> Result<Answer, EngineError> {
        let alignment = self.alignment_for(request)?;
        let features = self.networks.features();
        let mut samples = sound::decode(&request.audio, features.rate)?;
        let window = features.window / features.hop;
        let is_long = samples.len() > features.window;
        let duration = duration(samples.len(), features.rate);
        let with_times = is_long || request.timestamps != Timestamps::None;
        // A last frame that is not whole counts as in the reference.
        let sounding =
            if is_long { samples.len() / features.hop } else { samples.len().div_ceil(features.hop) };
        if !is_long {
            samples.resize(features.window, 0.0);
        }
        let mut total = Transcribed { has_ended: true, ..Transcribed::default() };
        let mut prompt = None;
        let mut all = Vec::new();
        let (mut seek, frames) = (0, samples.len() / features.hop);
        let windows = self.networks.windows(samples);
        let mut stream = Stream::new(&self.tokens, job);
        while seek < frames {
            if is_long {
                job.progress("transcribe", seek as u64, frames as u64);
            }
            let length = window.min(frames - seek);
            job.step()?;
            let states = windows(seek)?;
            let (begin, language) = match &prompt {
                Some(known) => known,
                None => prompt.insert(self.prompt(request, with_times, &states)?),
            };
            total.language.clone_from(language);
            total.prompt_tokens += begin.len() as u64;
            let written = self.write(states, begin, with_times, request, job, &mut stream)?;
            total.written += written.tokens.len() as u64;
            total.has_ended &= written.has_ended;
            // One step of a timestamp is two frames.
            let (segments, done) = if with_times {
                self.times.segments(&written.tokens, (length / 2) as u32)
            } else {
                (vec![Segment::whole(written.tokens.clone())], 0)
            };
            if with_times {
                segments.iter().flat_map(|segment| &segment.tokens).for_each(|&token| stream.push(token));
            }
            let offset = (seek * features.hop) as f32 / features.rate as f32;
            if let (Some(alignment), Some(attention)) = (alignment, &written.attention) {
                let moments = alignment.moments(attention, sounding.saturating_sub(seek) / 2);
                let timed = TimedTokens { tokens: &written.tokens, moments, offset };
                let is_spaced = words::are_spaced(language.as_deref()) || self.translates(begin);
                for segment in &segments {
                    total.words.extend(timed.words(segment, self.times.end, is_spaced, &self.tokens)?);
                }
            }
            all.extend(segments.into_iter().map(|segment| Segment {
                start: segment.start + offset,
                end: segment.end + offset,
                ..segment
            }));
            seek += match done as usize * 2 {
                // No segment ends in this window: continue with the next.
                0 => length,
                done => done.min(length),
            };
            if !with_times {
                break;
            }
        }
        let text = stream.finish()?;
        let mut answer = self.answer(request, total, &all, text)?;
        answer.output["duration"] = duration.into();
        Ok(answer)
    }
}

impl Whisper {
    /// How the times of words are found, if the job requests them.
    fn alignment_for(&self, request: &Request) -> Result<Option<&Alignment>, EngineError> {
        if request.timestamps != Timestamps::Word {
            return Ok(None);
        }
        self.alignment()
            .map(Some)
            .map_err(|why| invalid_input(format!("this model gives times of segments, not of words: {why}")))
    }

    /// The text of one window.
    fn write(
        &self,
        states: ArrayD<f32>,
        begin: &[u32],
        with_times: bool,
        request: &Request,
        job: &Job,
        stream: &mut Stream<'_>,
    ) -> Result<Written, EngineError> {
        let heads: &[Head] = match self.alignment_for(request)? {
            Some(alignment) => &alignment.heads,
            None => &[],
        };
        let options = Options { forced_bos_token_id: None, ..self.settings.with(&request.user_options)? };
        let restrict =
            |tokens: &[u32], scores: &mut [f32]| self.times.restrict(&tokens[begin.len()..], scores);
        let rule: Option<&Rule<'_>> = if with_times { Some(&restrict) } else { None };
        let task = Task { begin, source: &[], longest: options.longest(begin.len(), self.longest), rule };
        let mut decoding = self.networks.decoder(states, heads);
        let said = |token: u32| token < self.times.end;
        let written = search::write(decoding.as_mut(), &options, task, job, &mut |token| {
            // Text after the last timestamp is generated again in the next window: it is not final.
            if said(token) && !with_times {
                stream.push(token);
            }
        })?;
        let attention = match heads {
            [] => None,
            heads => Some(attention(decoding.as_ref(), heads.len(), begin, &written.tokens)?),
        };
        let mut tokens = written.tokens;
        if tokens.last() == Some(&self.times.end) {
            tokens.pop();
        }
        Ok(Written { tokens, has_ended: written.has_ended, attention })
    }

    /// Whether a prompt requests a translation, which is in English.
    fn translates(&self, prompt: &[u32]) -> bool {
        let token = self.tasks.get("translate").and_then(Value::as_u64);
        token.is_some_and(|token| prompt.iter().any(|&id| u64::from(id) == token))
    }

    /// The prompt, and the language.
    fn prompt(
        &self,
        request: &Request,
        with_times: bool,
        states: &ArrayD<f32>,
    ) -> Result<(Vec<u32>, Option<String>), EngineError> {
        let mut prompt = vec![self.start];
        let mut spoken = None;
        if self.languages.is_empty() {
            let is_english = request.language.as_deref().is_none_or(|code| code == "en");
            if !is_english || request.task.as_deref() == Some("translate") {
                return Err(invalid_input("this model only transcribes English"));
            }
        } else {
            let token = match &request.language {
                Some(code) => {
                    let token = self.languages.get(&format!("<|{code}|>")).and_then(Value::as_u64);
                    token.ok_or_else(|| invalid_input(format!("the model knows no language {code:?}")))?
                        as u32
                }
                None => match self.defaults.language {
                    Some(token) => token,
                    None => self.detect(states)?,
                },
            };
            prompt.push(token);
            let named = self.languages.iter().find(|(_, id)| id.as_u64() == Some(token.into()));
            spoken = named.map(|(name, _)| name.trim_matches(['<', '|', '>']).to_owned());
            let known = |task: &str| self.tasks.get(task).and_then(Value::as_u64).map(|id| id as u32);
            let task = match (&request.task, self.defaults.task) {
                (None, Some(task)) => Some(task),
                (task, _) => known(task.as_deref().unwrap_or("transcribe")),
            };
            prompt.push(task.ok_or_else(|| invalid_input("task must be transcribe or translate"))?);
        }
        if !with_times {
            prompt.push(self.times.none);
        }
        Ok((prompt, spoken))
    }

    /// The most likely language of a window.
    fn detect(&self, states: &ArrayD<f32>) -> Result<u32, EngineError> {
        let mut decoding = self.networks.decoder(states.clone(), &[]);
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
        request: &Request,
        total: Transcribed,
        all: &[Segment],
        text: String,
    ) -> Result<Answer, EngineError> {
        let mut output = json!({ "text": text });
        if let Some(language) = total.language {
            output["language"] = language.into();
        }
        if request.timestamps == Timestamps::Segment {
            let mut segments = Vec::with_capacity(all.len());
            for segment in all {
                let text = self.tokens.decode(&segment.tokens, true)?;
                segments.push(json!({
                    "start": hundredths(segment.start), "end": hundredths(segment.end), "text": text.trim(),
                }));
            }
            output["segments"] = segments.into();
        }
        if request.timestamps == Timestamps::Word {
            output["segments"] = json!(total.words);
        }
        let finish = if total.has_ended { FinishReason::Stop } else { FinishReason::Length };
        Ok(Answer {
            output,
            usage: Usage::tokens(total.prompt_tokens, total.written),
            finish_reason: Some(finish),
            stop_text: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_another_kind_are_refused() {
        let message = |error: EngineError| error.message();
        let token = |file: Value, config: Value| id(&file, &config, "eos_token_id").map_err(message);
        assert_eq!(token(json!({"eos_token_id": 7}), json!({"eos_token_id": 8})), Ok(Some(7)));
        assert_eq!(token(json!({}), json!({"eos_token_id": 8})), Ok(Some(8)));
        assert_eq!(token(json!({"eos_token_id": [7]}), json!({})), Ok(None), "the tokenizer names it");
        for value in [json!("7"), json!(-7), json!(7.5), json!(4_294_967_296_u64)] {
            let refused = token(json!({"eos_token_id": value}), json!({})).expect_err("no token");
            assert_eq!(refused, format!("generation_config.json: eos_token_id = {value} is not supported"));
            let refused = token(json!({}), json!({"eos_token_id": value})).expect_err("no token");
            assert_eq!(refused, format!("config.json: eos_token_id = {value} is not supported"));
        }
        let languages = |value: &Value| ids(&json!({"lang_to_id": value}), "lang_to_id").map_err(message);
        assert_eq!(languages(&json!({"<|de|>": 3})).map(|ids| ids.len()), Ok(1));
        assert_eq!(languages(&Value::Null).map(|ids| ids.len()), Ok(0));
        for value in [json!(["<|de|>"]), json!({"<|de|>": "3"}), json!({"<|de|>": -3})] {
            let refused = languages(&value).expect_err("no tokens");
            assert_eq!(refused, format!("generation_config.json: lang_to_id = {value} is not supported"));
        }
    }
}
