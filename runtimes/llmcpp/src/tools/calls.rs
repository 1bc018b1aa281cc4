//! Finds calls in a growing reply: text before a call is sent at once, a call is held back until it is complete.

use serde_json::{Value, json};

use super::{
    Offer,
    forms::{self, OPENERS},
};

/// Observes one reply.
#[derive(Debug)]
pub struct CallFinder {
    offer: Offer,
    /// Text that is, or may become, a call.
    held: String,
    /// The text that was sent.
    said: String,
    open: bool,
}

/// The result of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// Text; this part of it was held back.
    Text(String),
    /// Calls, in the form of the chat API: `{"content", "tool_calls"}`.
    Calls(Value),
}

impl CallFinder {
    /// Creates one that finds calls of the offered functions.
    pub fn new(offer: Offer) -> Self {
        Self { offer, held: String::new(), said: String::new(), open: false }
    }

    /// Adds text and returns what is certainly not a part of a call.
    pub fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        if self.open {
            return String::new();
        }
        if let Some(at) = OPENERS.iter().filter_map(|opener| self.held.find(opener)).min() {
            self.open = true;
            return self.show(at);
        }
        if self.said.trim().is_empty() {
            let begin = self.held.trim_start();
            if begin.is_empty() || begin.starts_with(['{', '[']) {
                // Not `open`: it may still be text before an opener.
                return String::new();
            }
        }
        self.show(self.held.len() - begun(&self.held))
    }

    /// Removes the first `length` bytes of the held text.
    fn show(&mut self, length: usize) -> String {
        let text: String = self.held.drain(..length).collect();
        self.said.push_str(&text);
        text
    }

    /// Returns the result at the end of the reply. `number` gives each call its id.
    pub fn finish(self, mut number: impl FnMut() -> String) -> Ending {
        let calls = forms::read(&self.held, |name| self.offer.schema(name));
        let calls = calls.filter(|calls| calls.iter().all(|(name, _)| self.offer.has(name)));
        let Some(mut calls) = calls.filter(|calls| !calls.is_empty()) else { return Ending::Text(self.held) };
        if self.offer.is_single {
            calls.truncate(1);
        }
        let call = |(name, arguments): (String, Value)| {
            let arguments = match arguments {
                Value::String(text) => text,
                other => other.to_string(),
            };
            json!({"id": number(), "type": "function", "function": {"name": name, "arguments": arguments}})
        };
        let calls: Vec<Value> = calls.into_iter().map(call).collect();
        let said = self.said.trim_end();
        Ending::Calls(json!({ "content": (!said.is_empty()).then_some(said), "tool_calls": calls }))
    }
}

/// Number of bytes at the end of a text that could be the beginning of an opener.
fn begun(text: &str) -> usize {
    let longest = |opener: &&str| {
        let begins = |&length: &usize| opener.get(..length).is_some_and(|begin| text.ends_with(begin));
        (1..opener.len()).rev().find(begins).unwrap_or(0)
    };
    OPENERS.iter().map(longest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Choice;
    use proptest::prelude::*;

    fn finder() -> CallFinder {
        let tools = vec![json!({"type": "function", "function": {"name": "f"}})];
        CallFinder::new(Offer { tools, choice: Choice::Auto, is_single: false })
    }

    /// Adds a text in pieces of `size` characters; returns what was sent and the result.
    fn feed(text: &str, size: usize) -> (String, Ending) {
        let mut finder = finder();
        let characters: Vec<char> = text.chars().collect();
        let shown =
            characters.chunks(size).map(|piece| finder.push(&piece.iter().collect::<String>())).collect();
        let mut number = 0;
        let ending = finder.finish(|| {
            number += 1;
            format!("call_{number}")
        });
        (shown, ending)
    }

    fn expected(number: usize, arguments: &str) -> Value {
        json!({"id": format!("call_{number}"), "type": "function", "function": {"name": "f", "arguments": arguments}})
    }

    #[test]
    fn calls_are_found_in_any_pieces() {
        for size in 1..9 {
            let (shown, ending) = feed(
                "I see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
                size,
            );
            assert_eq!(shown, "I see.\n");
            let calls = [expected(1, "{\"a\":1}"), expected(2, "{}")];
            assert_eq!(ending, Ending::Calls(json!({"content": "I see.", "tool_calls": calls})));
            let (shown, ending) = feed("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", size);
            let call = json!({"content": null, "tool_calls": [expected(1, "{}")]});
            assert_eq!((shown.as_str(), ending), ("", Ending::Calls(call.clone())));
            let (shown, ending) = feed("<|tool_call>call:f{}<tool_call|>", size);
            assert_eq!((shown.as_str(), ending), ("", Ending::Calls(call.clone())));
            let (shown, ending) = feed(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
                size,
            );
            assert_eq!((shown.as_str(), ending), ("", Ending::Calls(call.clone())));
            let (shown, ending) = feed(" {\"name\": \"f\", \"parameters\": {}}", size);
            assert_eq!((shown.as_str(), ending), ("", Ending::Calls(call)));
        }
    }

    #[test]
    fn other_json_is_text() {
        for text in ["{\"name\": \"g\", \"arguments\": {}}", "{\"a\": 1}", "<tool_call>{\"name\"", "[1, 2]"] {
            let (shown, ending) = feed(text, 3);
            assert_eq!((shown.as_str(), ending), ("", Ending::Text(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn no_text_is_lost(text in "[a-z<>_\\[\\]{} TOOL｜▁|=]{0,60}", size in 1_usize..8) {
            let (shown, ending) = feed(&text, size);
            // No such text is a call: none contains the name of a function.
            prop_assert_eq!(ending, Ending::Text(text.strip_prefix(&shown).expect("shown as it came").to_owned()));
        }
    }
}
