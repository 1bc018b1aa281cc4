//! Settings of `tokenizer_config.json` that override `tokenizer.json`.
//!
//! The reference's tokenizer classes compare some of their arguments with the parts of `tokenizer.json`, and change these. An argument that
//! `tokenizer_config.json` lacks has the default of the class: a BERT tokenizer without `do_lower_case` lowercases, whatever `tokenizer.json`
//! contains.

use serde_json::Value;
use tokenizers::{
    NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer, TruncationDirection,
    normalizers::BertNormalizer,
};

use crate::{
    error::{EngineError, invalid_model},
    keys::unsupported,
};

const FILE: &str = "tokenizer_config.json";
/// Classes that override how BERT normalizes, by their names without `Tokenizer`, and the models whose tokenizers they are by default.
const BERT: [(&str, &str); 13] = [
    ("Bert", "bert"),
    ("ConvBert", "convbert"),
    ("DistilBert", "distilbert"),
    ("Electra", "electra"),
    ("Funnel", "funnel"),
    ("LayoutLM", "layoutlm"),
    ("LayoutLMv2", "layoutlmv2"),
    ("Lxmert", "lxmert"),
    ("MPNet", "mpnet"),
    ("MobileBert", "mobilebert"),
    ("RoFormer", "roformer"),
    ("Splinter", "splinter"),
    ("SqueezeBert", "squeezebert"),
];
/// Classes that override how bytes are framed, likewise.
const ROBERTA: [(&str, &str); 8] = [
    ("Bart", "bart"),
    ("Blenderbot", "blenderbot"),
    ("LED", "led"),
    ("LayoutLMv3", "layoutlmv3"),
    ("Longformer", "longformer"),
    ("MarkupLM", "markuplm"),
    ("Mvp", "mvp"),
    ("Roberta", "roberta"),
];

/// Changes a tokenizer as its class does.
pub(super) fn apply(tokenizer: &mut Tokenizer, settings: &Value, config: &Value) -> Result<(), EngineError> {
    let flag = |name: &str, otherwise| settings.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
    if is_one_of(&BERT, settings, config)
        && let Some(NormalizerWrapper::BertNormalizer(old)) = tokenizer.get_normalizer()
    {
        let strips = settings.get("strip_accents").and_then(Value::as_bool);
        let chinese = flag("tokenize_chinese_chars", true);
        let new = BertNormalizer::new(old.clean_text, chinese, strips, flag("do_lower_case", true));
        let changed = tokenizer.with_normalizer(Some(new)).err();
        if let Some(error) = changed {
            return Err(invalid_model(FILE).because(error));
        }
    }
    let has_space = flag("add_prefix_space", false);
    if let Some(PreTokenizerWrapper::ByteLevel(mut bytes)) = tokenizer.get_pre_tokenizer().cloned() {
        bytes.add_prefix_space = has_space;
        tokenizer.with_pre_tokenizer(Some(bytes));
    }
    if is_one_of(&ROBERTA, settings, config) {
        let trims = flag("trim_offsets", true);
        match tokenizer.get_post_processor().cloned() {
            Some(PostProcessorWrapper::Roberta(mut frame)) => {
                (frame.add_prefix_space, frame.trim_offsets) = (has_space, trims);
                tokenizer.with_post_processor(Some(frame));
            }
            Some(PostProcessorWrapper::ByteLevel(mut frame)) => {
                (frame.add_prefix_space, frame.trim_offsets) = (has_space, trims);
                tokenizer.with_post_processor(Some(frame));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where texts that are too long are truncated: by `tokenizer_config.json`, or else by `tokenizer.json`.
pub(super) fn cut_side(tokenizer: &Tokenizer, settings: &Value) -> Result<TruncationDirection, EngineError> {
    let own =
        tokenizer.get_truncation().map_or(TruncationDirection::Right, |truncation| truncation.direction);
    match settings.get("truncation_side").filter(|side| !side.is_null()) {
        None => Ok(own),
        Some(side) if side == "right" => Ok(TruncationDirection::Right),
        Some(side) if side == "left" => Ok(TruncationDirection::Left),
        Some(side) => Err(unsupported(FILE, "truncation_side", side)),
    }
}

fn is_one_of(classes: &[(&str, &str)], settings: &Value, config: &Value) -> bool {
    let name =
        settings.get("tokenizer_class").or_else(|| config.get("tokenizer_class")).and_then(Value::as_str);
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    match name {
        Some(name) => {
            let name = name.strip_suffix("Fast").unwrap_or(name);
            let name = name.strip_suffix("Tokenizer").unwrap_or(name);
            classes.iter().any(|(class, _)| *class == name)
        }
        None => classes.iter().any(|(_, model)| *model == kind),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokenizer(parts: &Value) -> Tokenizer {
        let mut file = json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
        });
        for (name, part) in parts.as_object().into_iter().flatten() {
            file[name] = part.clone();
        }
        Tokenizer::from_bytes(file.to_string()).expect("a tokenizer")
    }

    fn normalized(settings: Value, config: Value) -> String {
        let cased = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": false});
        let mut tokenizer = tokenizer(&json!({ "normalizer": cased }));
        apply(&mut tokenizer, &settings, &config).expect("known");
        let mut text = tokenizers::NormalizedString::from("É中b");
        tokenizers::Normalizer::normalize(tokenizer.get_normalizer().expect("there"), &mut text)
            .expect("text");
        text.get().to_owned()
    }

    #[test]
    fn the_class_decides_on_letters_and_accents() {
        let bert = |settings: Value| normalized(settings, json!({"model_type": "bert"}));
        assert_eq!(bert(json!({})), "e 中 b", "the default of the class");
        assert_eq!(bert(json!({"do_lower_case": false})), "É 中 b");
        assert_eq!(bert(json!({"do_lower_case": false, "tokenize_chinese_chars": false})), "É中b");
        assert_eq!(bert(json!({"do_lower_case": true, "strip_accents": false})), "é 中 b");
        let other =
            normalized(json!({"tokenizer_class": "PreTrainedTokenizerFast"}), json!({"model_type": "bert"}));
        assert_eq!(other, "É 中 b", "this class changes nothing");
        assert_eq!(normalized(json!({"tokenizer_class": "BertTokenizerFast"}), Value::Null), "e 中 b");
    }

    #[test]
    fn a_space_before_the_first_word_is_the_settings_choice() {
        let bytes =
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let has_space = |settings: Value| {
            let mut tokenizer = tokenizer(&json!({ "pre_tokenizer": bytes }));
            apply(&mut tokenizer, &settings, &Value::Null).expect("known");
            matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::ByteLevel(bytes)) if bytes.add_prefix_space)
        };
        assert!(has_space(json!({"add_prefix_space": true})));
        assert!(!has_space(json!({})));
    }

    #[test]
    fn the_side_of_truncation_is_that_of_either_file() {
        let cut = json!({"direction": "Left", "max_length": 8, "strategy": "LongestFirst", "stride": 0});
        let (left, right) = (TruncationDirection::Left, TruncationDirection::Right);
        let side = |parts: Value, settings: Value| cut_side(&tokenizer(&parts), &settings);
        let known = |parts: Value, settings: Value| side(parts, settings).expect("known");
        assert!(matches!(known(json!({}), json!({})), TruncationDirection::Right));
        assert_eq!(format!("{:?}", known(json!({"truncation": cut}), json!({}))), format!("{left:?}"));
        assert_eq!(
            format!("{:?}", known(json!({"truncation": cut}), json!({"truncation_side": "right"}))),
            format!("{right:?}")
        );
        let refused = side(json!({}), json!({"truncation_side": "middle"})).expect_err("unknown");
        assert_eq!(refused.message(), "tokenizer_config.json: truncation_side = \"middle\" is not supported");
    }
}
