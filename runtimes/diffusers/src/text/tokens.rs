//! CLIP's tokenizer, from a repository's vocabulary and merges.

use std::collections::HashMap;

use island_runtimes_kit::{
    error::{EngineError, guarded, invalid_input, invalid_model},
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
        let wanted = ["model_max_length", "max_len"].iter().find_map(|key| settings.get(*key)?.as_f64());
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

    #[test]
    fn merges_longer_than_every_token_are_an_error_of_the_model() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = BTreeMap::new();
        for (name, content) in [
            ("vocab.json", r#"{"<|startoftext|>": 0, "<|endoftext|>": 1, "aaaaaaaaaa": 2, "bbbbbbbbbb": 3}"#),
            ("merges.txt", "#version: 0.2\naaaaaaaaaa bbbbbbbbbb\n"),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, content).expect("write");
            files.insert(format!("tokenizer/{name}"), path);
        }
        let refused = Tokens::load(&Repository::new(files), "tokenizer", 77).expect_err("not a tokenizer");
        assert!(refused.message().contains("tokenizer of tokenizer"), "{}", refused.message());
    }
}
