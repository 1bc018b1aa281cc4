//! Separates a model's reasoning from its answer, and ends reasoning that exceeds its budget.
//!
//! Models write it in two forms: before the answer and between two tags, or in the channels of messages (gpt-oss). Which form a model uses, its
//! chat template shows.

/// How a model writes its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Between these tags, before the answer.
    Tags(&'static str, &'static str),
    /// In messages of the channel `analysis`; answers are in `final`, calls in `commentary`.
    Channels,
}

/// The tags of model families, by the tag that ends the reasoning: some templates do not contain the other one.
const TAGS: [(&str, &str); 8] = [
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("\u{25c1}think\u{25b7}", "\u{25c1}/think\u{25b7}"),
    ("<|channel>thought", "<channel|>"),
];

const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// Each ends the text of a message.
const ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>", CHANNEL];
const CHANNEL_TAGS: [&str; 6] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>", CHANNEL, MESSAGE];
/// Calls are passed on in a form that [`crate::tools::calls`] finds.
const CALL: &str = "<tool_call>{\"name\": ";
const CALL_END: &str = "</tool_call>";
/// Begins the recipient of a message, if it is a function.
const TO_FUNCTION: &str = "to=functions.";

impl Format {
    /// The form that a chat template uses; `None` if the template has none.
    pub fn of(template: &str) -> Option<Self> {
        if template.contains(CHANNEL) && template.contains("analysis") {
            return Some(Self::Channels);
        }
        TAGS.iter().find(|(_, close)| template.contains(close)).map(|&(open, close)| Self::Tags(open, close))
    }

    /// Texts that mark where reasoning begins and ends; they are control tokens of some models.
    pub fn delimiters(self) -> Vec<&'static str> {
        match self {
            // Of Gemma's tag only the first part is a token.
            Self::Tags(open, close) => vec![open.trim_end_matches("thought"), close],
            Self::Channels => CHANNEL_TAGS.to_vec(),
        }
    }

    /// Whether the text of a prompt ends where the reply's reasoning begins.
    pub fn is_opened_by(self, prompt: &str) -> bool {
        match self {
            Self::Tags(open, _) => prompt.trim_end().ends_with(open),
            Self::Channels => false,
        }
    }

    /// What ends reasoning before its own end, so that the answer follows.
    pub fn closing(self) -> String {
        match self {
            Self::Tags(_, close) => format!("\n{close}\n\n"),
            Self::Channels => format!("<|end|><|start|>assistant{CHANNEL}final{MESSAGE}"),
        }
    }

    /// The text, in pieces of delimiters (`true`) and of what the model wrote (`false`), of a reply of which this reasoning and answer were delivered.
    pub fn resumed(self, is_opened: bool, reasoning: &str, answer: &str) -> Vec<(String, bool)> {
        let opening = match self {
            Self::Tags(..) if is_opened => String::new(),
            Self::Tags(open, _) => format!("{open}\n"),
            Self::Channels => format!("{CHANNEL}analysis{MESSAGE}"),
        };
        let closing = match self {
            Self::Channels if reasoning.is_empty() => format!("{CHANNEL}final{MESSAGE}"),
            _ => self.closing(),
        };
        let reasons = !reasoning.is_empty();
        let closes = !answer.is_empty() && (reasons || is_opened || self == Self::Channels);
        let pieces = [
            (opening, true, reasons),
            (reasoning.to_owned(), false, reasons),
            (closing, true, closes),
            (answer.to_owned(), false, !answer.is_empty()),
        ];
        let present = pieces.into_iter().filter(|(text, _, is_present)| *is_present && !text.is_empty());
        present.map(|(text, is_delimiter, _)| (text, is_delimiter)).collect()
    }
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Of the reasoning.
    Reasoning(String),
    /// Of the answer.
    Answer(String),
}

impl Part {
    /// Length of its text of the answer, bytes.
    pub fn answer_len(&self) -> usize {
        match self {
            Self::Reasoning(_) => 0,
            Self::Answer(text) => text.len(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Nothing but white space.
    Start,
    /// Inside the reasoning.
    Reasoning,
    /// After the reasoning, before the first character of the answer.
    Between,
    Answer,
    /// Before the text of a message.
    Header,
    /// In the arguments of a call.
    Call,
}

/// Separates a growing reply. Text that may be a delimiter is held back until that is certain.
#[derive(Debug)]
pub struct Splitter {
    format: Format,
    state: State,
    held: String,
    /// Whether the reasoning has begun: white space before it is left out.
    has_begun: bool,
}

impl Splitter {
    /// A reply whose prompt opened its reasoning if `is_opened`, and of which `reasoning` and `answer` were delivered.
    pub fn new(format: Format, is_opened: bool, reasoning: &str, answer: &str) -> Self {
        let state = match (format, answer.is_empty()) {
            (Format::Channels, false) if ends_in_call(answer) => State::Call,
            (_, false) => State::Answer,
            (_, true) if !reasoning.is_empty() || is_opened => State::Reasoning,
            (Format::Tags(..), true) => State::Start,
            (Format::Channels, true) => State::Header,
        };
        Self { format, state, held: String::new(), has_begun: !reasoning.is_empty() }
    }

    /// Whether the next text belongs to the reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.state == State::Reasoning
    }

    /// Whether a format of the answer applies to the next text.
    pub fn is_answer(&self) -> bool {
        matches!(self.state, State::Start | State::Between | State::Answer)
    }

    /// Whether the answer has not begun or is interrupted: what was pushed last is a delimiter, or white space that is left out.
    pub fn is_outside_answer(&self) -> bool {
        !matches!(self.state, State::Start | State::Answer)
    }

    /// Adds text and returns the parts that are certain.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.advance(&mut parts) {}
        parts
    }

    /// Returns what was held back, at the end of the reply.
    pub fn finish(mut self) -> Vec<Part> {
        let held = std::mem::take(&mut self.held);
        let part = match self.state {
            State::Reasoning => Part::Reasoning(held.trim_end().to_owned()),
            State::Between => return Vec::new(),
            // A reply that ends in a header has no text there.
            State::Header if held.contains(CHANNEL) => return Vec::new(),
            State::Start | State::Answer | State::Header | State::Call => Part::Answer(held),
        };
        let is_empty = matches!(&part, Part::Reasoning(text) | Part::Answer(text) if text.is_empty());
        if is_empty { Vec::new() } else { vec![part] }
    }

    /// Takes one step; `false` if it needs more text.
    fn advance(&mut self, parts: &mut Vec<Part>) -> bool {
        match (self.format, self.state.clone()) {
            (Format::Tags(open, _), State::Start) => self.start(open),
            (Format::Tags(_, close), State::Reasoning) => self.reason(close, parts),
            (_, State::Between) => {
                self.held = self.held.trim_start().to_owned();
                if !self.held.is_empty() {
                    self.state = State::Answer;
                }
                !self.held.is_empty()
            }
            (Format::Tags(..), State::Answer) => {
                let held = std::mem::take(&mut self.held);
                if !held.is_empty() {
                    parts.push(Part::Answer(held));
                }
                false
            }
            (Format::Channels, State::Header) => self.header(parts),
            (Format::Channels, state) => self.body(&state, parts),
            // Only channels have headers and calls.
            (Format::Tags(..), State::Header | State::Call) => false,
        }
    }

    fn start(&mut self, open: &str) -> bool {
        let begin = self.held.trim_start();
        if let Some(rest) = begin.strip_prefix(open) {
            self.held = rest.to_owned();
            self.state = State::Reasoning;
            return true;
        }
        if open.starts_with(begin) {
            return false;
        }
        self.state = State::Answer;
        true
    }

    fn reason(&mut self, close: &str, parts: &mut Vec<Part>) -> bool {
        let (length, is_closed) = match self.held.find(close) {
            Some(at) => (at, true),
            None => (self.held.len() - begun(&self.held, &[close]), false),
        };
        // White space around the reasoning is not a part of it.
        let end = self.held[..length].trim_end().len();
        self.emit(end, parts);
        if is_closed {
            let at = self.held.find(close).map_or(0, |at| at + close.len());
            self.held.drain(..at);
            self.state = State::Between;
        }
        is_closed
    }

    /// Sends the first bytes of the held text as reasoning.
    fn emit(&mut self, length: usize, parts: &mut Vec<Part>) {
        let text: String = self.held.drain(..length).collect();
        let text = if self.has_begun { text } else { text.trim_start().to_owned() };
        if !text.is_empty() {
            self.has_begun = true;
            parts.push(Part::Reasoning(text));
        }
    }

    fn header(&mut self, parts: &mut Vec<Part>) -> bool {
        let Some(at) = self.held.find(MESSAGE) else { return false };
        let rest = self.held.split_off(at + MESSAGE.len());
        let header = std::mem::replace(&mut self.held, rest);
        let function = header.split(TO_FUNCTION).nth(1);
        let name = function
            .map(|name| name.split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or_default());
        self.state = match name {
            Some(name) => {
                parts.push(Part::Answer(format!("{CALL}{}, \"arguments\": ", serde_json::json!(name))));
                State::Call
            }
            None if header.contains("analysis") => State::Reasoning,
            None => State::Answer,
        };
        true
    }

    fn body(&mut self, state: &State, parts: &mut Vec<Part>) -> bool {
        let end = ENDS.iter().filter_map(|end| self.held.find(end).map(|at| (at, *end))).min();
        let length = end.map_or_else(|| self.held.len() - begun(&self.held, &ENDS), |(at, _)| at);
        match state {
            State::Reasoning => {
                let length = self.held[..length].trim_end().len();
                self.emit(length, parts);
            }
            _ if length > 0 => parts.push(Part::Answer(self.held.drain(..length).collect())),
            _ => {}
        }
        let Some((_, end)) = end else { return false };
        if *state == State::Call {
            parts.push(Part::Answer(format!("}}{CALL_END}")));
        }
        let at = self.held.find(end).unwrap_or_default();
        // The header begins with these two.
        let is_header = end == CHANNEL || end == "<|start|>";
        self.held.drain(..if is_header { at } else { at + end.len() });
        self.state = State::Header;
        true
    }
}

/// Whether the answer ends within a call.
fn ends_in_call(answer: &str) -> bool {
    answer.rfind(CALL).is_some_and(|at| !answer[at..].contains(CALL_END))
}

/// Number of bytes at the end of a text that could be the beginning of one of the delimiters.
fn begun(text: &str, delimiters: &[&str]) -> usize {
    let longest = |delimiter: &&str| {
        let lengths = delimiter.char_indices().map(|(at, _)| at).skip(1);
        lengths.filter(|&length| text.ends_with(&delimiter[..length])).max().unwrap_or(0)
    };
    delimiters.iter().map(longest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
