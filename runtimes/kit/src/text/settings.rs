//! The settings beside a tokenizer: `tokenizer_config.json`, and `special_tokens_map.json` where that file counts.

use serde_json::Value;

use crate::{
    error::EngineError,
    keys::{SPECIAL_TOKENS, TOKENIZER, unsupported},
    repository::Repository,
};

const FILE: &str = "tokenizer_config.json";
const MAP: &str = "special_tokens_map.json";
const ADDITIONAL: &str = "additional_special_tokens";
/// Classes that would convert their tokenizer again for this setting, without their names' `Tokenizer`.
const CONVERTING: [&str; 3] = ["Llama", "MT5", "T5"];

/// Classes of tokenizers, without `Tokenizer`, by the types of models whose repositories need not name them.
const BY_MODEL: [(&str, &[&str]); 31] = [
    ("Albert", &["albert"]),
    ("Bart", &["bart"]),
    ("Bert", &["bert", "ernie", "megatron-bert", "nezha", "visual_bert"]),
    ("BigBird", &["big_bird"]),
    ("Blenderbot", &["blenderbot"]),
    ("Camembert", &["camembert"]),
    ("CLIP", &["clip", "clipseg", "owlvit", "owlv2"]),
    ("ConvBert", &["convbert"]),
    ("Deberta", &["deberta"]),
    ("DebertaV2", &["deberta-v2"]),
    ("DistilBert", &["distilbert"]),
    ("Electra", &["electra"]),
    ("Funnel", &["funnel"]),
    ("GPT2", &["gpt2", "gpt_neo", "gptj", "opt"]),
    ("LED", &["led"]),
    ("LayoutLM", &["layoutlm"]),
    ("Llama", &["llama", "mistral", "phi3"]),
    ("Longformer", &["longformer"]),
    ("Lxmert", &["lxmert"]),
    ("MBart", &["mbart"]),
    ("MPNet", &["mpnet"]),
    ("MT5", &["mt5"]),
    ("MobileBert", &["mobilebert"]),
    ("Nllb", &["nllb-moe"]),
    ("Pegasus", &["pegasus", "pegasus_x", "bigbird_pegasus"]),
    ("Qwen2", &["qwen2", "qwen3"]),
    ("Roberta", &["roberta", "data2vec-text", "roberta-prelayernorm"]),
    ("SqueezeBert", &["squeezebert"]),
    ("T5", &["t5", "longt5", "umt5"]),
    ("Whisper", &["whisper"]),
    ("XLMRoberta", &["xlm-roberta", "xlm-roberta-xl", "xmod"]),
];

/// The settings of a repository's tokenizer. An error if one of them is not supported.
pub fn of(repository: &Repository) -> Result<Value, EngineError> {
    read("", |file| repository.json(file))
}

/// The settings of a tokenizer in a folder, `""` or `"tokenizer/"`, with the content of its files.
pub fn read(
    folder: &str,
    json: impl Fn(&str) -> Result<Option<Value>, EngineError>,
) -> Result<Value, EngineError> {
    let file = format!("{folder}{FILE}");
    let mut settings = json(&file)?.unwrap_or_default();
    TOKENIZER.check_at(&file, &settings)?;
    check_prefix(&file, &settings)?;
    if settings.get("added_tokens_decoder").is_some_and(|tokens| !tokens.is_null()) {
        return Ok(settings);
    }
    let map_file = format!("{folder}{MAP}");
    let Some(map) = json(&map_file)? else { return Ok(settings) };
    SPECIAL_TOKENS.check_at(&map_file, &map)?;
    if settings.is_null() {
        settings = Value::Object(serde_json::Map::default());
    }
    for (key, value) in map.as_object().into_iter().flatten() {
        match (settings[key].as_array_mut(), value.as_array()) {
            (Some(own), Some(others)) if key == ADDITIONAL => {
                own.extend(others.iter().cloned());
            }
            _ => settings[key] = value.clone(),
        }
    }
    Ok(settings)
}

/// The name of a tokenizer's class without `Tokenizer`: from the settings, or else the usual one of the model's type.
pub(super) fn class<'v>(settings: &'v Value, config: &'v Value) -> &'v str {
    let named = |file: &'v Value| file.get("tokenizer_class").and_then(Value::as_str);
    if let Some(name) = named(settings).or_else(|| named(config)) {
        let name = name.strip_suffix("Fast").unwrap_or(name);
        return name.strip_suffix("Tokenizer").unwrap_or(name);
    }
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    BY_MODEL.iter().find(|(_, models)| models.contains(&kind)).map_or("", |(class, _)| *class)
}

/// Whether the settings list the inputs of the model without types of tokens, which are zeros then.
pub(super) fn lacks_types(settings: &Value) -> bool {
    let inputs = settings.get("model_input_names").and_then(Value::as_array);
    inputs.is_some_and(|names| !names.iter().any(|name| name == "token_type_ids"))
}

/// `add_prefix_space` makes these classes convert their tokenizer anew; only the result with a space is what `tokenizer.json` holds.
fn check_prefix(file: &str, settings: &Value) -> Result<(), EngineError> {
    let converts = CONVERTING.contains(&class(settings, &Value::Null));
    match settings.get("add_prefix_space") {
        Some(value @ Value::Bool(false)) if converts => Err(unsupported(file, "add_prefix_space", value)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(config: Value, map: Value) -> Result<Value, EngineError> {
        read("part/", |file| {
            Ok(match file {
                "part/tokenizer_config.json" => Some(config.clone()),
                "part/special_tokens_map.json" => Some(map.clone()),
                _ => None,
            })
        })
    }

    #[test]
    fn special_tokens_map_counts_only_without_added_tokens() {
        let map = json!({"pad_token": "!", "additional_special_tokens": ["<b>"]});
        let config = json!({"pad_token": "<pad>", "unk_token": "?", "additional_special_tokens": ["<a>"]});
        let both = merged(config.clone(), map.clone()).expect("known");
        assert_eq!(both["pad_token"], "!");
        assert_eq!(both["unk_token"], "?");
        assert_eq!(both["additional_special_tokens"], json!(["<a>", "<b>"]));
        let mut newer = config;
        newer["added_tokens_decoder"] = json!({});
        assert_eq!(merged(newer, map).expect("known")["pad_token"], "<pad>");
        assert_eq!(merged(Value::Null, json!({"pad_token": "!"})).expect("known")["pad_token"], "!");
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_folder() {
        let refused = |config: Value| merged(config, json!({})).expect_err("refused").message();
        assert_eq!(
            refused(json!({"tokenizer_class": "JukeboxTokenizer"})),
            "part/tokenizer_config.json: tokenizer_class = \"JukeboxTokenizer\" is not supported"
        );
        assert!(refused(json!({"split_special_tokens": true})).contains("split_special_tokens = true"));
        let converted = json!({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false});
        assert!(refused(converted).contains("add_prefix_space = false"));
        merged(json!({"tokenizer_class": "BartTokenizer", "add_prefix_space": false}), json!({}))
            .expect("this class uses it");
        let unknown = merged(json!({}), json!({"speaker_token": "x"})).expect_err("refused").message();
        assert!(unknown.contains("part/special_tokens_map.json: speaker_token"), "{unknown}");
    }
}
