//! A text as ids of its characters, in the form on which the model was trained.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    repository::Repository,
};
use unicode_normalization::UnicodeNormalization as _;

const FILES: [&str; 2] = ["onnx/unicode_indexer.json", "unicode_indexer.json"];

/// Ids of characters.
#[derive(Debug)]
pub(super) struct Letters {
    /// By the number of the character; negative if it is unknown.
    ids: Vec<i64>,
}

impl Letters {
    /// The characters of a repository, which must be able to mark these languages.
    pub(super) fn load(repository: &Repository, languages: &[String]) -> Result<Self, EngineError> {
        let name = FILES.iter().find(|name| repository.path(name).is_some());
        let name = name.ok_or_else(|| invalid_model(format!("the repository has no {}", FILES[0])))?;
        let list = repository.bytes(name)?.unwrap_or_default();
        let ids: Vec<i64> = serde_json::from_slice(&list)
            .map_err(|error| invalid_model(format!("{name} must be a list of ids")).because(error))?;
        let letters = Self { ids };
        let marks = languages.iter().flat_map(|language| language.chars()).chain("<>/".chars());
        let unknown = marks.filter(|mark| letters.id(*mark).is_none()).find(|_| !languages.is_empty());
        match unknown.or_else(|| letters.id('.').is_none().then_some('.')) {
            Some(mark) => Err(invalid_model(format!("{name} has no id for {mark:?}"))),
            None => Ok(letters),
        }
    }

    fn id(&self, letter: char) -> Option<i64> {
        self.ids.get(letter as usize).copied().filter(|id| *id >= 0)
    }

    /// The ids of a text. `None` if it has no known letter or digit. Unknown characters are left out.
    pub(super) fn read(&self, text: &str, language: Option<&str>) -> Option<Vec<i64>> {
        let plain = simple(text);
        let known: String =
            plain.chars().filter(|letter| letter.is_whitespace() || self.id(*letter).is_some()).collect();
        let text = closed(tidy(&known));
        if !text.chars().any(char::is_alphanumeric) {
            return None;
        }
        let text = match language {
            Some(language) => format!("<{language}>{text}</{language}>"),
            None => text,
        };
        Some(text.chars().filter_map(|letter| self.id(letter)).collect())
    }
}

/// A text without symbols and abbreviations that are not spoken as they are written, its accents apart from their letters.
fn simple(text: &str) -> String {
    let text: String = text.nfkd().filter(|letter| !is_emoji(*letter)).filter_map(plain).collect();
    text.replace('@', " at ").replace("e.g.,", "for example, ").replace("i.e.,", "that is, ")
}

fn is_emoji(letter: char) -> bool {
    matches!(
        letter,
        '\u{1f1e6}'..='\u{1f1ff}' | '\u{1f300}'..='\u{1f64f}' | '\u{1f680}'..='\u{1faff}' | '\u{2600}'..='\u{27bf}'
    )
}

/// The usual character for one that means the same; `None` for decorations.
fn plain(letter: char) -> Option<char> {
    Some(match letter {
        '♥' | '☆' | '♡' | '©' | '\\' => return None,
        '–' | '‑' | '—' => '-',
        '“' | '”' => '"',
        '‘' | '’' | '´' | '`' => '\'',
        '¯' | '_' | '[' | ']' | '|' | '/' | '#' | '→' | '←' => ' ',
        letter => letter,
    })
}

/// One space between words, none before marks, one of several equal quotation marks.
fn tidy(text: &str) -> String {
    let mut tidy = text.to_owned();
    for mark in [',', '.', '!', '?', ';', ':', '\''] {
        tidy = tidy.replace(&format!(" {mark}"), &mark.to_string());
    }
    let mut last = None;
    tidy.retain(|letter| {
        let is_repeated = matches!(letter, '"' | '\'') && last.replace(letter) == Some(letter);
        last = Some(letter);
        !is_repeated
    });
    tidy.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// With a mark at the end.
fn closed(mut text: String) -> String {
    let ends = ".!?;:,'\")]}…。」』】〉》›»";
    if !text.ends_with(|letter| ends.contains(letter)) {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by the package of the model's authors.
    #[test]
    fn texts_are_brought_into_their_form() {
        for (text, form) in [
            ("  The  sea\nis calm ", "The sea is calm."),
            ("Café – “nice” ‘x’", "Cafe\u{301} - \"nice\"'x'"),
            ("Write to a@b , e.g., now !", "Write to a at b, for example, now!"),
            ("so 🙂🙂 ''good'' ☆", "so 'good'"),
            ("end…", "end..."),
            ("a/b #c [d]_e", "a b c d e."),
        ] {
            assert_eq!(closed(tidy(&simple(text))), form, "{text:?}");
        }
    }

    #[test]
    fn unknown_characters_are_left_out() {
        let mut ids = vec![-1; 128];
        for (id, letter) in "abc <>/en.".chars().enumerate() {
            ids[letter as usize] = id as i64;
        }
        let letters = Letters { ids };
        assert_eq!(letters.read("a中b", None), Some(vec![0, 1, 9]));
        assert_eq!(letters.read("c", Some("en")), Some(vec![4, 7, 8, 5, 2, 9, 4, 6, 7, 8, 5]));
        assert_eq!(letters.read("中 . !", Some("en")), None);
    }
}
