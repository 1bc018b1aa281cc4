//! Encodes a conversation. A user's text never becomes control tokens: `<|im_end|>` in a message is ten characters.

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_template::{Conversation, Message, defuse};
use llama_cpp_2::token::LlamaToken;

use crate::model::{Model, token_text};

/// Encloses the number of a message in a rendering with numbers in place of texts. From the private use area.
const MARK: char = '\u{f8f7}';

/// Returns the tokens of the prompt for a conversation. `now` is the time in seconds since 1970.
pub fn encode(model: &Model, conversation: &Conversation, now: i64) -> Result<Vec<LlamaToken>, Failure> {
    let Conversation { messages, tools } = conversation;
    // A template may take functions and calls apart, so their texts cannot be marked: they must not contain control tokens.
    let parts = tools.iter().chain(messages.iter().flat_map(|message| &message.calls));
    if !parts.map(ToString::to_string).all(|part| is_harmless(model, &part)) {
        let refusal = "a function or a call of one contains text that the model reads as control tokens";
        return Err(Failure::of_job(FailureCode::InvalidInput, refusal));
    }
    let rendered = model.template.render(conversation, now)?;
    let rendered = without_bos(model, &rendered);
    let harmless = messages.iter().all(|message| is_harmless(model, &message.content));
    if harmless {
        return Ok(with_bos(model, tokenize(model, rendered, true)));
    }
    if let Some(pieces) = marked_pieces(model, conversation, rendered, now) {
        let tokens = pieces.iter().flat_map(|(text, ours)| tokenize(model, text, *ours)).collect();
        return Ok(with_bos(model, tokens));
    }
    encode_defused(model, conversation, now)
}

/// Encodes text that the model wrote. It contains no control tokens.
pub fn written(model: &Model, text: &str) -> Vec<LlamaToken> {
    tokenize(model, text, false)
}

/// Whether a text has the same tokens with and without control tokens.
fn is_harmless(model: &Model, text: &str) -> bool {
    tokenize(model, text, true) == tokenize(model, text, false)
}

/// The rendered prompt in pieces, each from the template or a user; `None` if the template changes the texts.
fn marked_pieces(
    model: &Model,
    conversation: &Conversation,
    rendered: &str,
    now: i64,
) -> Option<Vec<(String, bool)>> {
    let messages = &conversation.messages;
    let mark = |(index, message): (usize, &Message)| Message {
        content: format!("{MARK}{index}{MARK}"),
        ..message.clone()
    };
    let marked = messages.iter().enumerate().map(mark).collect();
    let marked = Conversation { messages: marked, tools: conversation.tools.clone() };
    let text = model.template.render(&marked, now).ok()?;
    let text = without_bos(model, &text);
    for prepare in [str::to_owned as fn(&str) -> String, |text: &str| text.trim().to_owned()] {
        let contents: Vec<String> = messages.iter().map(|message| prepare(&message.content)).collect();
        let pieces = split(text, &contents)?;
        let joined: String = pieces.iter().map(|(piece, _)| piece.as_str()).collect();
        if joined == rendered {
            return Some(pieces);
        }
    }
    None
}

/// Splits a rendering at its marks and inserts the contents.
fn split(text: &str, contents: &[String]) -> Option<Vec<(String, bool)>> {
    let mut pieces = Vec::new();
    for (position, part) in text.split(MARK).enumerate() {
        // The number of a message is between the marks of a pair.
        let piece =
            if position % 2 == 0 { part } else { contents.get(part.parse::<usize>().ok()?)?.as_str() };
        if !piece.is_empty() {
            pieces.push((piece.to_owned(), position % 2 == 0));
        }
    }
    Some(pieces)
}

/// For templates that change the texts: text that looks like a control token is broken by an invisible character.
fn encode_defused(model: &Model, conversation: &Conversation, now: i64) -> Result<Vec<LlamaToken>, Failure> {
    let mut defused = conversation.clone();
    for message in &mut defused.messages {
        message.content = defuse(&message.content, model.specials.iter().map(String::as_str));
        if !is_harmless(model, &message.content) {
            let refusal = "a message contains text that the model reads as control tokens";
            return Err(Failure::of_job(FailureCode::InvalidInput, refusal));
        }
    }
    let rendered = model.template.render(&defused, now)?;
    Ok(with_bos(model, tokenize(model, without_bos(model, &rendered), true)))
}

/// If the template writes the first token and the vocabulary adds it, one is removed.
fn without_bos<'a>(model: &Model, rendered: &'a str) -> &'a str {
    let vocab = model.llama.vocab();
    let bos = token_text(&model.llama, vocab.bos());
    if vocab.should_add_bos() && !bos.is_empty() {
        rendered.strip_prefix(bos.as_str()).unwrap_or(rendered)
    } else {
        rendered
    }
}

fn with_bos(model: &Model, tokens: Vec<LlamaToken>) -> Vec<LlamaToken> {
    let vocab = model.llama.vocab();
    let bos = vocab.should_add_bos().then(|| vocab.bos()).filter(|bos| bos.0 >= 0);
    bos.into_iter().chain(tokens).collect()
}

fn tokenize(model: &Model, text: &str, parse_special: bool) -> Vec<LlamaToken> {
    if text.is_empty() {
        return Vec::new();
    }
    model.llama.vocab().tokenize(text.as_bytes(), false, parse_special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_replaced_by_the_contents() {
        let text = format!("a{MARK}1{MARK}b{MARK}0{MARK}");
        let contents = ["x".to_owned(), "y".to_owned()];
        let pieces = split(&text, &contents).expect("sound marks");
        let ours: Vec<_> = pieces.iter().map(|(piece, ours)| (piece.as_str(), *ours)).collect();
        assert_eq!(ours, [("a", true), ("y", false), ("b", true), ("x", false)]);
        assert!(split(&format!("{MARK}9{MARK}"), &contents).is_none());
    }
}
