//! Divides a text into the pieces that jobs speak.

/// Maximum number of characters of a piece.
const PIECE: usize = 500;
/// Maximum number of characters of the first piece of a text that has several.
const FIRST: usize = 150;

/// The pieces of a text, each with something to speak. They end at the ends of sentences where they can, then between words.
pub(super) fn of(text: &str) -> Vec<String> {
    let text = text.trim();
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_short = rest.chars().nth(PIECE).is_none();
        let size = if pieces.is_empty() && !is_short { FIRST } else { PIECE };
        let at = if is_short { rest.len() } else { cut(rest, size) };
        let (piece, after) = rest.split_at(at);
        if piece.chars().any(char::is_alphanumeric) {
            pieces.push(piece.trim().to_owned());
        }
        rest = after.trim_start();
    }
    pieces
}

/// Where to end a piece of at most `size` characters.
fn cut(text: &str, size: usize) -> usize {
    let end = text.char_indices().nth(size).map_or(text.len(), |(end, _)| end);
    let within = &text[..end];
    let is_stop = |mark: char| matches!(mark, '.' | '!' | '?' | '…' | ':' | ';' | '\n' | '。' | '！' | '？');
    let follows = |mark: char| mark.is_whitespace() || matches!(mark, '。' | '！' | '？');
    let mut marks = within.char_indices().zip(text.chars().skip(1));
    let sentence = marks
        .by_ref()
        .filter(|((_, mark), next)| is_stop(*mark) && (follows(*next) || follows(*mark)))
        .last()
        .map(|((at, mark), _)| at + mark.len_utf8());
    let word = || within.rfind(char::is_whitespace).filter(|&at| at > 0);
    sentence.or_else(word).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_short_and_lose_no_word(text in "([a-zé]{1,30}[.!?]? ?\\n?){0,80}") {
            let pieces = of(&text);
            prop_assert!(pieces.iter().all(|piece| (1..=PIECE).contains(&piece.chars().count())));
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(letters(&pieces.concat()), letters(&text));
        }
    }

    #[test]
    fn a_short_text_is_one_piece_and_a_long_one_begins_with_a_short_one() {
        assert_eq!(of(" One sentence. Another one. "), ["One sentence. Another one."]);
        let long = "This is the first sentence. ".repeat(30);
        let pieces = of(&long);
        assert!(pieces.len() > 1 && pieces[0].len() <= FIRST, "{pieces:?}");
        assert!(pieces.iter().all(|piece| piece.ends_with("sentence.")), "{pieces:?}");
        assert_eq!(of("…"), Vec::<String>::new(), "nothing to speak");
        assert_eq!(
            of(&"海は静かです。".repeat(100)).iter().filter(|piece| !piece.ends_with('。')).count(),
            0
        );
        assert_eq!(of(&"x".repeat(1200)).len(), 4, "150, 500, 500 and the rest");
    }
}
