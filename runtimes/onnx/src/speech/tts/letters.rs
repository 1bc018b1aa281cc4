//! The tokenizer of VITS: letters, with blanks between them.
//!
//! As in the reference, special tokens divide a text: there is no blank between two of them. They are letters in many voices: the one
//! of blanks, and the one for unknown letters, which often is the space.

use std::collections::{HashMap, HashSet};

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::unsupported,
    repository::Repository,
    text::settings,
    values::{check_object, read},
};
use serde_json::Value;

const FILE: &str = "tokenizer_config.json";
const VOCABULARY: &str = "vocab.json";
/// The id of blanks.
const BLANK: i64 = 0;
/// Special tokens and their defaults; an empty one is absent.
const SPECIALS: [(&str, &str); 7] = [
    ("pad_token", "<pad>"),
    ("unk_token", "<unk>"),
    ("bos_token", ""),
    ("eos_token", ""),
    ("sep_token", ""),
    ("cls_token", ""),
    ("mask_token", ""),
];
const LISTS: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// Letters to ids.
#[derive(Debug)]
pub struct Letters {
    ids: HashMap<String, i64>,
    /// All tokens, special ones among them.
    tokens: Beginnings,
    /// Tokens that divide a text.
    specials: Beginnings,
    unknown: Option<i64>,
    /// Whether letters are lowercased unless the vocabulary has them, and left out if it does not have them then.
    normalizes: bool,
    /// Whether the language is Romanian, whose letters the vocabulary has with cedillas.
    is_romanian: bool,
    has_blanks: bool,
}

impl Letters {
    /// The letters of a repository.
    pub fn load(repository: &Repository) -> Result<Self, EngineError> {
        let settings = settings::of(repository)?;
        let list = repository.json(VOCABULARY)?.map(|list| (VOCABULARY, list));
        let in_tokenizer = || {
            let file = repository.json("tokenizer.json")?;
            let list = file.and_then(|file| file.pointer("/model/vocab").cloned());
            Ok::<_, EngineError>(list.map(|list| ("tokenizer.json: model.vocab", list)))
        };
        let list = if list.is_some() { list } else { in_tokenizer()? };
        let (file, list) =
            list.ok_or_else(|| invalid_model("the repository has neither vocab.json nor tokenizer.json"))?;
        Self::of(ids(file, &list)?, &settings)
    }

    fn of(ids: HashMap<String, i64>, settings: &Value) -> Result<Self, EngineError> {
        let flag =
            |name: &str, otherwise: bool| settings.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        // The reference's class reads phonemes unless its settings switch that off.
        if flag("phonemize", true) {
            let error = unsupported(FILE, "phonemize", &true.into());
            return Err(error.followed_by("this voice reads phonemes, not letters"));
        }
        if flag("is_uroman", false) {
            let error = unsupported(FILE, "is_uroman", &true.into());
            return Err(error.followed_by("this voice reads its language in Latin letters only"));
        }
        let unknown = special(settings, "unk_token", "<unk>").and_then(|token| ids.get(token).copied());
        let dividing = specials(settings);
        Ok(Self {
            tokens: Beginnings::of(ids.keys().chain(&dividing)),
            specials: Beginnings::of(&dividing),
            unknown,
            normalizes: flag("normalize", true),
            is_romanian: read(FILE, settings, "language", Value::as_str)? == Some("ron"),
            has_blanks: flag("add_blank", true),
            ids,
        })
    }

    /// The ids of a text; empty if it has no letter of the vocabulary.
    pub fn read(&self, text: &str) -> Vec<i64> {
        let mut text = if self.normalizes { self.lowercased(text) } else { text.to_owned() };
        if self.is_romanian {
            text = text.replace('\u{21b}', "\u{163}");
        }
        if self.normalizes {
            let is_known = |letter: &char| self.ids.contains_key(letter.encode_utf8(&mut [0; 4]) as &str);
            let known: String = text.chars().filter(is_known).collect();
            known.trim().clone_into(&mut text);
        }
        let mut ids = Vec::new();
        let mut rest = text.as_str();
        let mut piece = rest;
        while let Some(letter) = rest.chars().next() {
            if let Some(length) = self.specials.longest(rest) {
                self.read_piece(&piece[..piece.len() - rest.len()], &mut ids);
                ids.extend(self.id(&rest[..length]));
                rest = &rest[length..];
                piece = rest;
            } else {
                rest = &rest[letter.len_utf8()..];
            }
        }
        self.read_piece(piece, &mut ids);
        ids
    }

    /// The ids of a text without special tokens, with blanks between them and at both ends.
    fn read_piece(&self, piece: &str, ids: &mut Vec<i64>) {
        let mut is_empty = true;
        for letter in piece.chars() {
            let Some(id) = self.id(letter.encode_utf8(&mut [0; 4])) else { continue };
            ids.extend(self.has_blanks.then_some(BLANK));
            ids.push(id);
            is_empty = false;
        }
        ids.extend((self.has_blanks && !is_empty).then_some(BLANK));
    }

    fn id(&self, token: &str) -> Option<i64> {
        self.ids.get(token).copied().or(self.unknown)
    }

    /// The text with those letters lowercased that the vocabulary lacks; its tokens of several letters are kept as well.
    fn lowercased(&self, text: &str) -> String {
        let mut lowercased = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            if let Some(length) = self.tokens.longest(rest) {
                lowercased.push_str(&rest[..length]);
                rest = &rest[length..];
            } else {
                lowercased.extend(letter.to_lowercase());
                rest = &rest[letter.len_utf8()..];
            }
        }
        lowercased
    }
}

/// A set of tokens by their letters, so that finding the one that begins a text does not take longer with more of them.
#[derive(Debug)]
struct Beginnings {
    /// By a beginning and the letter after it, the beginning with that letter. The first one is empty.
    longer: HashMap<(u32, char), u32>,
    /// Whether each beginning is a whole token.
    is_token: Vec<bool>,
}

impl Beginnings {
    fn of<'t>(tokens: impl IntoIterator<Item = &'t String>) -> Self {
        let (mut longer, mut is_token) = (HashMap::new(), vec![false]);
        for token in tokens {
            let mut beginning = 0;
            for letter in token.chars() {
                beginning = *longer.entry((beginning, letter)).or_insert_with(|| {
                    is_token.push(false);
                    is_token.len() as u32 - 1
                });
            }
            is_token[beginning as usize] = true;
        }
        Self { longer, is_token }
    }

    /// Length in bytes of the longest token that begins a text. An empty token begins none.
    fn longest(&self, text: &str) -> Option<usize> {
        let (mut beginning, mut longest) = (0, None);
        for (at, letter) in text.char_indices() {
            let Some(&longer) = self.longer.get(&(beginning, letter)) else { break };
            beginning = longer;
            if self.is_token[beginning as usize] {
                longest = Some(at + letter.len_utf8());
            }
        }
        longest
    }
}

/// The ids of a vocabulary in this file.
fn ids(file: &str, list: &Value) -> Result<HashMap<String, i64>, EngineError> {
    check_object(file, list)?;
    let known = |(letter, id): (&String, &Value)| {
        let known = id.as_i64().ok_or_else(|| unsupported(file, letter, id))?;
        Ok::<_, EngineError>((letter.clone(), known))
    };
    list.as_object().into_iter().flatten().map(known).collect()
}

fn special<'v>(settings: &'v Value, name: &str, otherwise: &'v str) -> Option<&'v str> {
    let token = match settings.get(name) {
        Some(token) => content(token),
        None => Some(otherwise),
    };
    token.filter(|token| !token.is_empty())
}

fn specials(settings: &Value) -> HashSet<String> {
    let named = SPECIALS.iter().filter_map(|(name, otherwise)| special(settings, name, otherwise));
    let listed = LISTS.iter().filter_map(|name| settings.get(*name)).flat_map(values);
    let added = settings.get("added_tokens_decoder").into_iter().flat_map(values);
    named.chain(listed.chain(added).filter_map(content)).map(str::to_owned).collect()
}

fn values(of: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match of {
        Value::Array(values) => Box::new(values.iter()),
        Value::Object(values) => Box::new(values.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// A token in settings: a string, or an object with its properties.
fn content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn letters(vocabulary: &str, settings: &Value) -> Letters {
        let ids = vocabulary.chars().zip(0..).map(|(letter, id)| (letter.to_string(), id));
        Letters::of(ids.collect(), settings).expect("letters")
    }

    fn voice() -> Value {
        json!({"pad_token": "k", "unk_token": " ", "phonemize": false})
    }

    #[test]
    fn special_tokens_divide_a_text_as_in_the_reference() {
        // `VitsTokenizer` of transformers 4.57 with this vocabulary; the letter of blanks is k.
        let voice = letters("k abeilot", &voice());
        let read = |text: &str| voice.read(text);
        assert_eq!(read("talk talk"), [0, 8, 0, 2, 0, 6, 0, 0, 1, 0, 8, 0, 2, 0, 6, 0, 0]);
        assert_eq!(read("Kit ok"), [0, 0, 5, 0, 8, 0, 1, 0, 7, 0, 0]);
        assert_eq!(read("a  b"), [0, 2, 0, 1, 1, 0, 3, 0]);
        assert_eq!(read("k"), [0]);
        assert_eq!(read(" k a k "), [0, 1, 0, 2, 0, 1, 0]);
        assert_eq!(read("?!"), Vec::<i64>::new());
    }

    #[test]
    fn the_longest_token_that_begins_a_text_is_found() {
        let tokens = ["", "a", "ab", "abcd", "\u{fc}", "\u{fc}b", "b"].map(str::to_owned);
        let longest = |text: &str| Beginnings::of(&tokens).longest(text);
        for text in ["abcde", "abcx", "abc", "ab", "ax", "a", "\u{fc}bx", "\u{fc}x", "\u{fc}", "xa", "", "B"]
        {
            let known = tokens.iter().filter(|token| text.starts_with(token.as_str())).map(String::len);
            assert_eq!(longest(text), known.max().filter(|length| *length > 0), "{text}");
        }
        assert_eq!(Beginnings::of(&[]).longest("a"), None);
    }

    #[test]
    fn tokens_of_several_letters_are_kept_among_others_of_a_large_vocabulary() {
        let named = [("A", 1), ("BC", 2), ("b", 3), ("c", 4)].map(|(token, id)| (token.to_owned(), id));
        let others = (0..100_000).map(|id| (format!("<{id}>"), id));
        let settings = json!({"phonemize": false, "normalize": true, "unk_token": "", "add_blank": false});
        let letters = Letters::of(named.into_iter().chain(others).collect(), &settings).expect("letters");
        assert_eq!(letters.lowercased("ABCB<7>D").as_str(), "ABCb<7>d");
        assert_eq!(letters.read(&"AB".repeat(50_000)).len(), 100_000);
    }

    #[test]
    fn capitals_of_the_vocabulary_are_kept() {
        let read = |settings: Value| letters("_aAb", &settings).read("aAB?");
        assert_eq!(read(json!({"phonemize": false, "add_blank": false})), [1, 2, 3]);
        let unknown = json!({"phonemize": false, "add_blank": false, "normalize": false, "unk_token": "_"});
        assert_eq!(read(unknown), [1, 2, 0, 0]);
    }

    #[test]
    fn romanian_letters_are_those_of_the_vocabulary() {
        let read = |language: &str| {
            let settings = json!({"phonemize": false, "add_blank": false, "language": language});
            letters("_a\u{163}", &settings).read("a\u{21b}")
        };
        assert_eq!(read("ron"), [1, 2]);
        assert_eq!(read("eng"), [1]);
    }

    #[test]
    fn settings_of_another_kind_are_refused() {
        let known = ids("vocab.json", &json!({"a": 0, "b": 1})).expect("ids");
        assert_eq!(known, HashMap::from([("a".to_owned(), 0), ("b".to_owned(), 1)]));
        let refused = ids("vocab.json", &json!({"a": "0"})).expect_err("a text").message();
        assert_eq!(refused, "vocab.json: a = \"0\" is not supported");
        let refused = ids("vocab.json", &json!(["a"])).expect_err("no ids").message();
        assert_eq!(refused, "vocab.json: [\"a\"] is not a JSON object");
        let settings = json!({"phonemize": false, "language": 7});
        let refused = Letters::of(HashMap::new(), &settings).expect_err("no language").message();
        assert_eq!(refused, "tokenizer_config.json: language = 7 is not supported");
    }

    #[test]
    fn blanks_have_the_first_id_whatever_pads() {
        let settings = json!({"pad_token": "b", "unk_token": "_", "phonemize": false});
        assert_eq!(letters("_ab", &settings).read("aa"), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn voices_of_phonemes_are_refused() {
        for settings in [json!({}), json!({"phonemize": true})] {
            let refused = Letters::of(HashMap::new(), &settings).expect_err("phonemes").message();
            assert!(refused.starts_with("tokenizer_config.json: phonemize = true "), "{refused}");
        }
        let latin = Letters::of(HashMap::new(), &json!({"phonemize": false, "is_uroman": true}));
        assert!(latin.expect_err("no transliteration").message().contains("is_uroman = true"));
    }
}
