//! The settings beside a tokenizer: `tokenizer_config.json`, and `special_tokens_map.json` where that file counts.

use serde_json::Value;

use super::specials;
use crate::{
    error::EngineError,
    keys::{SPECIAL_TOKENS, TOKENIZER, unsupported},
    repository::Repository,
    values,
};

const FILE: &str = "tokenizer_config.json";
const MAP: &str = "special_tokens_map.json";
const ADDITIONAL: &str = "additional_special_tokens";
const INPUTS: &str = "model_input_names";
const SIDE: &str = "padding_side";
/// Classes that would convert their tokenizer again for this setting, without their names' `Tokenizer`.
const CONVERTING: [&str; 3] = ["Llama", "MT5", "T5"];
/// Classes that pad on the left unless their settings name a side.
const PADDED_LEFT: [&str; 4] = ["Cohere", "Gemma", "Llama", "XLNet"];

/// A setting by its file, key and value.
pub type Setting = (&'static str, &'static str, Value);

/// Classes of tokenizers, without `Tokenizer`, by the types of models whose repositories need not name them.
const BY_MODEL: [(&str, &[&str]); 46] = [
    ("Albert", &["albert", "nystromformer", "yoso"]),
    ("Bart", &["bart"]),
    ("Barthez", &["barthez"]),
    ("Bert", &["bert", "ernie", "megatron-bert", "nezha", "qdqbert", "visual_bert"]),
    ("BigBird", &["big_bird"]),
    ("Blenderbot", &["blenderbot"]),
    ("Bloom", &["bloom"]),
    ("CLIP", &["clip", "clipseg", "owlvit", "owlv2"]),
    ("Camembert", &["camembert"]),
    ("CodeGen", &["codegen", "phi"]),
    ("Cohere", &["cohere", "cohere2"]),
    ("ConvBert", &["convbert"]),
    ("DPRQuestionEncoder", &["dpr"]),
    ("Deberta", &["deberta"]),
    ("DebertaV2", &["deberta-v2"]),
    ("DistilBert", &["distilbert"]),
    ("Electra", &["electra"]),
    ("FNet", &["fnet"]),
    ("Funnel", &["funnel"]),
    ("GPT2", &["gpt2", "gpt_bigcode", "gpt_neo", "gptj", "granite", "opt", "starcoder2"]),
    ("GPTNeoX", &["gpt_neox", "mpt", "olmo", "olmo2", "stablelm"]),
    ("Gemma", &["gemma", "gemma2", "gemma3_text"]),
    ("Herbert", &["herbert"]),
    ("LED", &["led"]),
    ("LayoutLM", &["layoutlm"]),
    ("Llama", &["llama", "mistral", "mixtral", "persimmon", "phi3"]),
    ("Longformer", &["longformer"]),
    ("Lxmert", &["lxmert"]),
    ("MBart", &["mbart"]),
    ("MPNet", &["mpnet"]),
    ("MT5", &["mt5"]),
    ("MobileBert", &["mobilebert"]),
    ("Mvp", &["mvp"]),
    ("Nllb", &["nllb-moe"]),
    ("OpenAIGPT", &["openai-gpt"]),
    ("Pegasus", &["pegasus", "pegasus_x", "bigbird_pegasus"]),
    ("Qwen2", &["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"]),
    ("Reformer", &["reformer"]),
    ("RemBert", &["rembert"]),
    ("Roberta", &["roberta", "data2vec-text", "ibert", "mra", "roberta-prelayernorm"]),
    ("SqueezeBert", &["squeezebert"]),
    ("T5", &["t5", "longt5", "switch_transformers", "umt5"]),
    ("Whisper", &["whisper"]),
    ("XGLM", &["xglm"]),
    ("XLMRoberta", &["xlm-roberta", "xlm-roberta-xl", "xmod"]),
    ("XLNet", &["xlnet"]),
];

/// Classes whose list of the model's inputs has no types of tokens: `model_input_names`, where the settings have no list.
const WITHOUT_TYPES: [&str; 33] = [
    "Bart",
    "Barthez",
    "BigBird",
    "Blenderbot",
    "Bloom",
    "CLIP",
    "Camembert",
    "CodeGen",
    "Cohere",
    "DPRReader",
    "DistilBert",
    "GPT2",
    "GPTNeoX",
    "Gemma",
    "LED",
    "Llama",
    "Longformer",
    "M2M100",
    "MBart",
    "MBart50",
    "MPNet",
    "MT5",
    "Mvp",
    "Nllb",
    "OpenAIGPT",
    "Pegasus",
    "Qwen2",
    "Reformer",
    "Roberta",
    "T5",
    "Whisper",
    "XGLM",
    "XLMRoberta",
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
    specials::check(&file, &settings)?;
    values::read(&file, &settings, INPUTS, |names| {
        names.as_array()?.iter().all(Value::is_string).then_some(())
    })?;
    check_prefix(&file, &settings)?;
    if settings.get("added_tokens_decoder").is_some_and(|tokens| !tokens.is_null()) {
        return Ok(settings);
    }
    let map_file = format!("{folder}{MAP}");
    let Some(map) = json(&map_file)? else { return Ok(settings) };
    SPECIAL_TOKENS.check_at(&map_file, &map)?;
    specials::check(&map_file, &map)?;
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

/// The setting that leaves types of tokens out of the inputs of the model, with its file and value: a list, or else that of the class.
pub(super) fn without_types(settings: &Value, config: &Value) -> Option<Setting> {
    match settings.get(INPUTS).and_then(Value::as_array) {
        Some(names) if names.iter().any(|name| name == "token_type_ids") => None,
        Some(names) => Some((FILE, INPUTS, names.clone().into())),
        None => WITHOUT_TYPES.contains(&class(settings, config)).then(|| class_setting(settings, config)),
    }
}

/// The setting that pads texts on the left, with its file and value: that of `tokenizer_config.json`, of `tokenizer.json`, or of the class.
pub(super) fn left_padding(settings: &Value, tokenizer: &Value, config: &Value) -> Option<Setting> {
    let own = settings.get(SIDE).filter(|side| !side.is_null()).map(|side| (FILE, SIDE, side));
    let saved =
        tokenizer.pointer("/padding/direction").map(|side| ("tokenizer.json", "padding.direction", side));
    match own.or(saved) {
        Some((file, key, side)) => {
            let is_left = side.as_str().is_some_and(|name| name.eq_ignore_ascii_case("left"));
            is_left.then(|| (file, key, side.clone()))
        }
        None => PADDED_LEFT.contains(&class(settings, config)).then(|| class_setting(settings, config)),
    }
}

/// The setting that decides on the class.
fn class_setting(settings: &Value, config: &Value) -> Setting {
    const KEY: &str = "tokenizer_class";
    let named = |file: &Value| file.get(KEY).filter(|name| name.is_string()).cloned();
    let of_config = || named(config).map(|name| ("config.json", KEY, name));
    let of_model = || ("config.json", "model_type", config.get("model_type").cloned().unwrap_or_default());
    named(settings).map(|name| (FILE, KEY, name)).or_else(of_config).unwrap_or_else(of_model)
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
    fn the_settings_or_the_class_list_the_inputs_of_a_model() {
        let without = |settings: Value, config: Value| {
            without_types(&settings, &config).map(|(file, key, value)| format!("{file}: {key} = {value}"))
        };
        let of = |class: &str| without(json!({"tokenizer_class": class}), Value::Null);
        for class in ["BertTokenizer", "XLNetTokenizerFast", "DebertaTokenizer", "PreTrainedTokenizerFast"] {
            assert_eq!(of(class), None, "{class}");
        }
        assert_eq!(
            of("BigBirdTokenizer").expect("no types"),
            "tokenizer_config.json: tokenizer_class = \"BigBirdTokenizer\""
        );
        assert!(
            ["MPNetTokenizerFast", "GPT2Tokenizer", "XLMRobertaTokenizer"]
                .iter()
                .all(|class| of(class).is_some())
        );
        let of_model = without(json!({}), json!({"model_type": "bloom"}));
        assert_eq!(of_model.expect("no types"), "config.json: model_type = \"bloom\"");
        let listed = |names: Value| {
            without(json!({"tokenizer_class": "GPT2Tokenizer", "model_input_names": names}), Value::Null)
        };
        assert_eq!(listed(json!(["input_ids", "token_type_ids"])), None, "the list overrides the class");
        let bert = json!({"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids"]});
        let names = without(bert, Value::Null).expect("no types");
        assert_eq!(names, "tokenizer_config.json: model_input_names = [\"input_ids\"]");
    }

    #[test]
    fn the_side_of_padding_is_that_of_a_file_or_of_the_class() {
        let left = json!({"padding": {"direction": "Left"}});
        let side = |settings: Value, tokenizer: &Value| {
            left_padding(&settings, tokenizer, &json!({"model_type": "llama"}))
                .map(|(file, key, value)| format!("{file}: {key} = {value}"))
        };
        let of_settings = side(json!({"padding_side": "left"}), &Value::Null).expect("left");
        assert_eq!(of_settings, "tokenizer_config.json: padding_side = \"left\"");
        let of_tokenizer = side(json!({"tokenizer_class": "BertTokenizer"}), &left).expect("left");
        assert_eq!(of_tokenizer, "tokenizer.json: padding.direction = \"Left\"");
        assert_eq!(
            side(json!({"padding_side": "right"}), &left),
            None,
            "the settings override the tokenizer"
        );
        assert_eq!(side(json!({"padding_side": "right"}), &Value::Null), None, "and the class");
        assert_eq!(side(json!({"tokenizer_class": "BertTokenizer"}), &Value::Null), None);
        assert_eq!(side(json!({}), &Value::Null).expect("left"), "config.json: model_type = \"llama\"");
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
        let token = merged(json!({}), json!({"pad_token": 0})).expect_err("no token").message();
        assert_eq!(token, "part/special_tokens_map.json: pad_token = 0 is not supported");
        assert_eq!(
            refused(json!({"unk_token": true})),
            "part/tokenizer_config.json: unk_token = true is not supported"
        );
        assert_eq!(
            refused(json!({"model_input_names": "input_ids"})),
            "part/tokenizer_config.json: model_input_names = \"input_ids\" is not supported"
        );
        let unknown = merged(json!({}), json!({"speaker_token": "x"})).expect_err("refused").message();
        assert!(unknown.contains("part/special_tokens_map.json: speaker_token"), "{unknown}");
    }
}
