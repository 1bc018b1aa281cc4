//! What a wasm or container Cargo says on its standard output: JSON Lines, bounded, turned into events and an outcome.
//!
//! | line | fields | becomes |
//! | --- | --- | --- |
//! | `status` | `message` | a status event |
//! | `token` | `content`, `count` (1) | a token event |
//! | `progress` | `step`, `total`, `phase` | a progress event |
//! | `image` | `data` (base64), `format`, `width`, `height`, `seed` | an image event |
//! | `result` | `output` | the job's output; without one it is the joined tokens |
//! | `done` | `usage` | what the job used; nothing counts after it |
//! | `error` | `message`, `code` (`invalid_input`) | the job's failure, whatever the exit code says |
//!
//! Anything else goes to the debug log: programs chatter, and losing a job for it would help nobody.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use island_protocol::{
    event::Image,
    job::{Failure, FailureCode, Outcome, Usage},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{job::EventSink, log::JobLog};

/// Bytes of an unreadable line that the debug log shows.
const SHOWN_BYTES: usize = 200;
/// Unreadable lines that the debug log shows.
const SHOWN_STRAYS: u32 = 20;
/// Longest message and status name that travels, characters.
const MAX_MESSAGE: usize = 1000;

/// How the program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal, which nobody here sent.
    Signal(i32),
    /// In a way the engine has a word for: a trap, no memory, its deadline, a cancellation.
    Failed(Failure),
}

/// One line that means something.
#[derive(Debug)]
enum Line {
    Status(Status),
    Token(Token),
    Progress(Progress),
    Image(Image),
    Result(Given),
    Done(Done),
    Error(Complaint),
}

/// What a line says that it is.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow)]
    name: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Status {
    message: String,
}

#[derive(Debug, Deserialize)]
struct Token {
    content: String,
    #[serde(default = "one")]
    count: u32,
}

#[derive(Debug, Deserialize)]
struct Progress {
    step: u64,
    total: u64,
    #[serde(default)]
    phase: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Given {
    output: Value,
}

#[derive(Debug, Deserialize)]
struct Done {
    #[serde(default)]
    usage: Claimed,
}

#[derive(Debug, Deserialize)]
struct Complaint {
    message: String,
    #[serde(default)]
    code: Option<String>,
}

impl Line {
    /// Reads what a line's kind holds, once its kind is known: results and images are large, and an enum that finds its kind among its
    /// fields would keep everything it meets before it does.
    fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        // Looked at as a whole, and then no longer string by string.
        let line = str::from_utf8(line).map_err(serde::de::Error::custom)?;
        let name = match kind_in_front(line) {
            Some(name) => Cow::Borrowed(name),
            None => serde_json::from_str::<Kind<'_>>(line)?.name,
        };
        match name.as_ref() {
            "status" => serde_json::from_str(line).map(Self::Status),
            "token" => serde_json::from_str(line).map(Self::Token),
            "progress" => serde_json::from_str(line).map(Self::Progress),
            "image" => serde_json::from_str(line).map(Self::Image),
            "result" => serde_json::from_str(line).map(Self::Result),
            "done" => serde_json::from_str(line).map(Self::Done),
            "error" => serde_json::from_str(line).map(Self::Error),
            _ => Err(serde::de::Error::custom("no such type of line")),
        }
    }
}

/// The kind of a line that says it first, as nearly all do: then nothing else has to be read to find it.
fn kind_in_front(line: &str) -> Option<&str> {
    let value = ["{", "\"type\"", ":", "\""]
        .into_iter()
        .try_fold(line, |rest, next| rest.trim_start().strip_prefix(next))?;
    let (name, _) = value.split_once('"')?;
    (!name.contains('\\')).then_some(name)
}

/// What a program says it used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Claimed {
    prompt_tokens: u64,
}

fn one() -> u32 {
    1
}

/// Reads a program's standard output as it comes.
#[derive(Debug)]
pub struct Lines {
    events: EventSink,
    log: JobLog,
    /// The line that is not complete yet.
    partial: Vec<u8>,
    bytes_left: u64,
    said: Said,
}

/// What the lines came to.
#[derive(Debug, Default)]
struct Said {
    results: Vec<Value>,
    failure: Option<Failure>,
    prompt_tokens: u64,
    tokens: u64,
    done: bool,
    strays: u32,
}

impl Lines {
    /// A reader that sends events to `events` and takes at most `max_output_bytes`, line ends included.
    pub fn new(events: EventSink, log: JobLog, max_output_bytes: u64) -> Self {
        Self { events, log, partial: Vec::new(), bytes_left: max_output_bytes, said: Said::default() }
    }

    /// Takes what the program wrote, cut anywhere. On an error the program is to be stopped; the error is its failure.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        let Some(left) = self.bytes_left.checked_sub(bytes.len() as u64) else {
            let message = "the job made more output than its Cargo allows";
            return Err(Failure::of_job(FailureCode::OutputLimit, message));
        };
        self.bytes_left = left;
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            if self.partial.is_empty() {
                self.line(line);
            } else {
                self.partial.extend_from_slice(line);
                let line = std::mem::take(&mut self.partial);
                self.line(&line);
            }
            bytes = &rest[1..];
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Joins what was said with how the program ended.
    pub fn finish(mut self, exit: Exit) -> Outcome {
        let last = std::mem::take(&mut self.partial);
        self.line(&last);
        let usage = Usage::tokens(self.said.prompt_tokens, self.said.tokens);
        match self.said.verdict(exit) {
            Ok(output) => Outcome::Completed { usage, output, finish_reason: None },
            Err(failure) => Outcome::Failed { failure, usage },
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        match Line::parse(line) {
            Ok(_) if self.said.done => self.stray(line, "it comes after the last line"),
            Ok(line) => self.act(line),
            Err(error) => self.stray(line, &error.to_string()),
        }
    }

    fn act(&mut self, line: Line) {
        match line {
            Line::Status(Status { message }) => self.events.status(&shortened(&message)),
            Line::Token(Token { content, count }) => {
                self.said.tokens += u64::from(count);
                self.events.token(content, count);
            }
            Line::Progress(Progress { step, total, phase }) => {
                self.events.progress(&shortened(phase.as_deref().unwrap_or("run")), step, total);
            }
            Line::Image(image) => self.events.image(image),
            Line::Result(Given { output }) => self.said.results.push(output),
            Line::Done(Done { usage }) => {
                self.said.prompt_tokens = usage.prompt_tokens;
                self.said.done = true;
            }
            Line::Error(Complaint { message, code }) => {
                let code = match code.as_deref() {
                    Some("invalid_input") => FailureCode::InvalidInput,
                    _ => FailureCode::CargoFailed,
                };
                self.said.failure = Some(Failure::of_job(code, shortened(&message)));
                self.said.done = true;
            }
        }
    }

    fn stray(&mut self, line: &[u8], why: &str) {
        self.said.strays += 1;
        if self.said.strays <= SHOWN_STRAYS {
            let start = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]);
            self.log.note(&format!("a line of output was passed over ({why}): {start}"));
        }
    }
}

impl Said {
    /// The output, or whose fault there is none. The engine's word goes before the program's, the program's before its exit code.
    fn verdict(mut self, exit: Exit) -> Result<Option<Value>, Failure> {
        let failed = |message: String| Err(Failure::of_job(FailureCode::CargoFailed, message));
        match (exit, self.failure) {
            (Exit::Failed(failure), _) | (_, Some(failure)) => Err(failure),
            (Exit::Signal(signal), None) => {
                failed(format!("the Cargo's program was ended by signal {signal}"))
            }
            (Exit::Code(0), None) if self.results.len() > 1 => {
                Err(Failure::of_job(FailureCode::InvalidOutput, "the Cargo gave more than one result"))
            }
            (Exit::Code(0), None) if self.results.is_empty() && self.tokens == 0 && !self.done => {
                let message = "the Cargo's program ended without a result, a token or a word that it is done";
                Err(Failure::of_job(FailureCode::InvalidOutput, message))
            }
            (Exit::Code(0), None) => Ok(self.results.pop()),
            (Exit::Code(code), None) => failed(format!("the Cargo's program ended with exit code {code}")),
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}
