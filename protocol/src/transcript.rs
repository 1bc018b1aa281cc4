//! Words and segments of a transcript, with their times.

use serde::{Deserialize, Serialize};

/// A part of a transcript with its times in seconds: a word, or a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// When it begins.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// The text.
    pub text: String,
}

/// A pause that ends a segment, seconds.
const PAUSE_S: f64 = 0.5;
/// Maximum duration of a segment of several words, seconds.
const LONGEST_S: f64 = 10.0;

/// The segments that the words of a transcript form, for models that give times of words alone: a segment ends at a pause, and before it becomes too
/// long for a caption. Its words have spaces between them where `text`, the whole transcript, has: languages without spaces have none.
pub fn segments_of(words: &[Span], text: &str) -> Vec<Span> {
    let mut segments: Vec<Span> = Vec::new();
    let mut rest = text;
    for word in words {
        let here = rest.trim_start();
        let is_spaced = here.len() < rest.len();
        let after = here.strip_prefix(word.text.as_str());
        rest = after.unwrap_or(rest);
        let joins = |last: &&mut Span| word.start - last.end < PAUSE_S && word.end - last.start <= LONGEST_S;
        match segments.last_mut().filter(joins) {
            Some(last) => {
                last.end = word.end;
                if is_spaced || after.is_none() {
                    last.text.push(' ');
                }
                last.text.push_str(&word.text);
            }
            None => segments.push(word.clone()),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(words: &[(f64, f64, &str)]) -> Vec<(f64, f64, String)> {
        let span = |&(start, end, text): &(f64, f64, &str)| Span { start, end, text: text.to_owned() };
        let words: Vec<Span> = words.iter().map(span).collect();
        let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        segments_of(&words, &text).into_iter().map(|span| (span.start, span.end, span.text)).collect()
    }

    #[test]
    fn words_form_segments_up_to_a_pause() {
        let found = segments(&[(0.0, 0.5, "Hi"), (0.6, 1.0, "there"), (1.5, 2.0, "friend")]);
        assert_eq!(found, [(0.0, 1.0, "Hi there".to_owned()), (1.5, 2.0, "friend".to_owned())]);
        assert!(segments(&[]).is_empty());
    }

    #[test]
    fn words_are_joined_as_in_the_text() {
        let joined = |words: &[&str], text: &str| {
            let span = |text: &&str| Span { start: 0.0, end: 0.1, text: (*text).to_owned() };
            let words: Vec<Span> = words.iter().map(span).collect();
            segments_of(&words, text).into_iter().map(|span| span.text).collect::<Vec<_>>()
        };
        assert_eq!(joined(&["猫が", "好き", "です。"], "猫が好きです。"), ["猫が好きです。"]);
        assert_eq!(joined(&["a", "well", "-known", "cat"], "a well-known  cat"), ["a well-known cat"]);
        assert_eq!(joined(&["a", "b"], "A B"), ["a b"], "words of another text");
    }

    #[test]
    fn a_segment_of_several_words_has_a_limit() {
        let word = |at: u8| (f64::from(at), f64::from(at) + 0.9, "a");
        let words: Vec<(f64, f64, &str)> = (0..25).map(word).collect();
        let found = segments(&words);
        assert_eq!(found.iter().map(|(start, ..)| *start).collect::<Vec<_>>(), [0.0, 10.0, 20.0]);
        assert_eq!(segments(&[(0.0, 61.0, "long"), (61.1, 62.0, "end")]).len(), 2);
    }
}
