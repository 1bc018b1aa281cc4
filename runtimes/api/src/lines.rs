//! Parses the standard output of a wasm or container Cargo: JSON Lines, within limits, converted to events and an outcome.
//!
//! | line | fields | becomes |
//! | --- | --- | --- |
//! | `status` | `message` | a status event |
//! | `token` | `content`, `count` (1) | a token event |
//! | `progress` | `step`, `total`, `phase` | a progress event |
//! | `image` | `data` (base64), `format`, `width`, `height`, `seed` | an image event |
//! | `result` | `output` | the job's output; without one it is the joined tokens |
//! | `done` | `usage` | the usage; later lines are ignored |
//! | `error` | `message`, `code` (`invalid_input`) | the job's failure, whatever the exit code |
//!
//! Other lines go to the debug log: a job must not fail because its program prints something else.

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

/// Bytes of an invalid line that the debug log shows.
const SHOWN_BYTES: usize = 200;
/// Number of invalid lines that the debug log shows.
const SHOWN_STRAYS: u32 = 20;
/// Maximum length of messages and status names, in characters.
const MAX_MESSAGE: usize = 1000;

/// How the program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal, which the engine did not send.
    Signal(i32),
    /// The engine knows the reason: a trap, out of memory, the deadline, a cancellation.
    Failed(Failure),
}

/// One valid line.
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

/// The type of a line.
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
    /// Parses the fields of a line after its type: results and images are large, and an enum that finds its tag among its fields buffers
    /// all of them first.
    fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        // Compared as a whole, not string by string.
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
            _ => Err(serde::de::Error::custom("unknown type of line")),
        }
    }
}

/// The type of a line that begins with it, as nearly all do; then nothing else has to be parsed to find it.
fn kind_in_front(line: &str) -> Option<&str> {
    let value = ["{", "\"type\"", ":", "\""]
        .into_iter()
        .try_fold(line, |rest, next| rest.trim_start().strip_prefix(next))?;
    let (name, _) = value.split_once('"')?;
    (!name.contains('\\')).then_some(name)
}

/// The usage that a program reports.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Claimed {
    prompt_tokens: u64,
}

fn one() -> u32 {
    1
}

/// Reads a program's standard output as it arrives.
#[derive(Debug)]
pub struct Lines {
    events: EventSink,
    log: JobLog,
    /// The incomplete last line.
    partial: Vec<u8>,
    bytes_left: u64,
    parsed: Parsed,
}

/// The result of the lines.
#[derive(Debug, Default)]
struct Parsed {
    results: Vec<Value>,
    failure: Option<Failure>,
    prompt_tokens: u64,
    tokens: u64,
    done: bool,
    strays: u32,
}

impl Lines {
    /// Creates a reader that sends events to `events` and accepts at most `max_output_bytes`, including line ends.
    pub fn new(events: EventSink, log: JobLog, max_output_bytes: u64) -> Self {
        Self { events, log, partial: Vec::new(), bytes_left: max_output_bytes, parsed: Parsed::default() }
    }

    /// Processes output, split anywhere. On an error the program must be stopped; the error is its failure.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        let Some(left) = self.bytes_left.checked_sub(bytes.len() as u64) else {
            let message = "the job produced more output than its Cargo allows";
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

    /// Combines the output with how the program ended.
    pub fn finish(mut self, exit: Exit) -> Outcome {
        let last = std::mem::take(&mut self.partial);
        self.line(&last);
        let usage = Usage::tokens(self.parsed.prompt_tokens, self.parsed.tokens);
        match self.parsed.verdict(exit) {
            Ok(output) => Outcome::Completed { usage, output, finish_reason: None, stop_text: None },
            Err(failure) => Outcome::Failed { failure, usage },
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        match Line::parse(line) {
            Ok(_) if self.parsed.done => self.ignore(line, "it follows the line `done`"),
            Ok(line) => self.act(line),
            Err(error) => self.ignore(line, &error.to_string()),
        }
    }

    fn act(&mut self, line: Line) {
        match line {
            Line::Status(Status { message }) => self.events.status(&shortened(&message)),
            Line::Token(Token { content, count }) => {
                self.parsed.tokens += u64::from(count);
                self.events.token(content, count);
            }
            Line::Progress(Progress { step, total, phase }) => {
                self.events.progress(&shortened(phase.as_deref().unwrap_or("run")), step, total);
            }
            Line::Image(image) => self.events.image(image),
            Line::Result(Given { output }) => self.parsed.results.push(output),
            Line::Done(Done { usage }) => {
                self.parsed.prompt_tokens = usage.prompt_tokens;
                self.parsed.done = true;
            }
            Line::Error(Complaint { message, code }) => {
                let code = match code.as_deref() {
                    Some("invalid_input") => FailureCode::InvalidInput,
                    _ => FailureCode::CargoFailed,
                };
                self.parsed.failure = Some(Failure::of_job(code, shortened(&message)));
                self.parsed.done = true;
            }
        }
    }

    fn ignore(&mut self, line: &[u8], why: &str) {
        self.parsed.strays += 1;
        if self.parsed.strays <= SHOWN_STRAYS {
            let start = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]);
            self.log.note(&format!("a line of output was ignored ({why}): {start}"));
        }
    }
}

impl Parsed {
    /// The output, or the failure. The engine's reason overrides the program's, the program's overrides its exit code.
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
                let message = "the Cargo's program ended without a `result`, `token` or `done` line";
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
