//! Tokenizers and templates of models.

use std::collections::BTreeMap;

use island_runtimes_diffusers::{
    repository::Repository as DiffusersRepository, text::tokens::Tokens as ClipTokens,
};
use island_runtimes_kit::{repository::Repository, text::tokens::Tokens};
use island_runtimes_llmcpp::grammar::grammar;
use island_runtimes_onnx::speech::tts::characters::Characters;
use island_runtimes_template::{Message, Template};
use serde_json::Value;

use super::file;
use crate::corpus::parts;

/// Letters, digits, marks, spaces, control tokens, characters of two to four bytes, and a combining one.
const TEXT: &str = " Hello,  wörld 42!\n<mask>[CLS]</s> 漢字 🦀 e\u{301}";

/// The tokenizer of a repository: `tokenizer.json`, `tokenizer_config.json` and `config.json`. A text is encoded and decoded.
pub(super) fn tokenizer(input: &[u8]) -> bool {
    let [tokenizer, settings, config] = parts(input);
    let mut files = BTreeMap::new();
    for (name, bytes) in
        [("tokenizer.json", tokenizer), ("tokenizer_config.json", settings), ("config.json", config)]
    {
        if !bytes.is_empty() {
            files.insert(name.to_owned(), file(name, bytes));
        }
    }
    let Ok(tokens) = Repository::open(files).and_then(|repository| Tokens::load(&repository)) else {
        return false;
    };
    for text in [TEXT, "a"] {
        if let Ok(encoding) = tokens.encode(text) {
            let _ = tokens.decode(encoding.get_ids(), true);
            let _ = tokens.decode(encoding.get_ids(), false);
        }
        let _ = tokens.encode_cut(text, Some("pair"), 8, 2);
        let _ = tokens.encode_cut(text, None, 8, 2);
        let _ = tokens.encode_pair_cut(text, "pair", 8);
    }
    let _ = tokens.encode_words(&["Hello", "wörld"]);
    let _ = tokens.decode(&[0, 1, 1000, u32::MAX], false);
    let _ = tokens.special("mask_token");
    true
}

/// The characters of a voice: a SentencePiece model and `tokenizer_config.json`.
pub(super) fn characters(input: &[u8]) -> bool {
    let [model, settings] = parts(input);
    let files = BTreeMap::from([("spm_char.model".to_owned(), file("spm_char.model", model))]);
    let Ok(repository) = Repository::open(files) else { return false };
    let settings: Value = serde_json::from_slice(settings).unwrap_or_default();
    let Ok(characters) = Characters::of(&repository, &settings) else { return false };
    let _ = characters.read(TEXT);
    let _ = characters.read_any(TEXT);
    true
}

/// The tokenizer of a text encoder: `vocab.json`, `merges.txt` and `tokenizer_config.json`.
pub(super) fn clip_tokenizer(input: &[u8]) -> bool {
    let [vocabulary, merges, settings] = parts(input);
    let mut files = BTreeMap::new();
    for (name, bytes) in
        [("vocab.json", vocabulary), ("merges.txt", merges), ("tokenizer_config.json", settings)]
    {
        if !bytes.is_empty() {
            files.insert(format!("tokenizer/{name}"), file(name, bytes));
        }
    }
    let repository = DiffusersRepository::new(files);
    let Ok(tokens) = ClipTokens::load(&repository, "tokenizer", 77) else { return false };
    let _ = tokens.of(TEXT);
    true
}

/// A chat template, and a conversation in JSON. What it renders is bounded.
pub(super) fn template(input: &[u8]) -> bool {
    let [source, conversation] = parts(input);
    let Ok(source) = String::from_utf8(source.to_vec()) else { return false };
    let conversation: Value = serde_json::from_slice(conversation).unwrap_or_default();
    let mut messages = vec![Message::new("system", "Be short."), Message::new("user", TEXT)];
    for given in conversation.as_array().into_iter().flatten() {
        // The roles are those of a request that was checked.
        let role =
            given["role"].as_str().filter(|role| ["assistant", "tool"].contains(role)).unwrap_or("user");
        let calls = given["tool_calls"].as_array().cloned().unwrap_or_default();
        let call_id = given["tool_call_id"].as_str().map(str::to_owned);
        let content = given["content"].as_str().unwrap_or_default();
        messages.push(Message { calls, call_id, ..Message::new(role, content) });
    }
    let Ok(template) = Template::compile(Some(source), "<s>".to_owned(), "</s>".to_owned()) else {
        return false;
    };
    let conversation = template.conversation(&messages, None);
    if let Ok(text) = template.render(&conversation, 1_700_000_000) {
        assert!(text.len() <= 8 << 20, "{} bytes were rendered", text.len());
    }
    true
}

/// A JSON Schema of a request, which becomes a grammar for replies.
pub(super) fn schema(input: &[u8]) -> bool {
    let Ok(schema) = serde_json::from_slice(input) else { return false };
    grammar(&schema).is_ok()
}
