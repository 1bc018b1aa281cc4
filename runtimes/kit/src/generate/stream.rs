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
        Self::after(&[], tokens, job)
    }

    /// The text of a decoder that begins with these tokens. The reference decodes them too: one that is not special is in the text.
    pub fn after(begin: &[u32], tokens: &'s Tokens, job: &'s Job) -> Self {
        Self { tokens, job, ids: begin.to_vec(), sent: String::new(), unsent: 0 }
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

#[cfg(test)]
mod tests {
    use island_protocol::event::AttemptEvent;
    use island_runtimes_api::EventSink;

    use super::*;
    use crate::text::tokens::tests::{lowercase, of};

    #[test]
    fn a_start_token_that_is_not_special_begins_the_text() {
        let tokens = of(&[("tokenizer.json", lowercase())]).expect("a tokenizer");
        let written = |begin: &[u32]| {
            let (events, mut received) = EventSink::channel();
            let job = Job::sending(events);
            let mut stream = Stream::after(begin, &tokens, &job);
            stream.push(1);
            let text = stream.finish().expect("text");
            let mut sent = (String::new(), 0);
            while let Ok(AttemptEvent::Token { content, count, .. }) = received.try_recv() {
                sent = (sent.0 + &content, sent.1 + count);
            }
            assert_eq!(sent, (text.clone(), 1), "what was sent is the text, and counts one token");
            text
        };
        assert_eq!(written(&[2]), "b a");
        assert_eq!(written(&[0]), "a", "[UNK] is special");
    }
}
