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
//! Other lines go to the debug log: a job must not fail because its program prints something else. A line of one of these types whose fields
//! cannot be read ends the job: without it, the output would be incomplete.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use island_protocol::{
    event::Image,
    job::{Failure, FailureCode, Outcome, Usage},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{job::EventSink, log::JobLog};

/// Bytes of an invalid line that the debug log shows.
const SHOWN_BYTES: usize = 200;
/// Number of invalid lines that the debug log shows.
const SHOWN_STRAYS: u32 = 20;
/// Maximum length of messages and status names, in characters.
const MAX_MESSAGE: usize = 1000;
/// Maximum depth of a result: the messages that carry it add some levels, and their parser allows 127.
const MAX_DEPTH: usize = 100;
/// The byte order mark in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

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

/// Why a line is not used.
#[derive(Debug)]
enum Unusable {
    /// A line without a known type, which the program wrote for others.
    Stray,
    /// A line of a known type, and the fault in the rest.
    Invalid(String),
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
    fn parse(line: &[u8]) -> Result<Self, Unusable> {
        let name = kind(line).ok_or(Unusable::Stray)?;
        let parsed = match name.as_ref() {
            b"status" => fields(line).map(Self::Status),
            b"token" => fields(line).map(Self::Token),
            b"progress" => fields(line).map(Self::Progress),
            b"image" => fields(line).map(Self::Image),
            b"result" => fields(line).and_then(within_depth).map(Self::Result),
            b"done" => fields(line).map(Self::Done),
            b"error" => fields(line).map(Self::Error),
            _ => return Err(Unusable::Stray),
        };
        let name = String::from_utf8_lossy(&name);
        parsed.map_err(|reason| Unusable::Invalid(shortened(&format!("{name}: {reason}"))))
    }
}

/// Returns the type of a line that begins as an object does. The rest may be invalid: a line must not count as one without a type because
/// of a number elsewhere in it.
fn kind(line: &[u8]) -> Option<Cow<'_, [u8]>> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    if line.first() != Some(&b'{') {
        return None;
    }
    let (mut at, mut depth) = (0, 0_usize);
    // Whether the last string of the outermost object is `type`, and whether a colon follows it.
    let (mut is_name, mut is_value) = (false, false);
    while let Some(&byte) = line.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            // Single quotes are those of Python.
            b'"' | b'\'' => {
                let start = at;
                at = string_end(line, start, byte);
                if depth == 1 {
                    let text = unescaped(&line[start..at]);
                    if is_value {
                        return Some(text);
                    }
                    is_name = *text == *b"type";
                }
                at += 1;
            }
            b':' if depth == 1 => is_value = is_name,
            _ if byte.is_ascii_whitespace() => {}
            _ => (is_name, is_value) = (false, false),
        }
    }
    None
}

/// Returns the position of the `quote` that ends the string from `start`, or the end of the line.
fn string_end(line: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start;
    while let Some(next) = line.get(at..).and_then(|rest| memchr::memchr2(quote, b'\\', rest)) {
        at += next;
        if line[at] == quote {
            return at;
        }
        at += 2;
    }
    line.len()
}

fn unescaped(string: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', string).is_none() {
        return Cow::Borrowed(string);
    }
    let quoted = [b"\"", string, b"\""].concat();
    serde_json::from_slice(&quoted)
        .map_or(Cow::Borrowed(string), |text: String| Cow::Owned(text.into_bytes()))
}

/// Parses the fields of a line, or returns why they are invalid.
fn fields<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    if line.starts_with(BYTE_ORDER_MARK) {
        return Err("a byte order mark is before the object".to_owned());
    }
    // Compared as a whole, not string by string.
    let line =
        str::from_utf8(line).map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to() + 1))?;
    serde_json::from_str(line).map_err(|error| reason(&error, line))
}

/// The reason of `error`, with its position in `line`.
fn reason(error: &serde_json::Error, line: &str) -> String {
    let rest = line.get(error.column().saturating_sub(1)..).unwrap_or_default();
    if let Some(name) = ["NaN", "Infinity"].into_iter().find(|name| rest.starts_with(name)) {
        return format!("{name} is not JSON");
    }
    let text = error.to_string();
    // A line has one line.
    let what = text.split_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("{what} at byte {}", error.column())
}

fn within_depth(given: Given) -> Result<Given, String> {
    if depth(&given.output) > MAX_DEPTH {
        return Err(format!("its output is nested more than {MAX_DEPTH} levels deep"));
    }
    Ok(given)
}

/// Returns the depth of a value; the parser has limited it.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The usage that a program reports.
#[derive(Debug, Default, Deserialize)]
#[serde(default, expecting = "an object")]
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
    /// Number of lines, empty ones included.
    lines: u64,
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
                self.line(line)?;
            } else {
                self.partial.extend_from_slice(line);
                let line = std::mem::take(&mut self.partial);
                self.line(&line)?;
            }
            bytes = &rest[1..];
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Combines the output with how the program ended.
    pub fn finish(mut self, exit: Exit) -> Outcome {
        let last = std::mem::take(&mut self.partial);
        // A program that fails may leave half a line; only if it has not failed is the line the reason.
        let exit = match (self.line(&last), exit) {
            (Err(failure), Exit::Code(0)) => Exit::Failed(failure),
            (_, exit) => exit,
        };
        let usage = Usage::tokens(self.parsed.prompt_tokens, self.parsed.tokens);
        match self.parsed.verdict(exit) {
            Ok(output) => Outcome::Completed { usage, output, finish_reason: None, stop_text: None },
            Err(failure) => Outcome::Failed { failure, usage },
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Failure> {
        self.parsed.lines += 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        match Line::parse(line) {
            Err(Unusable::Stray) => self.ignore(line, "it is not an object with a known `type`"),
            _ if self.parsed.done => self.ignore(line, "it follows the line `done` or `error`"),
            Ok(line) => self.act(line),
            Err(Unusable::Invalid(reason)) => {
                let message = format!("line {}, {reason}", self.parsed.lines);
                return Err(Failure::of_job(FailureCode::InvalidOutput, message));
            }
        }
        Ok(())
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
