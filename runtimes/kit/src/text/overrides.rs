//! Settings of `tokenizer_config.json` that override `tokenizer.json`.
//!
//! The reference's tokenizer classes compare some of their arguments with the parts of `tokenizer.json`, and change these. An argument that
//! `tokenizer_config.json` lacks has the default of the class: a BERT tokenizer without `do_lower_case` lowercases, whatever `tokenizer.json`
//! contains.

use serde_json::Value;
use tokenizers::{
    NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer, TruncationDirection,
    normalizers::BertNormalizer, processors::template::TemplateProcessing,
};

use super::{settings, specials};
use crate::{
    error::{EngineError, invalid_model},
    keys::unsupported,
};

const FILE: &str = "tokenizer_config.json";
/// Classes that override how BERT normalizes, without `Tokenizer`.
const BERT: [&str; 12] = [
    "Bert",
    "ConvBert",
    "DPRContextEncoder",
    "DPRQuestionEncoder",
    "DPRReader",
    "DistilBert",
    "Electra",
    "Funnel",
    "LayoutLM",
    "Lxmert",
    "MobileBert",
    "SqueezeBert",
];
/// The same but for how Chinese characters are split.
const BERT_EXCEPT_CHINESE: [&str; 1] = ["MPNet"];
/// Classes that override how bytes are framed.
const ROBERTA: [&str; 6] = ["Bart", "Blenderbot", "LED", "Longformer", "Mvp", "Roberta"];
/// Classes that frame texts by two settings, with the default of whether they begin with the start token.
const FRAMED: [(&str, bool); 4] = [("Cohere", true), ("GPTNeoX", false), ("Gemma", true), ("Llama", true)];

/// Changes a tokenizer as its class does.
pub(super) fn apply(tokenizer: &mut Tokenizer, settings: &Value, config: &Value) -> Result<(), EngineError> {
    let flag = |name: &str, otherwise| settings.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
    let class = settings::class(settings, config);
    let is_except_chinese = BERT_EXCEPT_CHINESE.contains(&class);
    if (is_except_chinese || BERT.contains(&class))
        && let Some(NormalizerWrapper::BertNormalizer(old)) = tokenizer.get_normalizer()
    {
        let strips = settings.get("strip_accents").and_then(Value::as_bool);
        let chinese =
            if is_except_chinese { old.handle_chinese_chars } else { flag("tokenize_chinese_chars", true) };
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
    if ROBERTA.contains(&class) {
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

/// Frames texts as these classes do: with the start token, the end token, both or neither. After the special tokens were added.
pub(super) fn frame(tokenizer: &mut Tokenizer, settings: &Value, config: &Value) -> Result<(), EngineError> {
    let class = settings::class(settings, config);
    let Some((_, begins)) = FRAMED.iter().find(|(name, _)| *name == class) else { return Ok(()) };
    let flag = |name: &str, otherwise| settings.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
    let mut tokens = Vec::new();
    let mut token = |name: &str, flag_name: &str, is_set: bool| {
        if !is_set {
            return Ok(None);
        }
        let lacks = || invalid_model(format!("{FILE}: {flag_name} needs {name}"));
        let text = specials::named(settings, config, name).ok_or_else(lacks)?;
        let id = tokenizer.token_to_id(&text).ok_or_else(lacks)?;
        tokens.push((text.clone(), id));
        Ok::<_, EngineError>(Some(text))
    };
    let start = token("bos_token", "add_bos_token", flag("add_bos_token", *begins))?;
    let end = token("eos_token", "add_eos_token", flag("add_eos_token", false))?;
    let sequence = |name: &str, kind: usize| {
        let special = |token: &Option<String>| token.as_ref().map(|token| format!("{token}:{kind}"));
        [special(&start), Some(format!("${name}:{kind}")), special(&end)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    let (single, second) = (sequence("A", 0), sequence("B", 1));
    let pair = [single.clone(), second].concat();
    let failed = |why: String| invalid_model(format!("{FILE}: the frame of texts: {why}"));
    tokens.dedup();
    let template = TemplateProcessing::builder()
        .try_single(single)
        .map_err(failed)?
        .try_pair(pair)
        .map_err(failed)?
        .special_tokens(tokens)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    tokenizer.with_post_processor(Some(template));
    Ok(())
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
        let plain = json!({"tokenizer_class": "MPNetTokenizer", "do_lower_case": false, "tokenize_chinese_chars": false});
        assert_eq!(
            normalized(plain, Value::Null),
            "É 中 b",
            "this class does not change how Chinese is split"
        );
    }

    #[test]
    fn classes_of_language_models_frame_texts_by_their_settings() {
        let ids = |settings: Value| {
            let model = json!({"type": "WordLevel", "vocab": {"a": 0, "<s>": 1, "</s>": 2, "<unk>": 3}, "unk_token": "<unk>"});
            let mut tokenizer = tokenizer(&json!({ "model": model }));
            frame(&mut tokenizer, &settings, &json!({"model_type": "llama"}))?;
            Ok::<_, EngineError>(tokenizer.encode("a", true).expect("tokens").get_ids().to_vec())
        };
        assert_eq!(ids(json!({})).expect("known"), [1, 0]);
        assert_eq!(ids(json!({"add_eos_token": true})).expect("known"), [1, 0, 2]);
        assert_eq!(ids(json!({"add_bos_token": false})).expect("known"), [0]);
        assert_eq!(ids(json!({"tokenizer_class": "PreTrainedTokenizerFast"})).expect("known"), [0]);
        let lacks = ids(json!({"bos_token": "<start>"})).expect_err("no such token").message();
        assert_eq!(lacks, "tokenizer_config.json: add_bos_token needs bos_token");
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
