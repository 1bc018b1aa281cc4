//! Special tokens: those that `tokenizer_config.json` adds to the tokens of `tokenizer.json`, or changes.
//!
//! The reference adds every token of `added_tokens_decoder` again, with the properties that it has there, and then the special tokens that no
//! list has, with those that are special by default in the tokenizer's class.

use serde_json::Value;
use tokenizers::{AddedToken, Tokenizer};

use super::settings::class;
use crate::{error::EngineError, keys::unsupported, values};

/// Keys of special tokens, in the order in which they are added.
const KEYS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
const ADDITIONAL: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];
const ADDED: &str = "added_tokens_decoder";
/// Properties of a token.
const PROPERTIES: [&str; 5] = ["single_word", "lstrip", "rstrip", "normalized", "special"];
/// Special tokens of classes, in the order of [`KEYS`]; an empty one is absent.
const DEFAULTS: [(&[&str], [&str; 7]); 19] = [
    (
        &[
            "Bert",
            "ConvBert",
            "DistilBert",
            "DPRContextEncoder",
            "DPRQuestionEncoder",
            "DPRReader",
            "Electra",
            "LayoutLM",
            "Lxmert",
            "MobileBert",
            "SqueezeBert",
        ],
        ["", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"],
    ),
    (
        &[
            "Bart",
            "Barthez",
            "Blenderbot",
            "Camembert",
            "LED",
            "Longformer",
            "MBart",
            "Mvp",
            "Nllb",
            "Roberta",
            "XLMRoberta",
        ],
        ["<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"],
    ),
    (&["Albert", "RemBert"], ["[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"]),
    (&["BigBird"], ["<s>", "</s>", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"]),
    (&["Bloom"], ["<s>", "</s>", "<unk>", "", "<pad>", "", ""]),
    (&["CLIP"], ["<|startoftext|>", "<|endoftext|>", "<|endoftext|>", "", "<|endoftext|>", "", ""]),
    (
        &["CodeGen", "GPT2", "GPTNeoX", "Whisper"],
        ["<|endoftext|>", "<|endoftext|>", "<|endoftext|>", "", "", "", ""],
    ),
    (&["Llama"], ["<s>", "</s>", "<unk>", "", "", "", ""]),
    (&["Cohere"], ["<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "", "", "", ""]),
    (&["Funnel", "XLNet"], ["<s>", "</s>", "<unk>", "<sep>", "<pad>", "<cls>", "<mask>"]),
    (&["Deberta", "DebertaV2"], ["[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"]),
    (&["FNet"], ["", "", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"]),
    (&["Gemma"], ["<bos>", "<eos>", "<unk>", "", "<pad>", "", ""]),
    (&["Herbert"], ["", "", "<unk>", "</s>", "<pad>", "<s>", "<mask>"]),
    (&["MBart50"], ["", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"]),
    (&["MPNet"], ["<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"]),
    (&["MT5", "T5"], ["", "</s>", "<unk>", "", "<pad>", "", ""]),
    (&["Pegasus"], ["", "</s>", "<unk>", "", "<pad>", "", "<mask_2>"]),
    (&["Qwen2"], ["", "<|endoftext|>", "<|endoftext|>", "", "<|endoftext|>", "", ""]),
];

/// Refuses tokens of another kind than the reference reads, which would count as absent.
pub(super) fn check(file: &str, settings: &Value) -> Result<(), EngineError> {
    let are_tokens = |listed: &Value| match listed {
        Value::Array(tokens) => tokens.iter().all(is_token),
        Value::Object(tokens) => tokens.values().all(is_token),
        _ => false,
    };
    for key in KEYS {
        values::read(file, settings, key, |token| is_token(token).then_some(()))?;
    }
    for key in ADDITIONAL {
        values::read(file, settings, key, |listed| are_tokens(listed).then_some(()))?;
    }
    let added = values::read(file, settings, ADDED, Value::as_object)?;
    let is_known =
        |id: &str, token: &Value| id.parse::<u64>().is_ok() && token.is_object() && is_token(token);
    match added.into_iter().flatten().find(|(id, token)| !is_known(id, token)) {
        Some((id, token)) => Err(unsupported(file, &format!("{ADDED}.{id}"), token)),
        None => Ok(()),
    }
}

/// Whether a value is a token: a text, or an object with a text whose properties are on or off.
fn is_token(value: &Value) -> bool {
    let is_flag = |property: &Value| property.is_boolean() || property.is_null();
    content(value).is_some() && PROPERTIES.iter().all(|name| value.get(*name).is_none_or(is_flag))
}

/// Adds a repository's tokens to its tokenizer.
pub(super) fn add(tokenizer: &mut Tokenizer, settings: &Value, config: &Value) -> tokenizers::Result<()> {
    let specials = specials(settings, class(settings, config));
    let is_special = |token: &AddedToken| specials.iter().any(|special| special.content == token.content);
    let mut added = decoder(settings);
    added.iter_mut().for_each(|token| token.special |= is_special(token));
    let own = tokenizer.get_added_tokens_decoder();
    for special in &specials {
        let is_known = own.values().chain(&added).any(|token| token.content == special.content);
        if !is_known {
            added.push(special.clone());
        }
    }
    tokenizer.add_tokens(added).map(drop)
}

/// The text of a special token, by its key: that of the settings, or else the default of the class. A key that is null has none.
pub(super) fn named(settings: &Value, config: &Value, key: &str) -> Option<String> {
    match settings.get(key) {
        Some(value) => content(value).map(str::to_owned),
        None => default(class(settings, config), key).map(str::to_owned),
    }
}

fn default(class: &str, key: &str) -> Option<&'static str> {
    let place = KEYS.iter().position(|name| *name == key)?;
    let (_, tokens) = DEFAULTS.iter().find(|(classes, _)| classes.contains(&class))?;
    Some(tokens[place]).filter(|token| !token.is_empty())
}

/// All special tokens.
fn specials(settings: &Value, class: &str) -> Vec<AddedToken> {
    let mut tokens: Vec<AddedToken> = Vec::new();
    let single = KEYS.iter().filter_map(|key| match settings.get(*key) {
        Some(value) => special(value),
        None => default(class, key).map(|token| AddedToken::from(token, true)),
    });
    let listed = ADDITIONAL.iter().filter_map(|key| settings.get(*key)).flat_map(|value| match value {
        Value::Array(tokens) => tokens.iter().filter_map(special).collect(),
        Value::Object(tokens) => tokens.values().filter_map(special).collect(),
        _ => Vec::new(),
    });
    for token in single.chain(listed) {
        if !tokens.iter().any(|known| known.content == token.content) {
            tokens.push(token);
        }
    }
    tokens
}

fn special(value: &Value) -> Option<AddedToken> {
    let token = AddedToken::from(content(value)?, true);
    Some(if value.is_object() { with_properties(token, value) } else { token })
}

/// The tokens of `added_tokens_decoder`, by their ids.
fn decoder(settings: &Value) -> Vec<AddedToken> {
    let listed = settings.get(ADDED).and_then(Value::as_object).into_iter().flatten();
    let mut tokens: Vec<(u64, AddedToken)> = listed
        .filter_map(|(id, value)| {
            let special = value.get("special").and_then(Value::as_bool).unwrap_or(false);
            Some((id.parse().ok()?, with_properties(AddedToken::from(content(value)?, special), value)))
        })
        .collect();
    tokens.sort_by_key(|(id, _)| *id);
    tokens.into_iter().map(|(_, token)| token).collect()
}

fn with_properties(token: AddedToken, value: &Value) -> AddedToken {
    let flag = |name: &str, otherwise| value.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
    let normalized = !token.special;
    token
        .single_word(flag("single_word", false))
        .lstrip(flag("lstrip", false))
        .rstrip(flag("rstrip", false))
        .normalized(flag("normalized", normalized))
}

/// A token in settings: a string, or an object with its properties.
fn content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokenizer(settings: &Value) -> Tokenizer {
        let file = json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1, "<mask>": 2}, "unk_token": "[UNK]"},
        });
        let mut tokenizer = Tokenizer::from_bytes(file.to_string()).expect("a tokenizer");
        add(&mut tokenizer, settings, &Value::Null).expect("tokens");
        tokenizer
    }

    #[test]
    fn tokens_that_a_class_makes_special_are_left_out_of_texts() {
        let text = |settings: Value| tokenizer(&settings).decode(&[0, 1], true).expect("text");
        assert_eq!(text(json!({})), "a [UNK]");
        assert_eq!(text(json!({"tokenizer_class": "MPNetTokenizerFast"})), "a");
        assert_eq!(text(json!({"tokenizer_class": "MPNetTokenizer", "unk_token": null})), "a [UNK]");
        assert_eq!(text(json!({"unk_token": "[UNK]"})), "a");
    }

    #[test]
    fn properties_of_added_tokens_are_those_of_the_settings() {
        let ids = |token: Value| {
            let tokenizer = tokenizer(&json!({"added_tokens_decoder": {"2": token}}));
            tokenizer.encode("a<mask>b", false).expect("tokens").get_ids().to_vec()
        };
        assert_eq!(ids(json!({"content": "<mask>", "special": true})), [0, 2, 1]);
        assert_eq!(ids(json!({"content": "<mask>", "special": true, "single_word": true})).len(), 5);
    }

    #[test]
    fn tokens_of_another_kind_are_refused() {
        let of = |settings: Value| check("a.json", &settings).map_err(|error| error.message());
        let known = json!({
            "bos_token": null, "eos_token": "</s>", "pad_token": {"content": "<pad>", "lstrip": true},
            "additional_special_tokens": ["<x>", {"content": "<y>"}], "extra_special_tokens": {"image_token": "<img>"},
            "added_tokens_decoder": {"0": {"content": "<pad>", "special": true}},
        });
        assert_eq!(of(known), Ok(()));
        for (key, value) in [
            ("bos_token", json!(1)),
            ("pad_token", json!(["<pad>"])),
            ("mask_token", json!({"lstrip": true})),
            ("cls_token", json!({"content": "<s>", "lstrip": "yes"})),
            ("additional_special_tokens", json!("<x>")),
            ("additional_special_tokens", json!(["<x>", 2])),
            ("added_tokens_decoder", json!([{"content": "<pad>"}])),
        ] {
            let refused = of(json!({key: value})).expect_err("another kind");
            assert_eq!(refused, format!("a.json: {key} = {value} is not supported"));
        }
        let refused = of(json!({"added_tokens_decoder": {"0": "<pad>"}})).expect_err("no properties");
        assert_eq!(refused, "a.json: added_tokens_decoder.0 = \"<pad>\" is not supported");
        let refused = of(json!({"added_tokens_decoder": {"first": {"content": "a"}}})).expect_err("no id");
        assert_eq!(refused, "a.json: added_tokens_decoder.first = {\"content\":\"a\"} is not supported");
    }

    #[test]
    fn every_list_of_tokens_is_added_once() {
        let settings = json!({
            "tokenizer_class": "BertTokenizer", "pad_token": {"content": "<pad>", "lstrip": true}, "sep_token": null,
            "additional_special_tokens": ["<x>", "<pad>"], "extra_special_tokens": {"image_token": "<img>"},
        });
        let names: Vec<String> = specials(&settings, "Bert").into_iter().map(|token| token.content).collect();
        assert_eq!(names, ["[UNK]", "<pad>", "[CLS]", "[MASK]", "<x>", "<img>"]);
    }
}
