//! Probabilities of tokens, kept until their text is sent.

use std::collections::VecDeque;

use island_protocol::reply::{Logprob, TokenLogprob};
use llama_cpp_2::vocab::LlamaVocab;

use crate::sampling::{Probabilities, TokenProbability};

/// Lowest logarithm that is reported: JSON has no infinity.
const LOWEST: f64 = -9999.0;

/// Probabilities of tokens whose text was not sent yet.
#[derive(Debug, Default)]
pub struct Pending {
    /// Each with the length of the text of the answer that became complete with it, bytes. It is not that of its own bytes where these are a
    /// part of a character or of what may be a delimiter, or none.
    tokens: VecDeque<(usize, TokenLogprob)>,
    /// Bytes of sent text that belong to no token yet.
    sent: usize,
}

impl Pending {
    /// Adds a chosen token, with which a text of the answer of this length became complete.
    pub fn push(&mut self, probabilities: &Probabilities, vocab: &LlamaVocab<'_>, length: usize) {
        let read = |&(token, logprob): &TokenProbability| {
            let bytes = vocab.token_to_piece(token, true, None);
            logprob_of(bytes, logprob)
        };
        let top_logprobs = probabilities.top.iter().map(read).collect();
        self.tokens.push_back((length, TokenLogprob { token: read(&probabilities.chosen), top_logprobs }));
    }

    /// Drops the tokens without a text at the end: with the newest one, which is not added, they are a delimiter of the reasoning.
    pub fn leave_out(&mut self) {
        while self.tokens.back().is_some_and(|(length, _)| *length == 0) {
            self.tokens.pop_back();
        }
    }

    /// Takes the tokens whose text is whole within what was sent, `text` included.
    pub fn take(&mut self, text: &str) -> Vec<TokenLogprob> {
        if self.tokens.is_empty() {
            return Vec::new();
        }
        self.sent += text.len();
        let mut taken = Vec::new();
        // Tokens without a text belong to the next one with a text.
        while let Some(next) = self.tokens.iter().position(|(length, _)| *length > 0) {
            let length = self.tokens[next].0;
            if length > self.sent {
                break;
            }
            self.sent -= length;
            taken.extend(self.tokens.drain(..=next).map(|(_, token)| token));
        }
        taken
    }

    /// Takes all tokens.
    pub fn take_all(&mut self) -> Vec<TokenLogprob> {
        self.sent = 0;
        self.tokens.drain(..).map(|(_, token)| token).collect()
    }
}

fn logprob_of(bytes: Vec<u8>, logprob: f64) -> Logprob {
    Logprob { token: String::from_utf8_lossy(&bytes).into_owned(), logprob: logprob.max(LOWEST), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Characters;

    fn pending(tokens: &[&[u8]]) -> Pending {
        let mut characters = Characters::default();
        let mut token = |bytes: &&[u8]| {
            let token = logprob_of(bytes.to_vec(), -0.5);
            (characters.push(bytes).len(), TokenLogprob { token, top_logprobs: Vec::new() })
        };
        Pending { tokens: tokens.iter().map(&mut token).collect(), sent: 0 }
    }

    fn texts(taken: Vec<TokenLogprob>) -> Vec<String> {
        taken.into_iter().map(|taken| taken.token.token).collect()
    }

    #[test]
    fn tokens_are_taken_with_their_text() {
        let mut pending = pending(&[b"He", b"llo", b" END"]);
        assert_eq!(texts(pending.take("Hel")), ["He"]);
        assert_eq!(texts(pending.take("lo ")), ["llo"]);
        assert_eq!(texts(pending.take("x")), Vec::<String>::new(), "the rest of the token is not sent");
        assert_eq!(texts(pending.take_all()), [" END"]);
    }

    #[test]
    fn bytes_of_a_divided_character_are_tokens_of_their_own() {
        let mut pending = pending(&["é".as_bytes().split_at(1).0, "é".as_bytes().split_at(1).1]);
        let taken = pending.take("é");
        assert_eq!(
            taken.iter().map(|taken| taken.token.bytes.clone()).collect::<Vec<_>>(),
            [vec![0xc3], vec![0xa9]]
        );
        assert_eq!(taken[0].token.token, "\u{fffd}");
    }

    #[test]
    fn an_invalid_byte_is_as_long_as_what_stands_for_it() {
        let mut pending = pending(&[b"\xff", b"ab", b"cd"]);
        let taken = pending.take("\u{fffd}");
        assert_eq!(taken.iter().map(|taken| taken.token.bytes.clone()).collect::<Vec<_>>(), [vec![0xff]]);
        assert_eq!(texts(pending.take("abc")), ["ab"]);
        assert_eq!(texts(pending.take("d")), ["cd"]);
    }

    #[test]
    fn a_delimiter_in_several_tokens_is_left_out() {
        let mut pending = pending(&[b"Yes", b"", b""]);
        pending.leave_out();
        assert_eq!(texts(pending.take_all()), ["Yes"]);
    }

    #[test]
    fn infinity_has_a_number() {
        assert_eq!(logprob_of(Vec::new(), f64::NEG_INFINITY).logprob, LOWEST);
    }
}
