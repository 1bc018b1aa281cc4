//! Streaming of a reply: text that could become a stop sequence is held back until it is certain.

use std::{cell::Cell, rc::Rc};

use island_runtimes_kit::{error::EngineError, generate::window::Window, job::Job, text::tokens::Tokens};

/// A reply during generation.
pub(super) struct Stops<'s> {
    tokens: &'s Tokens,
    job: &'s Job,
    endings: &'s [String],
    ends: Vec<u32>,
    window: Window,
    /// The text that was sent.
    said: String,
    unsaid: u32,
    count: u64,
    stopped: Rc<Cell<bool>>,
    /// The stop sequence that was generated.
    found: Option<&'s str>,
}

impl<'s> Stops<'s> {
    /// An empty reply.
    pub(super) fn new(tokens: &'s Tokens, job: &'s Job, stops: &'s [String], ends: &[u32]) -> Self {
        Self {
            tokens,
            job,
            endings: stops,
            ends: ends.to_vec(),
            window: Window::default(),
            said: String::new(),
            unsaid: 0,
            count: 0,
            stopped: Rc::default(),
            found: None,
        }
    }

    /// Whether a stop sequence was generated.
    pub(super) fn flag(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.stopped)
    }

    /// The stop sequence that was generated.
    pub(super) fn found(&self) -> Option<&str> {
        self.found
    }

    /// Number of generated tokens.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a token.
    pub(super) fn push(&mut self, token: u32) {
        self.count += 1;
        self.unsaid += 1;
        if self.ends.contains(&token) {
            return;
        }
        let (tokens, endings, stopped, found) = (self.tokens, self.endings, &self.stopped, &mut self.found);
        let certain = |text: &str| {
            if let Some((at, stop)) = first_stop(endings, text) {
                stopped.set(true);
                *found = Some(stop);
                return at;
            }
            let steady = tokens.steady(text);
            steady.len() - endings.iter().map(|stop| begun(steady, stop)).max().unwrap_or(0)
        };
        let new = self.window.push(token, |ids| tokens.decode(ids, true).ok(), certain);
        self.send(&new);
    }

    /// Sends the rest; returns the whole text.
    pub(super) fn end(mut self) -> Result<String, EngineError> {
        if !self.stopped.get() {
            let rest = std::mem::take(&mut self.window).finish(|ids| self.tokens.decode(ids, true))?;
            self.send(&rest);
        }
        if self.unsaid > 0 {
            // The last tokens have no text of their own, but they count.
            self.job.token(String::new(), self.unsaid);
        }
        Ok(self.said)
    }

    fn send(&mut self, new: &str) {
        if !new.is_empty() {
            self.job.token(new, self.unsaid);
            self.said.push_str(new);
            self.unsaid = 0;
        }
    }
}

/// The stop sequence that ends first, however the text is split into tokens, and its start.
fn first_stop<'s>(stops: &'s [String], text: &str) -> Option<(usize, &'s str)> {
    let found = stops.iter().filter_map(|stop| {
        let at = text.find(stop.as_str())?;
        Some((at + stop.len(), at, stop.as_str()))
    });
    found.min().map(|(_, at, stop)| (at, stop))
}

/// Number of bytes at the end of a text that could begin a stop sequence.
fn begun(text: &str, stop: &str) -> usize {
    let could = |&length: &usize| stop.is_char_boundary(length) && text.ends_with(&stop[..length]);
    (1..stop.len()).rev().find(could).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_stop_sequences_the_one_that_ends_first_counts() {
        let stops = ["b", "abc"].map(str::to_owned);
        assert_eq!(first_stop(&stops, "xabc"), Some((2, "b")));
        assert_eq!(first_stop(&stops, "xac"), None);
    }

    #[test]
    fn only_a_possible_stop_sequence_is_held_back() {
        assert_eq!(begun("go STO", "STOP"), 3);
        assert_eq!(begun("go S T", "STOP"), 0);
        assert_eq!(begun("ü", "üx"), 2);
    }
}
