//! Converts token bytes to text that is split only between characters.

/// Joins the bytes of tokens to characters. An incomplete character waits for its remaining bytes.
#[derive(Debug, Default)]
pub struct Characters {
    waiting: Vec<u8>,
}

impl Characters {
    /// Adds bytes and returns the characters that are now complete. Invalid bytes become `U+FFFD`.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.waiting.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.waiting) {
                Ok(all) => {
                    text.push_str(all);
                    self.waiting.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.waiting.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(invalid) = error.error_len() else {
                        self.waiting = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.waiting = rest[invalid..].to_vec();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_cut_gives_the_same_text(text in "\\PC{0,40}", cuts in proptest::collection::vec(1_usize..5, 1..60)) {
            let mut characters = Characters::default();
            let (mut joined, mut rest) = (String::new(), text.as_bytes());
            for cut in cuts.into_iter().chain(std::iter::repeat(3)) {
                if rest.is_empty() { break }
                let (part, after) = rest.split_at(cut.min(rest.len()));
                joined.push_str(&characters.push(part));
                rest = after;
            }
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn invalid_bytes_are_replaced_as_in_the_standard_library(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut characters = Characters::default();
            let mut joined: String = bytes.iter().map(|byte| characters.push(&[*byte])).collect();
            joined.push_str(&String::from_utf8_lossy(&characters.waiting));
            prop_assert_eq!(joined, String::from_utf8_lossy(&bytes));
        }
    }
}
