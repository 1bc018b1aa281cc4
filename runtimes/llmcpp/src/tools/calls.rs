//! Finds calls in a growing reply. Text before a call is sent at once, and the arguments of a call as they are written.

use island_protocol::{ids::JobId, reply::CallDelta};
use serde_json::{Value, json};

use super::{
    Offer,
    forms::{self, Call, OPENERS, begun, may_close},
};

/// Maximum length of what one part of a call stands for, bytes. Longer ones, of models that write the arguments before the name, are sent with
/// the whole calls at the end.
const MAX_PART: usize = 16 << 10;

/// Observes one reply.
#[derive(Debug)]
pub struct CallFinder {
    offer: Offer,
    job: JobId,
    /// Text that is, or may become, a call.
    held: String,
    /// Length of the held text that was delivered by an earlier attempt, which had held it up to its end.
    known: usize,
    /// The text that was sent.
    said: String,
    /// Whether the held text begins with the beginning of a call.
    open: bool,
    /// Length of what was sent of each call's arguments.
    sent: Vec<usize>,
    /// Length of the held text that the sent parts stand for.
    covered: usize,
    /// Length of the held text at which it is read again: a text that is read for each token would take a time that grows with its square.
    read_at: usize,
    /// Whether parts are sent.
    streams: bool,
}

/// What is certain of a reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Text that is not a part of a call.
    pub text: String,
    /// Parts of calls.
    pub calls: Vec<CallDelta>,
}

/// The result of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// Text; this part of it was held back.
    Text(String),
    /// Calls.
    Calls {
        /// The parts that were not sent yet.
        parts: Vec<CallDelta>,
        /// All calls, in the form of the chat API: `{"content", "tool_calls"}`.
        output: Value,
        /// Text after the calls, which was held back.
        text: String,
        /// Whether the last call has its end.
        is_complete: bool,
    },
}

impl CallFinder {
    /// Creates one that finds calls of the offered functions in the reply of a job, of which this beginning was delivered.
    pub fn new(offer: Offer, job: JobId, delivered: &str) -> Self {
        let mut finder = Self {
            offer,
            job,
            held: String::new(),
            known: 0,
            said: String::new(),
            open: false,
            sent: Vec::new(),
            covered: 0,
            read_at: 0,
            streams: true,
        };
        finder.push(delivered);
        finder.parts(false);
        finder.known = finder.held.len();
        finder
    }

    /// Length of the text before the calls, bytes.
    pub fn text_len(&self) -> usize {
        self.said.len()
    }

    /// Adds text and returns what is certain.
    pub fn push(&mut self, text: &str) -> Found {
        self.held.push_str(text);
        if self.open {
            return Found { text: String::new(), calls: self.read_again() };
        }
        if let Some(at) = OPENERS.iter().filter_map(|opener| self.held.find(opener)).min() {
            let text = self.show(at);
            self.open = true;
            return Found { text, calls: self.read_again() };
        }
        if self.said.trim().is_empty() {
            let begin = self.held.trim_start();
            if begin.is_empty() || begin.starts_with(['{', '[']) {
                // Not `open` before a call was read: it may still be text before an opener.
                let calls = self.read_again();
                self.open = !self.sent.is_empty();
                return Found { text: String::new(), calls };
            }
        }
        let held = OPENERS.iter().map(|opener| begun(&self.held, opener)).max().unwrap_or(0);
        Found { text: self.show(self.held.len() - held), calls: Vec::new() }
    }

    /// Removes the first `length` bytes of the held text. Returns what of it was not delivered yet.
    fn show(&mut self, length: usize) -> String {
        let mut text: String = self.held.drain(..length).collect();
        self.said.push_str(&text);
        self.read_at = 0;
        let known = self.known.min(length);
        self.known -= known;
        text.split_off(known)
    }

    fn read_again(&mut self) -> Vec<CallDelta> {
        if self.held.len() < self.read_at {
            return Vec::new();
        }
        self.read_at = self.held.len() + self.held.len() / 64;
        self.parts(false)
    }

    /// The calls of offered functions in the held text.
    fn calls(&self, is_end: bool) -> Vec<Call> {
        let mut calls = forms::read(&self.held, is_end, |name| self.offer.schema(name));
        let offered = calls.iter().take_while(|call| self.offer.has(&call.name)).count();
        calls.truncate(if self.offer.is_single { offered.min(1) } else { offered });
        calls
    }

    /// What was not sent yet of the calls in the held text.
    fn parts(&mut self, is_end: bool) -> Vec<CallDelta> {
        let calls = self.calls(is_end);
        let mut parts = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            let sent = self.sent.get(index).copied();
            let arguments = call.arguments.get(sent.unwrap_or(0)..).unwrap_or_default();
            if sent.is_some() && arguments.is_empty() {
                continue;
            }
            let end = if call.is_complete { call.end } else { self.held.len() };
            let text = &self.held[self.covered.min(end)..end];
            self.streams &= text.len() <= MAX_PART && arguments.len() <= MAX_PART;
            if !self.streams {
                break;
            }
            parts.push(CallDelta {
                index: index as u32,
                id: sent.is_none().then(|| self.id(index)),
                name: sent.is_none().then(|| call.name.clone()),
                arguments: arguments.to_owned(),
                text: text.to_owned(),
            });
            self.covered = end;
            match self.sent.get_mut(index) {
                Some(sent) => *sent = call.arguments.len(),
                None => self.sent.push(call.arguments.len()),
            }
        }
        parts
    }

    /// An attempt that continues the reply gives a call the same id.
    fn id(&self, index: usize) -> String {
        format!("call_{}_{index}", self.job.0.simple())
    }

    /// Returns the result at the end of the reply.
    pub fn finish(mut self) -> Ending {
        let parts = self.parts(true);
        let calls = self.calls(true);
        let Some(last) = calls.last() else { return Ending::Text(self.held.split_off(self.known)) };
        let rest = self.held[last.end..].trim();
        let text = if !last.is_complete || self.offer.is_single || may_close(rest) { "" } else { rest };
        let call = |(index, call): (usize, &Call)| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": self.id(index), "type": "function", "function": function})
        };
        let said = self.said.trim_end();
        let content =
            [said, text].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n");
        let list: Vec<Value> = calls.iter().enumerate().map(call).collect();
        Ending::Calls {
            parts,
            output: json!({"content": (!content.is_empty()).then_some(content), "tool_calls": list}),
            text: text.to_owned(),
            is_complete: last.is_complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Choice;
    use proptest::prelude::*;

    fn job() -> JobId {
        "00000000-0000-0000-0000-000000000000".parse().expect("an id")
    }

    fn offer() -> Offer {
        let tools = vec![json!({"type": "function", "function": {"name": "f"}})];
        Offer { tools, choice: Choice::Auto, is_single: false }
    }

    /// What a consumer knows after a reply.
    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        text: String,
        /// Id, function and arguments.
        calls: Vec<(String, String, String)>,
    }

    impl Seen {
        fn add(&mut self, found: Found) {
            self.text.push_str(&found.text);
            for part in found.calls {
                assert!(!part.text.is_empty() || !part.arguments.is_empty());
                if let (Some(id), Some(name)) = (part.id, part.name) {
                    assert_eq!(part.index as usize, self.calls.len());
                    self.calls.push((id, name, String::new()));
                }
                self.calls[part.index as usize].2.push_str(&part.arguments);
            }
        }
    }

    /// Adds a text in pieces of `size` characters; returns what was sent and the result.
    fn feed(text: &str, size: usize) -> (Seen, Ending) {
        let mut finder = CallFinder::new(offer(), job(), "");
        let mut seen = Seen::default();
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(size) {
            seen.add(finder.push(&piece.iter().collect::<String>()));
        }
        let mut ending = finder.finish();
        if let Ending::Calls { parts, text, .. } = &mut ending {
            seen.add(Found { text: text.clone(), calls: std::mem::take(parts) });
        }
        (seen, ending)
    }

    fn id(index: usize) -> String {
        format!("call_{}_{index}", "0".repeat(32))
    }

    fn ended(content: Option<&str>, arguments: &[&str], is_complete: bool) -> Ending {
        let call = |(index, arguments): (usize, &&str)| json!({"id": id(index), "type": "function", "function": {"name": "f", "arguments": arguments}});
        let calls: Vec<Value> = arguments.iter().enumerate().map(call).collect();
        let output = json!({"content": content, "tool_calls": calls});
        Ending::Calls { parts: Vec::new(), output, text: String::new(), is_complete }
    }

    fn seen(text: &str, arguments: &[&str]) -> Seen {
        let call = |(index, arguments): (usize, &&str)| (id(index), "f".to_owned(), (*arguments).to_owned());
        Seen { text: text.to_owned(), calls: arguments.iter().enumerate().map(call).collect() }
    }

    #[test]
    fn calls_are_found_in_any_pieces() {
        for size in 1..9 {
            let text = "I see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
            let both = ["{\"a\":1}", "{}"];
            assert_eq!(feed(text, size), (seen("I see.\n", &both), ended(Some("I see."), &both, true)));
            for text in [
                "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]",
                "<|tool_call>call:f{}<tool_call|>",
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
                " {\"name\": \"f\", \"parameters\": {}}",
                "<function=f>\n</function>",
            ] {
                assert_eq!(feed(text, size), (seen("", &["{}"]), ended(None, &["{}"], true)), "{text}");
            }
        }
    }

    #[test]
    fn a_call_without_its_end_is_sent_as_far_as_it_was_written() {
        let text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x";
        let arguments = ["{\"a\":\"x"];
        assert_eq!(feed(text, 4), (seen("", &arguments), ended(None, &arguments, false)));
    }

    #[test]
    fn text_after_calls_is_sent() {
        let text = "{\"name\": \"f\", \"parameters\": {}}\n\nThat is it.";
        let (seen, ending) = feed(text, 5);
        assert_eq!(seen.text, "That is it.");
        let Ending::Calls { output, .. } = ending else { panic!("{ending:?}") };
        assert_eq!(output["content"], "That is it.");
    }

    #[test]
    fn arguments_before_the_name_are_sent_at_once_if_they_are_short() {
        for (length, is_sent) in [(100, true), (MAX_PART + 1, false)] {
            let arguments = json!({"a": "x".repeat(length)}).to_string();
            let text = format!("<tool_call>{{\"arguments\": {arguments}, \"name\": \"f\"}}</tool_call>");
            let (seen, ending) = feed(&text, 50);
            assert_eq!(seen.calls.first().map(|call| call.2.len()), is_sent.then_some(arguments.len()));
            let Ending::Calls { output, .. } = ending else { panic!("{ending:?}") };
            assert_eq!(output["tool_calls"][0]["function"]["arguments"], arguments);
        }
    }

    #[test]
    fn other_json_is_text() {
        for text in ["{\"name\": \"g\", \"arguments\": {}}", "{\"a\": 1}", "<tool_call>{\"name\"", "[1, 2]"] {
            assert_eq!(feed(text, 3), (Seen::default(), Ending::Text(text.to_owned())));
        }
    }

    /// An Island that was lost at the end of a reply had sent what it held.
    #[test]
    fn held_text_that_was_delivered_is_not_sent_again() {
        for delivered in ["{\"a\": 1}", "I see. <tool_call>{\"name\": \"g\"}", "I see. <tool_"] {
            let finder = CallFinder::new(offer(), job(), delivered);
            assert_eq!(finder.finish(), Ending::Text(String::new()), "{delivered}");
            let mut finder = CallFinder::new(offer(), job(), delivered);
            let shown = finder.push(" And so on.").text;
            let Ending::Text(held) = finder.finish() else { panic!("{delivered}") };
            assert_eq!(shown + &held, " And so on.", "{delivered}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_lost(text in "[a-eg-z<>_\\[\\]{} TOOL｜▁|=]{0,60}", size in 1_usize..8) {
            let (seen, ending) = feed(&text, size);
            // No such text is a call: none contains the name of a function.
            let held = text.strip_prefix(&seen.text).expect("shown as it came").to_owned();
            prop_assert_eq!(ending, Ending::Text(held));
        }

        /// An attempt that continues after what was delivered sends the rest, with the same ids.
        #[test]
        fn a_reply_goes_on_after_any_part(cut in 0_usize..200, size in 1_usize..8) {
            let text = "So: <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x y\", \"b\": [1, 2]}}</tool_call>\n<tool_call>{\"name\": \"f\", \"arguments\": {\"c\": 3}}</tool_call>";
            let characters: Vec<char> = text.chars().collect();
            let mut pieces = characters.chunks(size).map(|piece| piece.iter().collect::<String>());
            let (mut seen, mut delivered) = (Seen::default(), String::new());
            let mut finder = CallFinder::new(offer(), job(), "");
            for piece in pieces.by_ref().take(cut) {
                let found = finder.push(&piece);
                delivered.push_str(&found.text);
                delivered.extend(found.calls.iter().map(|part| part.text.as_str()));
                seen.add(found);
            }
            prop_assert!(text.starts_with(&delivered));
            let mut finder = CallFinder::new(offer(), job(), &delivered);
            seen.add(finder.push(&text[delivered.len()..]));
            let ending = finder.finish();
            let Ending::Calls { parts, output, is_complete, .. } = ending else { panic!("{ending:?}") };
            seen.add(Found { text: String::new(), calls: parts });
            let (whole, expected) = feed(text, 1000);
            prop_assert_eq!(seen, whole);
            prop_assert_eq!(Ending::Calls { parts: Vec::new(), output, text: String::new(), is_complete }, expected);
        }
    }
}
