//! Decodes a growing list of tokens in time that grows with its length alone.

/// Number of tokens from which on the first ones are dropped.
const WINDOW: usize = 64;
/// Number of tokens that are kept then. Some tokens have another text at the beginning than after others.
const KEPT: usize = 16;

/// The last tokens of a text, all of which are decoded with each further one, since a character may have several tokens. Decoding the whole
/// text each time takes time that grows with the square of its length.
#[derive(Debug, Default)]
pub struct Window {
    ids: Vec<u32>,
    /// The beginning of their text that was returned.
    returned: String,
}

impl Window {
    /// The window of a text that begins with these tokens.
    pub fn after(begin: &[u32]) -> Self {
        Self { ids: begin.to_vec(), returned: String::new() }
    }

    /// Adds a token. Returns the text that is new among the first bytes of the window's text, as many as `certain` returns. Nothing is returned
    /// twice, unless a token changes text that was certain.
    pub fn push(
        &mut self,
        token: u32,
        decode: impl Fn(&[u32]) -> Option<String>,
        certain: impl FnOnce(&str) -> usize,
    ) -> String {
        self.ids.push(token);
        let Some(text) = decode(&self.ids) else { return String::new() };
        let new = self.advance(&text[..certain(&text)]);
        self.narrow(&text, decode);
        new
    }

    /// The text that was not returned, if no token follows. An error if the tokens cannot be decoded.
    pub fn finish<E>(mut self, decode: impl FnOnce(&[u32]) -> Result<String, E>) -> Result<String, E> {
        let text = decode(&self.ids)?;
        Ok(self.advance(&text))
    }

    fn advance(&mut self, certain: &str) -> String {
        // The bytes of a character may be read otherwise until its last one arrives.
        if self.returned.starts_with(certain) {
            return String::new();
        }
        // Where a token changes text that was returned, the rest follows what both have in common: nothing is lost.
        let common = common(&self.returned, certain);
        self.returned.truncate(common);
        self.returned.push_str(&certain[common..]);
        certain[common..].to_owned()
    }

    /// Drops the first of too many tokens, if their text was returned and the last ones have the same text without them; else a later call
    /// does. `text` is that of all.
    fn narrow(&mut self, text: &str, decode: impl FnOnce(&[u32]) -> Option<String>) {
        if self.ids.len() < WINDOW {
            return;
        }
        let Some(rest) = text.strip_prefix(self.returned.as_str()) else { return };
        let dropped = self.ids.len() - KEPT;
        let kept = decode(&self.ids[dropped..]).filter(|kept| text.ends_with(kept.as_str()));
        let returned = kept.as_deref().and_then(|kept| kept.strip_suffix(rest));
        // Without text that was returned, a space at the beginning could be missing from what follows.
        if let Some(returned) = returned.filter(|returned| !returned.is_empty()) {
            self.ids.drain(..dropped);
            self.returned = returned.to_owned();
        }
    }
}

/// Number of bytes at the beginning that two texts have in common.
fn common(one: &str, other: &str) -> usize {
    let mut letters = one.char_indices().zip(other.chars());
    let different = letters.find(|((_, letter), other)| letter != other);
    different.map_or(one.len().min(other.len()), |((at, _), _)| at)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// Tokens as of a byte-level vocabulary without a space at the beginning of a text: letters, words, and bytes of characters.
    const PIECES: [&[u8]; 7] = [b"a", b" b", b" word", b"\xc3", b"\xbc", b"\xe2\x82", b"\xac."];

    fn decode(ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| PIECES[*id as usize]).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        text.strip_prefix(' ').unwrap_or(&text).to_owned()
    }

    /// Length of a text without an incomplete character and without `held` bytes at its end.
    fn certain(text: &str, held: usize) -> usize {
        let whole = text.trim_end_matches('\u{fffd}').len();
        text.floor_char_boundary(whole.saturating_sub(held))
    }

    proptest! {
        /// A window over the last tokens returns the text of all.
        #[test]
        fn what_a_window_returns_is_the_whole_text(
            ids in prop::collection::vec(0_u32..PIECES.len() as u32, 0..600),
            begin in 0_usize..3,
            held in 0_usize..9,
        ) {
            let (begin, pushed) = ids.split_at(begin.min(ids.len()));
            let mut window = Window::after(begin);
            let mut text = String::new();
            for id in pushed {
                text += &window.push(*id, |ids| Some(decode(ids)), |text| certain(text, held));
                prop_assert!(window.ids.len() < 2 * WINDOW, "{}", window.ids.len());
            }
            text += &window.finish(|ids| Ok::<_, ()>(decode(ids))).expect("text");
            prop_assert_eq!(text, decode(&ids));
        }
    }

    #[test]
    fn the_number_of_decoded_tokens_grows_with_the_length_of_the_text() {
        let decoded = |length: usize| {
            let (mut window, count) = (Window::default(), Cell::new(0));
            let counting = |ids: &[u32]| {
                count.set(count.get() + ids.len());
                Some(decode(ids))
            };
            (0..length).for_each(|at| drop(window.push(at as u32 % 3, counting, |text| certain(text, 2))));
            count.get()
        };
        let (short, long) = (decoded(1_000), decoded(10_000));
        assert!(long <= 11 * short, "{long} against {short}");
        assert!(long <= 10_000 * (WINDOW + KEPT), "{long}");
    }

    #[test]
    fn tokens_are_kept_whose_text_needs_the_ones_before_them() {
        let of = |returned: usize| Window { ids: vec![0; WINDOW], returned: "a".repeat(returned) };
        let mut window = of(WINDOW);
        window.narrow(&"a".repeat(WINDOW), |_| Some("b".to_owned()));
        assert_eq!(window.ids.len(), WINDOW, "their text is another one");
        let mut window = of(0);
        window.narrow(&"a".repeat(WINDOW), |ids| Some("a".repeat(ids.len())));
        assert_eq!(window.ids.len(), WINDOW, "nothing was returned");
        let mut window = of(WINDOW - 3);
        window.narrow(&"a".repeat(WINDOW), |ids| Some("a".repeat(ids.len())));
        assert_eq!((window.ids.len(), window.returned.len()), (KEPT, KEPT - 3), "three bytes are held back");
    }

    #[test]
    fn text_after_a_change_is_not_lost() {
        let texts = ["it '", "it", "it's", "it's so"];
        let mut window = Window::default();
        let push = |token: u32| window.push(token, |ids| Some(texts[ids.len() - 1].to_owned()), str::len);
        assert_eq!([0, 1, 2, 3].map(push), ["it '", "", "'s", " so"]);
        assert_eq!(common("it '", "it's"), 2);
        assert_eq!(common("\u{fc}", "\u{fc}b"), 2);
    }
}
