//! Decodes tokens to text incrementally. Text that was sent is never changed.

use super::window::Window;
use crate::{error::EngineError, job::Job, text::tokens::Tokens};

/// The text of a job while it is generated.
#[derive(Debug)]
pub struct Stream<'s> {
    tokens: &'s Tokens,
    job: &'s Job,
    ids: Vec<u32>,
    window: Window,
    has_begun: bool,
    unsent: u32,
}

impl<'s> Stream<'s> {
    /// An empty text.
    pub fn new(tokens: &'s Tokens, job: &'s Job) -> Self {
        Self::after(&[], tokens, job)
    }

    /// The text of a decoder that begins with these tokens. The reference decodes them too: one that is not special is in the text.
    pub fn after(begin: &[u32], tokens: &'s Tokens, job: &'s Job) -> Self {
        let (ids, window) = (begin.to_vec(), Window::after(begin));
        Self { tokens, job, ids, window, has_begun: false, unsent: 0 }
    }

    /// Adds a token, and sends the text that later tokens cannot change.
    pub fn push(&mut self, token: u32) {
        self.ids.push(token);
        self.unsent += 1;
        let tokens = self.tokens;
        // White space at the end of the whole text is removed.
        let steady = |text: &str| tokens.steady(text).trim_end().len();
        let new = self.window.push(token, |ids| tokens.decode(ids, true).ok(), steady);
        self.emit(&new);
    }

    /// Sends the rest, and returns the whole text.
    pub fn finish(mut self) -> Result<String, EngineError> {
        let rest = std::mem::take(&mut self.window).finish(|ids| self.tokens.decode(ids, true))?;
        self.emit(rest.trim_end());
        if self.unsent > 0 {
            // Tokens without text of their own count too.
            self.job.token(String::new(), self.unsent);
        }
        Ok(self.tokens.decode(&self.ids, true)?.trim().to_owned())
    }

    fn emit(&mut self, new: &str) {
        // White space at the beginning is removed, too.
        let new = if self.has_begun { new } else { new.trim_start() };
        if !new.is_empty() {
            self.job.token(new, self.unsent);
            self.has_begun = true;
            self.unsent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::event::AttemptEvent;
    use island_runtimes_api::EventSink;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::text::tokens::tests::{lowercase, of};

    /// A tokenizer of these tokens and this decoder.
    fn tokenizer(pieces: &[&str], decoder: &Value, cleans_up: bool) -> Tokens {
        let vocabulary: serde_json::Map<String, Value> =
            pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), id.into())).collect();
        let file = json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
            "decoder": decoder, "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": pieces[0]},
        });
        let settings = json!({"clean_up_tokenization_spaces": cleans_up});
        of(&[("tokenizer.json", file), ("tokenizer_config.json", settings)]).expect("a tokenizer")
    }

    /// Bytes of characters: `ü` is two tokens, `€` two with a point.
    fn bytes() -> Tokens {
        let pieces = ["a", "\u{120}b", "\u{120}word", "\u{c3}", "\u{bc}", "\u{e2}\u{124}", "\u{ac}."];
        let decoder =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        tokenizer(&pieces, &decoder, false)
    }

    /// A space at the beginning of a text is removed, and characters may be written as bytes.
    fn spaced() -> Tokens {
        let pieces = ["a", "\u{2581}", "\u{2581}word", "<0xC3>", "<0xBC>", "<0xE2>", "<0x82>", "<0xAC>"];
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]});
        tokenizer(&pieces, &decoder, false)
    }

    /// What is sent of these tokens, the number of tokens that it stands for, and the text that is returned.
    fn written(tokens: &Tokens, begin: &[u32], ids: &[u32]) -> (String, u32, String) {
        let (events, mut received) = EventSink::channel();
        let job = Job::sending(events);
        let mut stream = Stream::after(begin, tokens, &job);
        ids.iter().for_each(|&id| stream.push(id));
        let text = stream.finish().expect("text");
        let mut sent = (String::new(), 0);
        while let Ok(AttemptEvent::Token { content, count, .. }) = received.try_recv() {
            sent = (sent.0 + &content, sent.1 + count);
        }
        (sent.0, sent.1, text)
    }

    proptest! {
        #[test]
        fn the_parts_of_a_text_are_the_text_of_all_its_tokens(ids in prop::collection::vec(0_u32..7, 0..250)) {
            let tokens = bytes();
            let (sent, count, text) = written(&tokens, &[], &ids);
            let whole = tokens.decode(&ids, true).expect("text");
            prop_assert_eq!(&sent, whole.trim());
            prop_assert_eq!((count as usize, text), (ids.len(), sent));
        }

        #[test]
        fn the_parts_are_the_text_where_a_space_at_the_beginning_is_removed(
            // Whole characters: bytes of an incomplete one are replaced together with those of the characters before it.
            words in prop::collection::vec(
                prop::sample::select(vec![vec![0_u32], vec![1], vec![2], vec![3, 4], vec![5, 6, 7]]), 0..150,
            ),
        ) {
            let tokens = spaced();
            let ids = words.concat();
            let (sent, count, text) = written(&tokens, &[], &ids);
            let whole = tokens.decode(&ids, true).expect("text");
            prop_assert_eq!(&sent, whole.trim());
            prop_assert_eq!((count as usize, text), (ids.len(), sent));
        }
    }

    #[test]
    fn a_space_that_is_removed_later_is_not_sent() {
        let tokens = tokenizer(&["it", "'", "s", "ca", "n", "."], &Value::Null, true);
        let (sent, _, text) = written(&tokens, &[], &[0, 1, 2, 3, 4, 5, 0, 1]);
        assert_eq!((sent.as_str(), text.as_str()), ("it's ca n. it '", "it's ca n. it '"));
    }

    #[test]
    fn a_start_token_that_is_not_special_begins_the_text() {
        let tokens = of(&[("tokenizer.json", lowercase())]).expect("a tokenizer");
        let written = |begin: &[u32]| {
            let (sent, count, text) = written(&tokens, begin, &[1]);
            assert_eq!((&sent, count), (&text, 1), "what was sent is the text, and counts one token");
            text
        };
        assert_eq!(written(&[2]), "b a");
        assert_eq!(written(&[0]), "a", "[UNK] is special");
    }
}
