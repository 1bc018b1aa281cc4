//! CLIP's tokenizer, from a repository's vocabulary and merges.

use std::collections::HashMap;

use island_runtimes_kit::{
    error::{EngineError, guarded, invalid_input, invalid_model},
    keys::unsupported,
    text::settings,
};
use serde_json::Value;
use tokenizers::{
    AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer,
    models::bpe::{BPE, Vocab},
    normalizers::{Lowercase, NFC, Replace, Sequence as Normalizers, replace::ReplacePattern},
    pre_tokenizers::{
        byte_level::ByteLevel,
        sequence::Sequence as PreTokenizers,
        split::{Split, SplitPattern},
    },
};

use crate::repository::Repository;

/// How a text is split: contractions, letters, single digits, other characters.
const WORDS: &str =
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
/// Maximum size of a prompt in bytes; the model reads a small part of that.
const MAX_PROMPT_BYTES: usize = 64 << 10;

/// The tokenizer of prompts.
#[derive(Debug)]
pub struct Tokens {
    tokenizer: Tokenizer,
    start: u32,
    end: u32,
    padding: u32,
    length: usize,
}

/// A token in settings: a string, or an object that contains it.
fn content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

impl Tokens {
    /// Loads the tokenizer of a folder, for a model with `positions` tokens.
    pub fn load(repository: &Repository, folder: &str, positions: usize) -> Result<Self, EngineError> {
        let vocabulary = format!("{folder}/vocab.json");
        let vocabulary: HashMap<String, u32> = repository.list(&vocabulary)?;
        let merges = merges(&repository.text(&format!("{folder}/merges.txt"))?);
        let settings = settings::read(&format!("{folder}/"), |file| repository.json(file))?;
        let named = |key: &str, usual: &str| settings.get(key).and_then(content).unwrap_or(usual).to_owned();
        let start = named("bos_token", "<|startoftext|>");
        let end = named("eos_token", "<|endoftext|>");
        let (unknown, padding) = (named("unk_token", &end), named("pad_token", &end));
        let id = |token: &str| {
            let lacks = || invalid_model(format!("the vocabulary of {folder} lacks the token {token:?}"));
            vocabulary.get(token).copied().ok_or_else(lacks)
        };
        let (start_id, end_id, padding_id) = (id(&start)?, id(&end)?, id(&padding)?);
        check_added(repository, folder, &settings, &[&start, &end, &unknown, &padding])?;
        let stated = |key: &'static str| Some((key, settings.get(key).filter(|value| !value.is_null())?));
        let wanted = match stated("model_max_length").or_else(|| stated("max_len")) {
            Some((key, value)) => Some(
                value
                    .as_f64()
                    .ok_or_else(|| unsupported(&format!("{folder}/tokenizer_config.json"), key, value))?,
            ),
            None => None,
        };
        let wanted = wanted.filter(|length| (2.0..1e6).contains(length));
        let length = wanted.map_or(positions, |length| (length as usize).min(positions));
        let refused = |error| invalid_model(format!("invalid tokenizer of {folder}")).because(error);
        let vocabulary: Vocab = vocabulary.into_iter().collect();
        let mut specials = vec![start, end];
        // If "!" is the padding, it is also the padding in prompts: the model was trained so.
        specials.extend((!specials.contains(&padding)).then_some(padding));
        let built =
            guarded(&format!("tokenizer of {folder}"), || build(vocabulary, merges, unknown, &specials));
        let tokenizer = built?.map_err(refused)?;
        Ok(Self { tokenizer, start: start_id, end: end_id, padding: padding_id, length })
    }

    /// Tokens of a prompt, padded to the model's length, and the number of those of the prompt.
    pub fn of(&self, prompt: &str) -> Result<(Vec<u32>, usize), EngineError> {
        if prompt.len() > MAX_PROMPT_BYTES {
            return Err(invalid_input(format!(
                "a prompt has {} bytes, more than {MAX_PROMPT_BYTES}",
                prompt.len()
            )));
        }
        let encoded = guarded("tokenizer", || self.tokenizer.encode_fast(prompt, false))?;
        let encoded = encoded.map_err(|error| invalid_input("a prompt cannot be read").because(error))?;
        let words = encoded.get_ids().iter().copied().take(self.length - 2);
        let mut ids: Vec<u32> = [self.start].into_iter().chain(words).chain([self.end]).collect();
        let used = ids.len();
        ids.resize(self.length, self.padding);
        Ok((ids, used))
    }
}

/// Refuses tokens that were added to a vocabulary, such as those of textual inversion: they would be read as words.
fn check_added(
    repository: &Repository,
    folder: &str,
    settings: &Value,
    known: &[&str],
) -> Result<(), EngineError> {
    const LISTS: [&str; 3] = ["added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"];
    let is_odd = |token: &&Value| !content(token).is_some_and(|token| known.contains(&token));
    for list in LISTS {
        let Some(tokens) = settings.get(list) else { continue };
        let odd = match tokens {
            Value::Array(tokens) => tokens.iter().find(is_odd),
            Value::Object(tokens) => tokens.values().find(is_odd),
            _ => None,
        };
        if let Some(odd) = odd {
            return Err(unsupported(&format!("{folder}/tokenizer_config.json"), list, odd));
        }
    }
    let file = format!("{folder}/added_tokens.json");
    let added = repository.json(&file)?.unwrap_or_default();
    match added.as_object().into_iter().flatten().find(|(token, _)| !known.contains(&token.as_str())) {
        Some((token, id)) => Err(unsupported(&file, token, id)),
        None => Ok(()),
    }
}

fn merges(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| !line.starts_with("#version"));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(one, other)| (one.to_owned(), other.to_owned()))
        .collect()
}

fn build(
    vocabulary: Vocab,
    merges: Vec<(String, String)>,
    unknown: String,
    specials: &[String],
) -> tokenizers::Result<Tokenizer> {
    let model = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .unk_token(unknown)
        .continuing_subword_prefix(String::new())
        .end_of_word_suffix("</w>".to_owned())
        .build()?;
    let mut tokenizer = Tokenizer::new(model);
    let blanks = Replace::new(ReplacePattern::Regex(r"\s+".to_owned()), " ")?;
    let normalizers = Normalizers::new(vec![
        NormalizerWrapper::NFC(NFC),
        NormalizerWrapper::Replace(blanks),
        NormalizerWrapper::Lowercase(Lowercase),
    ]);
    let words = Split::new(SplitPattern::Regex(WORDS.to_owned()), SplitDelimiterBehavior::Removed, true)?;
    let pre_tokenizers = PreTokenizers::new(vec![
        PreTokenizerWrapper::Split(words),
        PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true)),
    ]);
    tokenizer.with_normalizer(Some(NormalizerWrapper::Sequence(normalizers)))?;
    tokenizer.with_pre_tokenizer(Some(PreTokenizerWrapper::Sequence(pre_tokenizers)));
    let specials: Vec<AddedToken> =
        // The library matches them in lower case if the padding is a separate token, and unchanged if it is the end token.
        specials.iter().map(|token| AddedToken::from(token.as_str(), true).normalized(specials.len() > 2)).collect();
    tokenizer.add_special_tokens(specials)?;
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    const VOCABULARY: &str = r#"{"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2, "b</w>": 3}"#;

    fn load(files: &[(&str, &str)]) -> Result<Tokens, EngineError> {
        let folder = tempfile::tempdir().expect("a folder");
        let written = files.iter().map(|(name, content)| {
            let path = folder.path().join(name);
            fs::write(&path, content).expect("write");
            (format!("tokenizer/{name}"), path)
        });
        Tokens::load(&Repository::new(written.collect::<BTreeMap<_, _>>()), "tokenizer", 77)
    }

    #[test]
    fn tokens_that_were_added_to_a_vocabulary_are_refused() {
        let with = |name, content| {
            let files = [("vocab.json", VOCABULARY), ("merges.txt", "#version: 0.2\n"), (name, content)];
            load(&files).map(drop).map_err(|error| error.message())
        };
        let settings = "tokenizer_config.json";
        let usual = r#"{"added_tokens_decoder": {"0": {"content": "<|startoftext|>"}, "1": {"content": "<|endoftext|>"}}}"#;
        assert_eq!(with(settings, usual), Ok(()));
        assert_eq!(with("added_tokens.json", r#"{"<|endoftext|>": 1}"#), Ok(()));
        let inverted = r#"{"added_tokens_decoder": {"4": {"content": "<boat>"}}}"#;
        let refused = with(settings, inverted).expect_err("an added token");
        assert_eq!(
            refused,
            "tokenizer/tokenizer_config.json: added_tokens_decoder = {\"content\":\"<boat>\"} is not supported"
        );
        let refused =
            with(settings, r#"{"additional_special_tokens": ["<boat>"]}"#).expect_err("a special one");
        assert!(refused.contains("additional_special_tokens = \"<boat>\""), "{refused}");
        let refused = with("added_tokens.json", r#"{"<boat>": 4}"#).expect_err("in a file of its own");
        assert_eq!(refused, "tokenizer/added_tokens.json: <boat> = 4 is not supported");
    }

    #[test]
    fn merges_longer_than_every_token_are_an_error_of_the_model() {
        let vocabulary = r#"{"<|startoftext|>": 0, "<|endoftext|>": 1, "aaaaaaaaaa": 2, "bbbbbbbbbb": 3}"#;
        let files = [("vocab.json", vocabulary), ("merges.txt", "#version: 0.2\naaaaaaaaaa bbbbbbbbbb\n")];
        let refused = load(&files).expect_err("not a tokenizer");
        assert!(refused.message().contains("tokenizer of tokenizer"), "{}", refused.message());
    }
}
