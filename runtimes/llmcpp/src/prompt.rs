//! Encodes a conversation. A user's text never becomes control tokens: `<|im_end|>` in a message is ten characters.

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_template::{Conversation, Message, defuse};
use llama_cpp_2::token::LlamaToken;

use std::sync::Arc;

use crate::{
    model::{Model, token_text},
    request::RawText,
    vision::{Picture, Placed},
};

/// Encloses the number of a picture or sound in the text of a message. From the private use area; texts of users do not contain it.
pub const MEDIA: char = '\u{f8f6}';
/// Encloses the number of a message in a rendering with numbers in place of texts. From the private use area.
const MARK: char = '\u{f8f7}';

/// An encoded conversation.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Its tokens; placeholders where pictures are.
    pub tokens: Vec<LlamaToken>,
    /// Its pictures, in order.
    pub pictures: Vec<Placed>,
    /// Whether it ends where the reply's reasoning begins.
    pub opens_reasoning: bool,
}

/// Returns the prompt for a conversation with these pictures. `now` is the time in seconds since 1970.
pub fn encode(
    model: &Model,
    conversation: &Conversation,
    pictures: &[Arc<Picture>],
    now: i64,
) -> Result<Prompt, Failure> {
    let Conversation { messages, tools, .. } = conversation;
    // A template may take functions and calls apart, so their texts cannot be marked: they must not contain control tokens.
    let parts = tools
        .iter()
        .chain(messages.iter().flat_map(|message| message.calls.iter().chain(&message.responses)));
    let texts = messages.iter().flat_map(|message| [&message.reasoning, &message.call_id, &message.name]);
    let mut parts = parts.map(ToString::to_string).chain(texts.flatten().cloned());
    if !parts.all(|part| !part.contains(MEDIA) && is_harmless(model, &part)) {
        let refusal =
            "a function, a call, a name or a reasoning contains text that the model reads as control tokens";
        return Err(Failure::of_job(FailureCode::InvalidInput, refusal));
    }
    let rendered = model.template.render(conversation, now)?;
    let opens_reasoning = model.reasoning.is_some_and(|format| format.is_opened_by(&rendered));
    let prompt = |pieces: &[(String, bool)]| {
        let (tokens, pictures) = with_pictures(model, pieces, pictures)?;
        Ok(Prompt { tokens, pictures, opens_reasoning })
    };
    let rendered = without_bos(model, &rendered);
    let harmless = messages.iter().all(|message| is_harmless(model, &message.content));
    if harmless {
        return prompt(&[(rendered.to_owned(), true)]);
    }
    if let Some(pieces) = marked_pieces(model, conversation, rendered, now) {
        return prompt(&pieces);
    }
    prompt(&[(defused(model, conversation, now)?, true)])
}

/// Returns the prompt for text that is not a conversation: the text itself, or what surrounds a gap in the order in which models were trained to
/// fill gaps.
pub fn encode_text(model: &Model, text: &RawText) -> Result<Prompt, Failure> {
    let vocab = model.llama.vocab();
    let before = tokenize(model, &text.before, false);
    let body = match &text.after {
        None => before,
        Some(after) => {
            let marks = [vocab.fim_pre(), vocab.fim_suf(), vocab.fim_mid()];
            if marks.iter().any(|mark| mark.0 < 0) {
                let refusal = "the model cannot fill gaps: its vocabulary has no tokens for them, so suffix must be absent";
                return Err(Failure::of_job(FailureCode::InvalidInput, refusal));
            }
            let [pre, suf, mid] = marks;
            [vec![pre], before, vec![suf], tokenize(model, after, false), vec![mid]].concat()
        }
    };
    let first = vocab.should_add_bos().then(|| vocab.bos());
    let tokens = first.into_iter().chain(body).collect();
    Ok(Prompt { tokens, pictures: Vec::new(), opens_reasoning: false })
}

/// Encodes text in pieces, of which some (`true`) may be control tokens.
pub fn tokens_of(model: &Model, pieces: &[(String, bool)]) -> Vec<LlamaToken> {
    pieces.iter().flat_map(|(text, has_control)| tokenize(model, text, *has_control)).collect()
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
    let marked = Conversation { messages: marked, ..conversation.clone() };
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
fn defused(model: &Model, conversation: &Conversation, now: i64) -> Result<String, Failure> {
    let mut defused = conversation.clone();
    for message in &mut defused.messages {
        message.content = defuse(&message.content, model.specials.iter().map(String::as_str));
        if !is_harmless(model, &message.content) {
            let refusal = "a message contains text that the model reads as control tokens";
            return Err(Failure::of_job(FailureCode::InvalidInput, refusal));
        }
    }
    let rendered = model.template.render(&defused, now)?;
    Ok(without_bos(model, &rendered).to_owned())
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

/// The tokens of pieces in which numbers stand for pictures, the first token of the vocabulary included, and where the pictures are.
fn with_pictures(
    model: &Model,
    pieces: &[(String, bool)],
    pictures: &[Arc<Picture>],
) -> Result<(Vec<LlamaToken>, Vec<Placed>), Failure> {
    let vocab = model.llama.vocab();
    let bos = vocab.should_add_bos().then(|| vocab.bos()).filter(|bos| bos.0 >= 0);
    let mut tokens: Vec<LlamaToken> = bos.into_iter().collect();
    let mut placed = Vec::new();
    for (text, has_control) in pieces {
        for (position, part) in text.split(MEDIA).enumerate() {
            // Numbers are between the marks of a pair.
            if position % 2 == 0 {
                tokens.extend(tokenize(model, part, *has_control));
            } else if let Some(picture) = part.parse().ok().and_then(|number: usize| pictures.get(number)) {
                placed.push(Placed { at: tokens.len(), picture: Arc::clone(picture) });
                tokens.extend(&picture.placeholders);
            }
        }
    }
    if placed.len() != pictures.len() {
        let refusal = "the model's chat template does not write each picture and sound once";
        return Err(Failure::of_job(FailureCode::ModelRejected, refusal));
    }
    // The logits that choose the first token of a reply are those of a token: an engine would wait for them for ever.
    if tokens.last().is_some_and(|last| last.0 < 0) {
        let refusal =
            "the model's chat template writes nothing after a picture or sound at the end of a conversation";
        return Err(Failure::of_job(FailureCode::ModelRejected, refusal));
    }
    Ok((tokens, placed))
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
