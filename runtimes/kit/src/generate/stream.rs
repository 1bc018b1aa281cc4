//! Decodes tokens to text incrementally. Text that was sent is never changed.

use crate::{error::EngineError, job::Job, text::tokens::Tokens};

/// The text of a job while it is generated.
#[derive(Debug)]
pub struct Stream<'s> {
    tokens: &'s Tokens,
    job: &'s Job,
    ids: Vec<u32>,
    sent: String,
    unsent: u32,
}

impl<'s> Stream<'s> {
    /// An empty text.
    pub fn new(tokens: &'s Tokens, job: &'s Job) -> Self {
        Self { tokens, job, ids: Vec::new(), sent: String::new(), unsent: 0 }
    }

    /// Adds a token, and sends the text that later tokens cannot change.
    pub fn push(&mut self, token: u32) {
        self.ids.push(token);
        self.unsent += 1;
        let Ok(text) = self.tokens.decode(&self.ids, true) else { return };
        // A character of several tokens is incomplete, and trailing spaces may still be removed.
        let steady = text.trim_end_matches(['\u{fffd}', ' ']);
        self.emit(steady.len(), &text);
    }

    /// Sends the rest, and returns the whole text.
    pub fn finish(mut self) -> Result<String, EngineError> {
        let text = self.tokens.decode(&self.ids, true)?.trim().to_owned();
        self.emit(text.len(), &text);
        if self.unsent > 0 {
            // Tokens without text of their own count too.
            self.job.token(String::new(), self.unsent);
        }
        Ok(text)
    }

    fn emit(&mut self, until: usize, text: &str) {
        let text = &text[..until];
        if let Some(new) = text.strip_prefix(self.sent.as_str())
            && !new.is_empty()
        {
            self.job.token(new, self.unsent);
            self.sent.push_str(new);
            self.unsent = 0;
        }
    }
}
