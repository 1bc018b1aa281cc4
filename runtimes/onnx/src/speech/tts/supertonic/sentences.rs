//! A long text as the parts that are spoken one after the other.

/// Words with a full stop that ends no sentence.
const ABBREVIATIONS: [&str; 19] = [
    "Mr.", "Mrs.", "Ms.", "Dr.", "Prof.", "Sr.", "Jr.", "Ph.D.", "etc.", "e.g.", "i.e.", "vs.", "Inc.",
    "Ltd.", "Co.", "Corp.", "St.", "Ave.", "Blvd.",
];

/// Whole sentences of one paragraph with together at most `most` characters. Longer sentences end between words.
pub(super) fn of(text: &str, most: usize) -> Vec<String> {
    let mut parts = Vec::new();
    for paragraph in paragraphs(text) {
        let mut part = String::new();
        for sentence in sentences(&paragraph).into_iter().flat_map(|sentence| words(&sentence, most)) {
            if !part.is_empty() && part.chars().count() + sentence.chars().count() + 1 > most {
                parts.push(std::mem::take(&mut part));
            }
            if !part.is_empty() {
                part.push(' ');
            }
            part.push_str(&sentence);
        }
        if !part.is_empty() {
            parts.push(part);
        }
    }
    parts
}

/// What empty lines separate.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in text.lines() {
        match paragraphs.last_mut() {
            Some(last) if !line.trim().is_empty() => {
                last.push_str(line);
                last.push('\n');
            }
            _ => paragraphs.push(String::new()),
        }
    }
    paragraphs
        .iter()
        .map(|paragraph| paragraph.trim().to_owned())
        .filter(|paragraph| !paragraph.is_empty())
        .collect()
}

fn sentences(paragraph: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut begin = 0;
    for (at, letter) in paragraph.char_indices() {
        let before = &paragraph[begin..at];
        if letter.is_whitespace() && before.ends_with(['.', '!', '?']) && !is_abbreviated(&paragraph[..at]) {
            sentences.push(before.trim().to_owned());
            begin = at;
        }
    }
    sentences.push(paragraph[begin..].trim().to_owned());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

/// Whether a text ends with an abbreviation, such as a title or an initial.
fn is_abbreviated(text: &str) -> bool {
    let mut back = text.chars().rev();
    let is_initial = back.next() == Some('.')
        && back.next().is_some_and(|letter| letter.is_ascii_uppercase())
        && !back.next().is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    is_initial || ABBREVIATIONS.iter().any(|abbreviation| text.ends_with(abbreviation))
}

/// A sentence, cut between words where it has more characters, and within words that have more.
fn words(sentence: &str, most: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = sentence;
    while let Some((end, _)) = rest.char_indices().nth(most) {
        let within = &rest[..end];
        let at = within.rfind(char::is_whitespace).filter(|&at| at > 0).unwrap_or(end);
        parts.push(rest[..at].trim().to_owned());
        rest = rest[at..].trim_start();
    }
    parts.push(rest.to_owned());
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_end_with_sentences_and_paragraphs() {
        let text = "Dr. A. Smith came. He sat down! Why? \n\n\n Nobody knows, e.g. why. ";
        assert_eq!(of(text, 300), ["Dr. A. Smith came. He sat down! Why?", "Nobody knows, e.g. why."]);
        assert_eq!(of(text, 20), ["Dr. A. Smith came.", "He sat down! Why?", "Nobody knows, e.g.", "why."]);
        assert_eq!(of("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(of(&"x".repeat(25), 10).len(), 3);
    }

    proptest! {
        #[test]
        fn no_word_is_lost(text in "([a-zA-Zé]{1,9}[.!?,]?[ \n]{0,3}){0,60}", most in 10_usize..80) {
            let parts = of(&text, most);
            prop_assert!(parts.iter().all(|part| (1..=most).contains(&part.chars().count())), "{:?}", parts);
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(letters(&parts.concat()), letters(&text));
        }
    }
}
