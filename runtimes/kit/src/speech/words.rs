//! Words of a text's tokens, by the rules of Whisper's tokenizer: words begin with a space or, in languages without spaces, with any character;
//! signs belong to the word beside them.

use std::{mem, ops::Range};

use crate::error::EngineError;

/// Codes of languages that are written without spaces.
const UNSPACED: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];
/// Signs that are a word of their own before they are joined.
const SIGNS: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// Signs that belong to the word after them.
const OPENING: &str = "\"'“¡¿([{-";
/// Signs that belong to the word before them.
const CLOSING: &str = "\"'.。,，!！?？:：”)]}、";

/// A word, with the spaces around it, and the range of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its text; not empty.
    pub text: String,
    /// Indices of its tokens; not empty.
    pub tokens: Range<usize>,
}

/// Whether words of this language have spaces between them. A model of one language speaks English.
pub fn are_spaced(language: Option<&str>) -> bool {
    language.is_none_or(|code| !UNSPACED.contains(&code))
}

/// Text of tokens.
pub type Decode<'d> = dyn Fn(&[u32]) -> Result<String, EngineError> + 'd;

/// The words of tokens.
pub fn of(ids: &[u32], is_spaced: bool, decode: &Decode<'_>) -> Result<Vec<Word>, EngineError> {
    let mut words = pieces(ids, decode)?;
    if is_spaced {
        words = joined(words);
    }
    with_opening(&mut words);
    with_closing(&mut words);
    words.retain(|word| !word.text.is_empty());
    Ok(words)
}

/// The shortest sequences of tokens that are whole characters. The reference, too, loses the rest of a text that ends within one.
fn pieces(ids: &[u32], decode: &Decode<'_>) -> Result<Vec<Word>, EngineError> {
    /// Stands for what is not a character: a part of one, or any bytes.
    const UNKNOWN: char = '\u{fffd}';
    let whole: Vec<char> = decode(ids)?.chars().collect();
    let (mut pieces, mut begin, mut read) = (Vec::new(), 0, 0);
    for end in 1..=ids.len() {
        let text = decode(&ids[begin..end])?;
        let unknown = text.chars().position(|character| character == UNKNOWN);
        // What the whole text does not know either is not completed by the next token.
        if unknown.is_none_or(|place| whole.get(read + place) == Some(&UNKNOWN)) {
            read += text.chars().count();
            pieces.push(Word { text, tokens: begin..end });
            begin = end;
        }
    }
    Ok(pieces)
}

/// Joins pieces up to the next space or sign.
fn joined(pieces: Vec<Word>) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for piece in pieces {
        let begins = piece.text.starts_with(' ') || SIGNS.contains(piece.text.trim());
        match words.last_mut().filter(|_| !begins) {
            Some(word) => {
                word.text.push_str(&piece.text);
                word.tokens.end = piece.tokens.end;
            }
            None => words.push(piece),
        }
    }
    words
}

/// Moves signs that follow a space to the word after them, and leaves an empty word.
fn with_opening(words: &mut [Word]) {
    let last = words.len().saturating_sub(1);
    let mut after = last;
    for place in (0..last).rev() {
        let text = &words[place].text;
        if !text.starts_with(' ') || !OPENING.contains(text.trim()) {
            after = place;
            continue;
        }
        let sign = mem::take(&mut words[place].text);
        words[after].text.insert_str(0, &sign);
        words[after].tokens.start = words[place].tokens.start;
    }
}

/// Moves signs to the word before them, and leaves an empty word.
fn with_closing(words: &mut [Word]) {
    let mut before = 0;
    for place in 1..words.len() {
        if words[before].text.ends_with(' ') || !CLOSING.contains(words[place].text.as_str()) {
            before = place;
            continue;
        }
        let sign = mem::take(&mut words[place].text);
        if sign.is_empty() {
            continue;
        }
        let tokens = words[place].tokens.clone();
        let word = &mut words[before];
        if word.text.is_empty() {
            word.tokens.start = tokens.start;
        }
        word.text.push_str(&sign);
        word.tokens.end = tokens.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of tokens, as those of Whisper: parts of characters, and a byte that is not a part.
    const TOKENS: &[u8] =
        b" Hello|,| \"|no|\"| well|-|known| caf|\xc3|\xa9|!|\xff| | (|\xe7\x8c|\xab|\xe3\x81\x8c|\xe3\x80\x82| a |.";

    fn words(ids: &[u32], is_spaced: bool) -> Vec<(String, Range<usize>)> {
        let decode = |ids: &[u32]| {
            let tokens: Vec<&[u8]> = TOKENS.split(|&byte| byte == b'|').collect();
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokens[id as usize]).copied().collect();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let words = of(ids, is_spaced, &decode).expect("decodable");
        words.into_iter().map(|word| (word.text, word.tokens)).collect()
    }

    fn are(ids: &[u32], is_spaced: bool, wanted: &[(&str, Range<usize>)]) {
        let owned = |(text, tokens): &(&str, Range<usize>)| ((*text).to_owned(), tokens.clone());
        let wanted: Vec<(String, Range<usize>)> = wanted.iter().map(owned).collect();
        assert_eq!(words(ids, is_spaced), wanted);
    }

    // The words are those of `_combine_tokens_into_words` of transformers 4.57.

    #[test]
    fn signs_belong_to_the_word_beside_them() {
        are(&[0, 1, 2, 3, 4], true, &[(" Hello,", 0..2), (" \"no\"", 2..5)]);
        are(&[5, 6, 7, 11], true, &[(" well", 0..1), ("-known!", 1..4)]);
        are(&[3, 13, 0, 13], true, &[("no", 0..1), ("  Hello", 1..3), (" ", 3..4)]);
        are(&[19, 20], true, &[(" a ", 0..1), (".", 1..2)]);
        are(&[], true, &[]);
    }

    #[test]
    fn languages_without_spaces_are_split_at_characters() {
        are(&[14, 15, 16, 17, 18], true, &[(" (猫が。", 0..5)]);
        are(&[14, 15, 16, 17, 18], false, &[(" (猫", 0..3), ("が。", 3..5)]);
        are(&[8, 9, 10, 11], false, &[(" caf", 0..1), ("é!", 1..4)]);
        assert!(["zh", "ja", "th", "lo", "my", "yue"].iter().all(|code| !are_spaced(Some(code))));
        assert!(are_spaced(Some("de")) && are_spaced(None));
    }

    #[test]
    fn bytes_that_are_no_character_are_not_waited_for() {
        are(&[8, 12, 3], true, &[(" caf\u{fffd}no", 0..3)]);
        are(&[8, 12, 3], false, &[(" caf", 0..1), ("\u{fffd}", 1..2), ("no", 2..3)]);
        are(&[0, 15], false, &[(" Hello", 0..1), ("\u{fffd}", 1..2)]);
    }
}
