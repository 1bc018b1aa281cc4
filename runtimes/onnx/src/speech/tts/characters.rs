//! The tokenizer of SpeechT5: characters, as a SentencePiece model of single characters defines them.
//!
//! Published conversions contain that model, `spm_char.model`; some have only a `tokenizer.json`, which lists the characters and
//! lacks the model's rules. Control tokens in a text are read as characters.

use std::collections::HashMap;

use island_runtimes_graph::fields::{self, Field};
use island_runtimes_kit::{
    error::{EngineError, ErrorKind, guarded, invalid_input, invalid_model},
    keys::{CONFIG, TOKENIZER},
    repository::Repository,
    text::{rules, settings},
    values::{count, read},
};
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer as _, normalizers::Precompiled};

use super::numbers;
use crate::task::Loader;

/// Stands for a space.
const SPACE: char = '▁';
/// The model's file.
const FILE: &str = "spm_char.model";
/// Types of a model's pieces that texts consist of: normal and user-defined ones.
const OF_TEXTS: [u64; 2] = [1, 4];
/// Type of the unknown piece.
const UNKNOWN: u64 = 2;

/// Text to ids.
#[derive(Debug)]
pub struct Characters {
    pieces: Pieces,
    /// The end token.
    end: i64,
    spells_numbers: bool,
    /// Maximum number of ids, with the end token.
    pub max_length: usize,
}

#[derive(Debug, Default)]
struct Pieces {
    /// Ids by piece, also of pieces of several characters.
    ids: HashMap<String, i64>,
    characters: HashMap<char, i64>,
    unknown: i64,
    /// Normalization of a text before it is split.
    rules: Option<Precompiled>,
    /// Whether a space is added before the first word.
    begins_with_space: bool,
    /// Whether repeated spaces are one, and removed at the ends.
    joins_spaces: bool,
    /// Whether line ends and similar characters are spaces.
    any_space: bool,
}

impl Characters {
    /// The tokenizer of a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let repository = &loader.repository;
        let settings = settings::of(repository)?;
        let spells = loader.setting("normalize", &settings).and_then(Value::as_bool).unwrap_or(false);
        Ok(Self { spells_numbers: spells, ..Self::of(repository, &settings)? })
    }

    /// The tokenizer of a repository, without spelling numbers out.
    pub fn of(repository: &Repository, settings: &Value) -> Result<Self, EngineError> {
        let pieces = match repository.bytes(FILE)? {
            Some(bytes) => Pieces::of_model(&bytes)?,
            None => Pieces::of_list(repository, settings)?,
        };
        let end = token(settings, "eos_token", "</s>");
        let end = pieces.ids.get(end).copied();
        let end = end.ok_or_else(|| invalid_model("the voice has no end token"))?;
        let positions = read(CONFIG.file, &repository.config, "max_text_positions", count)?;
        // Libraries write a huge number where there is no maximum: it is read as a float.
        let length = |most: &Value| most.as_f64().filter(|most| *most >= 0.0);
        let set = read(TOKENIZER.file, settings, "model_max_length", length)?.filter(|&most| most < 1e9);
        let most = [positions, set.map(|most| most as usize)].into_iter().flatten().min();
        let max_length = most.unwrap_or(600).clamp(2, 1 << 16);
        Ok(Self { pieces, end, spells_numbers: false, max_length })
    }

    /// The ids of a text within the model's maximum length.
    pub fn read(&self, text: &str) -> Result<Vec<i64>, EngineError> {
        let spelt = if self.spells_numbers { numbers::spell(text)? } else { text.to_owned() };
        let text = self.pieces.prepared(&spelt)?;
        if !text.chars().any(|letter| letter != SPACE && self.pieces.characters.contains_key(&letter)) {
            return Err(invalid_input("text has no character of this voice"));
        }
        let ids = self.ids(&text);
        if ids.len() > self.max_length {
            let message =
                format!("the text has {} characters, the voice takes {}", ids.len() - 1, self.max_length - 1);
            return Err(EngineError::new(ErrorKind::ContextLength, message));
        }
        Ok(ids)
    }

    /// The ids of a text of any length.
    pub fn read_any(&self, text: &str) -> Result<Vec<i64>, EngineError> {
        Ok(self.ids(&self.pieces.prepared(text)?))
    }

    fn ids(&self, text: &str) -> Vec<i64> {
        let Pieces { characters, unknown, .. } = &self.pieces;
        let mut ids = Vec::new();
        let mut is_known = true;
        for letter in text.chars() {
            let id = characters.get(&letter);
            // Adjacent unknown characters are one.
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
    /// From a SentencePiece model; its fields have the numbers of `sentencepiece_model.proto`.
    fn of_model(bytes: &[u8]) -> Result<Self, EngineError> {
        let fields = |message| {
            let broken = || invalid_model(format!("{FILE} is not a SentencePiece model, or truncated"));
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
                    "{FILE} is not a model of single characters: it has {name:?}"
                )));
            }
            read.insert(name, id, is_of_texts);
        }
        if read.unknown < 0 {
            return Err(invalid_model(format!("{FILE} has no piece for unknown characters")));
        }
        Ok(read)
    }

    /// From the list in a `tokenizer.json`.
    fn of_list(repository: &Repository, settings: &Value) -> Result<Self, EngineError> {
        let file = repository.json("tokenizer.json")?;
        let file = file
            .ok_or_else(|| invalid_model(format!("the repository has neither {FILE} nor tokenizer.json")))?;
        let list = file.pointer("/model/vocab").and_then(Value::as_object);
        let list = list.ok_or_else(|| invalid_model("tokenizer.json lists no characters"))?;
        let mut read =
            Self { begins_with_space: true, joins_spaces: true, any_space: true, ..Self::default() };
        for (name, id) in list {
            let id =
                id.as_i64().ok_or_else(|| invalid_model(format!("the id of {name:?} is not a number")))?;
            read.insert(name.clone(), id, true);
        }
        let unknown = token(settings, "unk_token", "<unk>");
        let unknown = read.ids.get(unknown).copied();
        read.unknown =
            unknown.ok_or_else(|| invalid_model("tokenizer.json has no piece for unknown characters"))?;
        Ok(read)
    }

    fn insert(&mut self, name: String, id: i64, is_of_texts: bool) {
        let mut letters = name.chars();
        if let (Some(letter), None, true) = (letters.next(), letters.next(), is_of_texts) {
            self.characters.insert(letter, id);
        }
        self.ids.insert(name, id);
    }

    /// A text normalized by the model's rules, with the model's symbol for spaces.
    fn prepared(&self, text: &str) -> Result<String, EngineError> {
        let mut normalized = NormalizedString::from(text);
        if let Some(rules) = &self.rules {
            let failed = |error| invalid_input("the text cannot be normalized").because(error);
            guarded("the rules of a voice", || rules.normalize(&mut normalized))?.map_err(failed)?;
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
    rules::check(map)?;
    Precompiled::from(map)
        .map_err(|error| invalid_model(format!("the rules of {FILE} cannot be read: {error:?}")))
}

/// A token that the settings name.
fn token<'v>(settings: &'v Value, name: &str, otherwise: &'v str) -> &'v str {
    let token = settings.get(name).map(|token| token.get("content").unwrap_or(token));
    token.and_then(Value::as_str).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    /// A field of bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    #[test]
    fn rules_that_lead_out_of_their_table_are_an_error() {
        let piece =
            |name: &str, kind: u8| field(1, &[&field(1, name.as_bytes())[..], &[3 << 3, kind]].concat());
        let with = |rules: &[u8]| {
            let model =
                [piece("<unk>", 2), piece("</s>", 3), piece("a", 1), field(3, &field(2, rules))].concat();
            let folder = tempfile::tempdir().expect("temporary folder");
            let path = folder.path().join(FILE);
            fs::write(&path, model).expect("write");
            let repository =
                Repository::open(BTreeMap::from([(FILE.to_owned(), path)])).expect("a repository");
            Characters::of(&repository, &Value::Null)
        };
        assert_eq!(with(b"").expect("no rules").read("a").expect("a letter"), [0, 2, 1]);
        let outside = [4_u32.to_le_bytes(), 0x7fff_fc00_u32.to_le_bytes()].concat();
        let characters = with(&outside).expect("rules are read when a text is");
        assert_eq!(characters.read("a").expect_err("outside").kind(), ErrorKind::InvalidModel);
        with(&u32::MAX.to_le_bytes()).expect_err("a table that is not there");
    }
}
