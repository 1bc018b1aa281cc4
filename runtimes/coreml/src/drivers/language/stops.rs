//! Streaming of a reply: text that could become a stop sequence is held back until it is certain.

use std::{cell::Cell, rc::Rc};

use island_runtimes_kit::{error::EngineError, job::Job, text::tokens::Tokens};

/// Number of tokens from which on the first ones of a window are dropped.
const WINDOW: usize = 64;
/// Number of tokens that are kept then. Some tokens have another text at the beginning than after others.
const KEPT: usize = 16;

/// The last tokens of a reply, all of which are decoded with each further one, since a character may have several tokens. Decoding the whole
/// reply each time takes time that grows with the square of its length.
#[derive(Debug, Default)]
struct Window {
    ids: Vec<u32>,
    /// Bytes at the beginning of their text that were sent.
    sent: usize,
}

impl Window {
    /// Drops the first of too many tokens, if their text was sent and the last ones have the same text without them; else a later call does.
    /// `text` is that of all.
    fn narrow(&mut self, text: &str, decode: impl FnOnce(&[u32]) -> Option<String>) {
        if self.ids.len() < WINDOW {
            return;
        }
        let dropped = self.ids.len() - KEPT;
        let unsent = text.len().saturating_sub(self.sent);
        let kept = decode(&self.ids[dropped..]).filter(|kept| text.ends_with(kept.as_str()));
        let sent = kept.and_then(|kept| kept.len().checked_sub(unsent)).filter(|sent| *sent > 0);
        if let Some(sent) = sent {
            self.ids.drain(..dropped);
            self.sent = sent;
        }
    }
}

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
        self.window.ids.push(token);
        let tokens = self.tokens;
        let Ok(text) = tokens.decode(&self.window.ids, true) else { return };
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
        self.window.narrow(&text, |ids| tokens.decode(ids, true).ok());
    }

    /// Sends the rest; returns the whole text.
    pub(super) fn end(mut self) -> Result<String, EngineError> {
        let text = self.tokens.decode(&self.window.ids, true)?;
        if !self.stopped.get() {
            self.send(&text, text.len());
        }
        if self.unsaid > 0 {
            // The last tokens have no text of their own, but they count.
            self.job.token(String::new(), self.unsaid);
        }
        Ok(self.said)
    }

    fn send(&mut self, text: &str, until: usize) {
        if let Some(new) = text.get(self.window.sent..until).filter(|new| !new.is_empty()) {
            self.job.token(new, self.unsaid);
            self.said.push_str(new);
            self.window.sent = until;
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
    use proptest::prelude::*;

    use super::*;

    /// Tokens as of a byte-level vocabulary without a space at the beginning of a text: letters, words, and bytes of characters.
    const PIECES: [&[u8]; 7] = [b"a", b" b", b" word", b"\xc3", b"\xbc", b"\xe2\x82", b"\xac."];

    fn decode(ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| PIECES[*id as usize]).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        text.strip_prefix(' ').unwrap_or(&text).to_owned()
    }

    proptest! {
        /// A window over the last tokens sends the text of all, while few of them are decoded.
        #[test]
        fn what_a_window_sends_is_the_whole_text(
            ids in prop::collection::vec(0_u32..PIECES.len() as u32, 0..600),
            held in 0_usize..9,
        ) {
            let (mut window, mut said) = (Window::default(), String::new());
            let mut send = |window: &mut Window, text: &str, until: usize| {
                if let Some(new) = text.get(window.sent..until) {
                    said.push_str(new);
                    window.sent = until;
                }
            };
            for id in &ids {
                window.ids.push(*id);
                let text = decode(&window.ids);
                let whole = text.trim_end_matches('\u{fffd}').len();
                send(&mut window, &text, text.floor_char_boundary(whole.saturating_sub(held)));
                window.narrow(&text, |ids| Some(decode(ids)));
                prop_assert!(window.ids.len() < 2 * WINDOW, "{}", window.ids.len());
            }
            let text = decode(&window.ids);
            send(&mut window, &text, text.len());
            prop_assert_eq!(said, decode(&ids));
        }
    }

    #[test]
    fn tokens_are_kept_whose_text_needs_the_ones_before_them() {
        let mut window = Window { ids: vec![0; WINDOW], sent: WINDOW };
        window.narrow(&"a".repeat(WINDOW), |_| Some("b".to_owned()));
        assert_eq!(window.ids.len(), WINDOW, "their text is another one");
        let mut window = Window { ids: vec![0; WINDOW], sent: 0 };
        window.narrow(&"a".repeat(WINDOW), |ids| Some("a".repeat(ids.len())));
        assert_eq!(window.ids.len(), WINDOW, "nothing was sent");
        let mut window = Window { ids: vec![0; WINDOW], sent: WINDOW - 3 };
        window.narrow(&"a".repeat(WINDOW), |ids| Some("a".repeat(ids.len())));
        assert_eq!((window.ids.len(), window.sent), (KEPT, KEPT - 3), "three bytes are held back");
    }

    #[test]
    fn only_a_possible_stop_sequence_is_held_back() {
        assert_eq!(begun("go STO", "STOP"), 3);
        assert_eq!(begun("go S T", "STOP"), 0);
        assert_eq!(begun("ü", "üx"), 2);
    }
}
