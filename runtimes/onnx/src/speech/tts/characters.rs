//! What SpeechT5 reads: a text's characters, as a SentencePiece model of single characters tells them apart.
//!
//! Published conversions have that model itself, `spm_char.model`; some have a `tokenizer.json` alone, which lists the characters and
//! leaves out the model's rules. Texts are read as they stand: what looks like a control token in one is read as characters.

use std::collections::HashMap;

use island_runtimes_graph::fields::{self, Field};
use island_runtimes_kit::{
    error::{EngineError, ErrorKind, invalid_input, invalid_model},
    repository::Repository,
};
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer as _, normalizers::Precompiled};

use super::numbers;
use crate::task::Loader;

/// Stands for a space.
const SPACE: char = '▁';
/// The model's file.
const FILE: &str = "spm_char.model";
/// The kinds of a model's pieces that texts are made of: ordinary ones, and what its maker defined.
const OF_TEXTS: [u64; 2] = [1, 4];
/// The kind of the piece that stands for what is not known.
const UNKNOWN: u64 = 2;

/// Text to ids.
#[derive(Debug)]
pub struct Characters {
    pieces: Pieces,
    /// What ends a text.
    end: i64,
    spells_numbers: bool,
    /// Most ids the model takes, the end included.
    pub max_length: usize,
}

#[derive(Debug, Default)]
struct Pieces {
    /// By name, ones of several characters among them.
    ids: HashMap<String, i64>,
    characters: HashMap<char, i64>,
    unknown: i64,
    /// What is written otherwise before it is read.
    rules: Option<Precompiled>,
    /// Whether a space stands before the first word.
    begins_with_space: bool,
    /// Whether several spaces are one, and none at the ends.
    joins_spaces: bool,
    /// Whether a line's end and the like are spaces too.
    any_space: bool,
}

impl Characters {
    /// Those of a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let repository = &loader.repository;
        let settings = repository.json("tokenizer_config.json")?.unwrap_or_default();
        let spells = loader.setting("normalize", &settings).and_then(Value::as_bool).unwrap_or(false);
        Ok(Self { spells_numbers: spells, ..Self::of(repository, &settings)? })
    }

    /// Those of a repository, which leave numbers as they stand.
    pub fn of(repository: &Repository, settings: &Value) -> Result<Self, EngineError> {
        let pieces = match repository.bytes(FILE)? {
            Some(bytes) => Pieces::of_model(&bytes)?,
            None => Pieces::of_list(repository, settings)?,
        };
        let end = token(settings, "eos_token", "</s>");
        let end = pieces.ids.get(end).copied();
        let end = end.ok_or_else(|| invalid_model("the voice's characters have none that ends a text"))?;
        let most = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64);
        let most =
            [most(&repository.config, "max_text_positions"), most(settings, "model_max_length")].into_iter();
        let max_length = most.flatten().min().unwrap_or(600).clamp(2, 1 << 16) as usize;
        Ok(Self { pieces, end, spells_numbers: false, max_length })
    }

    /// The ids of a text that the model takes whole.
    pub fn read(&self, text: &str) -> Result<Vec<i64>, EngineError> {
        let spelt = if self.spells_numbers { numbers::spell(text)? } else { text.to_owned() };
        let text = self.pieces.prepared(&spelt)?;
        if !text.chars().any(|letter| letter != SPACE && self.pieces.characters.contains_key(&letter)) {
            return Err(invalid_input("text has no character that this voice knows"));
        }
        let ids = self.ids(&text);
        if ids.len() > self.max_length {
            let message =
                format!("the text has {} characters, the voice takes {}", ids.len() - 1, self.max_length - 1);
            return Err(EngineError::new(ErrorKind::ContextLength, message));
        }
        Ok(ids)
    }

    /// The ids of any text at all.
    pub fn read_any(&self, text: &str) -> Result<Vec<i64>, EngineError> {
        Ok(self.ids(&self.pieces.prepared(text)?))
    }

    fn ids(&self, text: &str) -> Vec<i64> {
        let Pieces { characters, unknown, .. } = &self.pieces;
        let mut ids = Vec::new();
        let mut is_known = true;
        for letter in text.chars() {
            let id = characters.get(&letter);
            // However many unknown ones stand beside each other, they are one.
            if is_known || id.is_some() {
                ids.push(id.copied().unwrap_or(*unknown));
            }
            is_known = id.is_some();
        }
        ids.push(self.end);
        ids
    }
}

impl Pieces {
    /// Those of a SentencePiece model; its fields are known by their numbers in `sentencepiece_model.proto`.
    fn of_model(bytes: &[u8]) -> Result<Self, EngineError> {
        let fields = |message| {
            let broken = || invalid_model(format!("{FILE} is no SentencePiece model, or cut off"));
            fields::all(message).ok_or_else(broken)
        };
        let mut read = Self { unknown: -1, begins_with_space: true, joins_spaces: true, ..Self::default() };
        let mut names = Vec::new();
        for (number, field) in fields(bytes)? {
            match (number, field) {
                (1, Field::Bytes(piece)) => {
                    let (mut name, mut kind) = (String::new(), OF_TEXTS[0]);
                    for field in fields(piece)? {
                        match field {
                            (1, Field::Bytes(text)) => name = String::from_utf8_lossy(text).into_owned(),
                            (3, Field::Number(number)) => kind = number,
                            _ => {}
                        }
                    }
                    names.push((name, kind));
                }
                (3, Field::Bytes(rules)) => {
                    for field in fields(rules)? {
                        match field {
                            (2, Field::Bytes(map)) if !map.is_empty() => read.rules = Some(rules_of(map)?),
                            (3, Field::Number(flag)) => read.begins_with_space = flag != 0,
                            (4, Field::Number(flag)) => read.joins_spaces = flag != 0,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        for (id, (name, kind)) in (0..).zip(names) {
            if kind == UNKNOWN {
                read.unknown = id;
            }
            let is_of_texts = OF_TEXTS.contains(&kind);
            if is_of_texts && name.chars().nth(1).is_some() {
                return Err(invalid_model(format!(
                    "{FILE} is no model of single characters: it has {name:?}"
                )));
            }
            read.insert(name, id, is_of_texts);
        }
        if read.unknown < 0 {
            return Err(invalid_model(format!("{FILE} has nothing for unknown characters")));
        }
        Ok(read)
    }

    /// Those that a `tokenizer.json` lists.
    fn of_list(repository: &Repository, settings: &Value) -> Result<Self, EngineError> {
        let file = repository.json("tokenizer.json")?;
        let file = file
            .ok_or_else(|| invalid_model(format!("the repository has neither {FILE} nor tokenizer.json")))?;
        let list = file.pointer("/model/vocab").and_then(Value::as_object);
        let list = list.ok_or_else(|| invalid_model("tokenizer.json lists no characters"))?;
        let mut read =
            Self { begins_with_space: true, joins_spaces: true, any_space: true, ..Self::default() };
        for (name, id) in list {
            let id = id.as_i64().ok_or_else(|| invalid_model(format!("the id of {name:?} is no number")))?;
            read.insert(name.clone(), id, true);
        }
        let unknown = token(settings, "unk_token", "<unk>");
        let unknown = read.ids.get(unknown).copied();
        read.unknown =
            unknown.ok_or_else(|| invalid_model("tokenizer.json has nothing for unknown characters"))?;
        Ok(read)
    }

    fn insert(&mut self, name: String, id: i64, is_of_texts: bool) {
        let mut letters = name.chars();
        if let (Some(letter), None, true) = (letters.next(), letters.next(), is_of_texts) {
            self.characters.insert(letter, id);
        }
        self.ids.insert(name, id);
    }

    /// A text by the model's rules, its spaces as the model has them.
    fn prepared(&self, text: &str) -> Result<String, EngineError> {
        let mut normalized = NormalizedString::from(text);
        if let Some(rules) = &self.rules {
            let failed =
                |error| invalid_input("the text cannot be brought into the voice's form").because(error);
            rules.normalize(&mut normalized).map_err(failed)?;
        }
        let is_space = |letter: char| letter == ' ' || self.any_space && letter.is_whitespace();
        let mut out = String::new();
        let mut behind_space = self.joins_spaces;
        let mut is_empty = true;
        for letter in normalized.get().chars() {
            let space = is_space(letter);
            if space && behind_space {
                continue;
            }
            if is_empty && self.begins_with_space {
                out.push(SPACE);
            }
            is_empty = false;
            behind_space = space && self.joins_spaces;
            out.push(if space { SPACE } else { letter });
        }
        if self.joins_spaces {
            out.truncate(out.trim_end_matches(SPACE).len());
        }
        Ok(out)
    }
}

fn rules_of(map: &[u8]) -> Result<Precompiled, EngineError> {
    Precompiled::from(map)
        .map_err(|error| invalid_model(format!("the rules of {FILE} cannot be read: {error:?}")))
}

/// A token that the settings name.
fn token<'v>(settings: &'v Value, name: &str, otherwise: &'v str) -> &'v str {
    let token = settings.get(name).map(|token| token.get("content").unwrap_or(token));
    token.and_then(Value::as_str).unwrap_or(otherwise)
}
