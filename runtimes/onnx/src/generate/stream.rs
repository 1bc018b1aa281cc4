//! Tokens to text, piece by piece: what is said once is never taken back.

use island_protocol::job::Failure;

use crate::{run::Job, text::tokens::Tokens};

/// A text on its way to whoever asked for it.
#[derive(Debug)]
pub struct Stream<'s> {
    tokens: &'s Tokens,
    job: &'s Job,
    ids: Vec<u32>,
    said: String,
    unsaid: u32,
}

impl<'s> Stream<'s> {
    /// Nothing said yet.
    pub fn new(tokens: &'s Tokens, job: &'s Job) -> Self {
        Self { tokens, job, ids: Vec::new(), said: String::new(), unsaid: 0 }
    }

    /// One more token.
    pub fn hear(&mut self, token: u32) {
        self.ids.push(token);
        self.unsaid += 1;
        let Ok(text) = self.tokens.decode(&self.ids, true) else { return };
        // A letter of several tokens is not whole yet, and spaces at the end may still be taken away.
        let steady = text.trim_end_matches(['\u{fffd}', ' ']);
        self.say(steady.len(), &text);
    }

    /// The whole text; says what is left of it.
    pub fn end(mut self) -> Result<String, Failure> {
        let text = self.tokens.decode(&self.ids, true)?.trim().to_owned();
        self.say(text.len(), &text);
        Ok(text)
    }

    fn say(&mut self, until: usize, text: &str) {
        let text = &text[..until];
        if let Some(new) = text.strip_prefix(self.said.as_str())
            && !new.is_empty()
        {
            self.job.token(new, self.unsaid);
            self.said.push_str(new);
            self.unsaid = 0;
        }
    }
}
