//! Streaming of a reply: text that could become a stop sequence is held back until it is certain.

use std::{cell::Cell, rc::Rc};

use island_runtimes_kit::{error::EngineError, job::Job, text::tokens::Tokens};

/// A reply during generation.
pub(super) struct Stops<'s> {
    tokens: &'s Tokens,
    job: &'s Job,
    endings: &'s [String],
    ends: Vec<u32>,
    ids: Vec<u32>,
    sent: usize,
    unsaid: u32,
    count: u64,
    stopped: Rc<Cell<bool>>,
}

impl<'s> Stops<'s> {
    /// An empty reply.
    pub(super) fn new(tokens: &'s Tokens, job: &'s Job, stops: &'s [String], ends: &[u32]) -> Self {
        Self {
            tokens,
            job,
            endings: stops,
            ends: ends.to_vec(),
            ids: Vec::new(),
            sent: 0,
            unsaid: 0,
            count: 0,
            stopped: Rc::default(),
        }
    }

    /// Whether a stop sequence was generated.
    pub(super) fn flag(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.stopped)
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
        self.ids.push(token);
        let Ok(text) = self.tokens.decode(&self.ids, true) else { return };
        let first = self.endings.iter().filter_map(|stop| text.find(stop.as_str())).min();
        if let Some(at) = first {
            self.stopped.set(true);
            self.send(&text, at);
            return;
        }
        // A character of several tokens is incomplete.
        let whole = text.trim_end_matches('\u{fffd}').len();
        let held = self.endings.iter().map(|stop| begun(&text[..whole], stop)).max().unwrap_or(0);
        self.send(&text, whole - held);
    }

    /// Sends the rest; returns the whole text.
    pub(super) fn end(mut self) -> Result<String, EngineError> {
        let mut text = self.tokens.decode(&self.ids, true)?;
        if !self.stopped.get() {
            self.send(&text, text.len());
        }
        if self.unsaid > 0 {
            // The last tokens have no text of their own, but they count.
            self.job.token(String::new(), self.unsaid);
        }
        text.truncate(self.sent);
        Ok(text)
    }

    fn send(&mut self, text: &str, until: usize) {
        if let Some(new) = text.get(self.sent..until).filter(|new| !new.is_empty()) {
            self.job.token(new, self.unsaid);
            self.sent = until;
            self.unsaid = 0;
        }
    }
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
    fn only_a_possible_stop_sequence_is_held_back() {
        assert_eq!(begun("go STO", "STOP"), 3);
        assert_eq!(begun("go S T", "STOP"), 0);
        assert_eq!(begun("ü", "üx"), 2);
    }
}
