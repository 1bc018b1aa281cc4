//! A repository's tokenizer, and the maximum length of its model's texts.

use std::sync::Arc;

use serde_json::Value;
use tokenizers::{
    Decoder as _, Encoding, Model as _, NormalizerWrapper, PostProcessor as _, PostProcessorWrapper,
    Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy,
    normalizers::{Lowercase, Sequence},
    truncate_encodings,
};

use crate::{
    error::{EngineError, ErrorKind, guarded, invalid_input, invalid_model},
    keys::{CONFIG, unsupported},
    repository::Repository,
    text::{overrides, rules, settings as tokenizer_settings, specials},
    values,
};

/// Maximum size of a text in bytes.
pub const MAX_TEXT_BYTES: usize = 2 << 20;
const FILE: &str = "tokenizer_config.json";
/// Minimum of the maximum number of tokens.
const MIN_LENGTH: usize = 8;
/// Maximum number of tokens where no setting names one.
const USUAL_LENGTH: usize = 8192;
/// Models that add the vector of a type to that of its token, and none without types.
const TYPED: [&str; 5] = ["ctrl", "flaubert", "gpt2", "xlm", "xlnet"];
/// The key of the padding token in `config.json`.
const PAD: &str = "pad_token_id";
/// What is at fault if the library panics: it trusts most of what a tokenizer states.
const TOKENIZER: &str = "the tokenizer cannot be used";

/// Text to tokens and back.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// Without its post-processor: special tokens are added once, after truncation.
    tokenizer: Tokenizer,
    frame: Option<PostProcessorWrapper>,
    /// Maximum number of tokens of the model, with special tokens.
    pub max_length: usize,
    /// Number of tokens for which the network has positions, if they are limited.
    positions: Option<usize>,
    /// Pads shorter texts.
    pub pad_id: i64,
    /// Where texts that are too long are truncated.
    cut_side: TruncationDirection,
    /// The setting that leaves types of tokens out of the model's inputs; they are zeros then.
    without_types: Option<tokenizer_settings::Setting>,
    /// `tokenizer_config.json`.
    pub settings: Value,
    /// `config.json`.
    config: Arc<Value>,
}

impl Tokens {
    /// The tokenizer of a repository.
    pub fn load(repository: &Repository) -> Result<Self, EngineError> {
        let Some(bytes) = repository.bytes("tokenizer.json")? else {
            return Err(invalid_model("the repository has no tokenizer.json"));
        };
        rules::check_all(&bytes)?;
        let mut tokenizer = guarded("invalid tokenizer.json", || Tokenizer::from_bytes(bytes))?
            .map_err(|error| invalid_model("invalid tokenizer.json").because(error))?;
        let settings = tokenizer_settings::of(repository)?;
        let cut_side = overrides::cut_side(&tokenizer, &settings)?;
        overrides::apply(&mut tokenizer, &settings, &repository.config)?;
        guarded(TOKENIZER, || specials::add(&mut tokenizer, &settings, &repository.config))?
            .map_err(|error| invalid_model("the tokens of tokenizer_config.json").because(error))?;
        overrides::frame(&mut tokenizer, &settings, &repository.config)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| invalid_model("tokenizer.json").because(error))?;
        let frame = tokenizer.get_post_processor().cloned();
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        let positions = positions(&repository.config)?;
        let max_length = longest(positions, &settings)?;
        let pad = values::read(CONFIG.file, &repository.config, PAD, Value::as_i64)?;
        let special = |name: &str| specials::named(&settings, &repository.config, name);
        let pad = special("pad_token").and_then(|token| tokenizer.token_to_id(&token)).map(i64::from).or(pad);
        let without_types = tokenizer_settings::without_types(&settings, &repository.config);
        let config = Arc::clone(&repository.config);
        Ok(Self {
            tokenizer,
            frame,
            max_length,
            positions,
            pad_id: pad.unwrap_or(0),
            cut_side,
            without_types,
            settings,
            config,
        })
    }

    /// The tokenizer itself.
    pub fn inner(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The maximum number of tokens by a setting that overrides the tokenizer's, but not the positions of the network.
    pub fn max_length_by(&self, setting: Option<usize>) -> usize {
        let within = |most: usize| self.positions.map_or(most, |positions| most.min(positions));
        setting.map_or(self.max_length, within)
    }

    /// Reads texts in lower case from now on, but not the special tokens in them.
    pub fn lower_case(&mut self) -> Result<(), EngineError> {
        let is_lowercase = |own: &NormalizerWrapper| matches!(own, NormalizerWrapper::Lowercase(_));
        let own = self.tokenizer.get_normalizer().cloned();
        let has_lowercase = match &own {
            Some(NormalizerWrapper::Sequence(all)) => all.as_ref().iter().any(is_lowercase),
            Some(normalizer) => is_lowercase(normalizer),
            None => false,
        };
        if !has_lowercase {
            let all = [NormalizerWrapper::Lowercase(Lowercase)].into_iter().chain(own).collect();
            let all = NormalizerWrapper::Sequence(Sequence::new(all));
            let changed = self.tokenizer.with_normalizer(Some(all)).err();
            if let Some(error) = changed {
                return Err(invalid_model("the tokenizer cannot read lower case").because(error));
            }
        }
        Ok(())
    }

    /// The number of tokens that a prompt has before a text: a special token at its end follows the text instead.
    pub fn prompt_length(&self, prompt: &str) -> Result<usize, EngineError> {
        let encoding = self.encode(prompt)?;
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let ends = encoding.get_ids().last().and_then(|id| added.get(id)).is_some_and(|token| token.special);
        Ok(encoding.len() - usize::from(ends))
    }

    /// The tokens of a text with special tokens; offsets count characters.
    pub fn encode(&self, text: &str) -> Result<Encoding, EngineError> {
        self.framed(self.bare(text)?, None)
    }

    /// The same for a text that must not be truncated.
    pub fn encode_whole(&self, text: &str) -> Result<Encoding, EngineError> {
        let encoding = self.encode(text)?;
        let tokens = encoding.len();
        if tokens > self.max_length {
            let message = format!("the text has {tokens} tokens, the model takes {}", self.max_length);
            return Err(EngineError::new(ErrorKind::ContextLength, message));
        }
        Ok(encoding)
    }

    /// The tokens of a text that contains its special tokens.
    pub fn encode_framed(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        Ok(self.bare(text)?.get_ids().to_vec())
    }

    /// The tokens of a text that is split into words, with special tokens; each token has the index of its word.
    pub fn encode_words(&self, words: &[&str]) -> Result<Encoding, EngineError> {
        let bare = guarded(TOKENIZER, || self.tokenizer.encode(words, false))?.map_err(unreadable)?;
        let framed = self.framed(bare, None)?;
        let tokens = framed.len();
        if tokens > self.max_length {
            let message = format!("the text has {tokens} tokens, the model takes {}", self.max_length);
            return Err(EngineError::new(ErrorKind::ContextLength, message));
        }
        Ok(framed)
    }

    /// A text or a pair of texts, truncated to `max_length` tokens. The rest is in [`Encoding::get_overflowing`], in pieces that share `stride`
    /// tokens with the one before.
    ///
    /// Truncation happens here: the tokenizer's own stops reading at the first piece and loses the rest.
    pub fn encode_cut(
        &self,
        text: &str,
        pair: Option<&str>,
        max_length: usize,
        stride: usize,
    ) -> Result<Encoding, EngineError> {
        let (first, second) = (self.bare(text)?, pair.map(|text| self.bare(text)).transpose()?);
        let frame = self.frame.as_ref().map_or(0, |frame| frame.added_tokens(second.is_some()));
        let too_small =
            || invalid_input(format!("the model takes {max_length} tokens, too few for this text"));
        let max_length = max_length.checked_sub(frame).ok_or_else(too_small)?;
        // Pieces that share as many tokens as they have would never end; the library panics.
        let room = second.as_ref().map_or(max_length, |_| max_length.saturating_sub(first.len()));
        let is_cut = first.len() + second.as_ref().map_or(0, Encoding::len) > max_length;
        if is_cut && stride >= room.max(1) {
            return Err(too_small());
        }
        let strategy = TruncationStrategy::OnlySecond;
        let strategy = if second.is_some() { strategy } else { TruncationStrategy::OnlyFirst };
        let cut = TruncationParams { max_length, stride, strategy, direction: self.cut_side };
        let (mut first, mut second) = truncate_encodings(first, second, &cut).map_err(unreadable)?;
        // Framed one by one: a frame sets the types of the first piece alone.
        let rest = second.as_mut().unwrap_or(&mut first).take_overflowing();
        let piece = |piece: Encoding| match &second {
            Some(_) => self.framed(first.clone(), Some(piece)),
            None => self.framed(piece, None),
        };
        let rest = rest.into_iter().map(piece).collect::<Result<Vec<_>, _>>()?;
        let mut whole = self.framed(first, second)?;
        whole.set_overflowing(rest);
        Ok(whole)
    }

    /// The number of tokens that the second of two texts may have beside the first.
    pub fn space_beside(&self, first: &str, max_length: usize) -> Result<usize, EngineError> {
        let frame = self.frame.as_ref().map_or(0, |frame| frame.added_tokens(true));
        Ok(max_length.saturating_sub(frame + self.bare(first)?.len()))
    }

    /// A pair of texts of which the first is truncated so that both fit.
    pub fn encode_pair_cut(
        &self,
        first: &str,
        second: &str,
        max_length: usize,
    ) -> Result<Encoding, EngineError> {
        let (mut first, second) = (self.bare(first)?, self.bare(second)?);
        let frame = self.frame.as_ref().map_or(0, |frame| frame.added_tokens(true));
        let left = max_length.saturating_sub(frame + second.len());
        if left == 0 {
            return Err(invalid_input(format!("{} tokens leave no space for the text", second.len())));
        }
        first.truncate(left, 0, self.cut_side);
        first.take_overflowing();
        self.framed(first, Some(second))
    }

    /// A pair of texts of which the longer one is truncated until both fit.
    pub fn encode_pair(&self, first: &str, second: &str, max_length: usize) -> Result<Encoding, EngineError> {
        let (first, second) = (self.bare(first)?, self.bare(second)?);
        let frame = self.frame.as_ref().map_or(0, |frame| frame.added_tokens(true));
        let cut = TruncationParams {
            max_length: max_length.saturating_sub(frame),
            stride: 0,
            strategy: TruncationStrategy::LongestFirst,
            direction: self.cut_side,
        };
        let (mut first, mut second) = truncate_encodings(first, Some(second), &cut).map_err(unreadable)?;
        first.take_overflowing();
        second.iter_mut().for_each(|second| drop(second.take_overflowing()));
        self.framed(first, second)
    }

    fn framed(&self, first: Encoding, second: Option<Encoding>) -> Result<Encoding, EngineError> {
        let framed = guarded(TOKENIZER, || match &self.frame {
            Some(frame) => frame.process(first, second, true),
            None => self.tokenizer.post_process(first, second, true),
        });
        let mut framed = framed?.map_err(unreadable)?;
        if self.without_types.is_some() {
            framed.set_type_ids(vec![0; framed.len()]);
        }
        Ok(framed)
    }

    /// A text's tokens without special tokens and without a sequence id: one that is set too early is set twice.
    #[expect(clippy::default_trait_access, reason = "the type of the map is private to the tokenizer")]
    fn bare(&self, text: &str) -> Result<Encoding, EngineError> {
        let found =
            guarded(TOKENIZER, || self.tokenizer.encode_char_offsets(text, false))?.map_err(unreadable)?;
        Ok(Encoding::new(
            found.get_ids().to_vec(),
            found.get_type_ids().to_vec(),
            found.get_tokens().to_vec(),
            found.get_word_ids().to_vec(),
            found.get_offsets().to_vec(),
            found.get_special_tokens_mask().to_vec(),
            found.get_attention_mask().to_vec(),
            Vec::new(),
            Default::default(),
        ))
    }

    /// The text of tokens.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, EngineError> {
        let text = guarded(TOKENIZER, || self.joined(ids, skip_special))?.map_err(unreadable)?;
        Ok(if self.cleans_up() { clean_up(&text) } else { text })
    }

    /// The beginning of a decoded text that more tokens do not change: without an incomplete character, and without a space that may be removed.
    pub fn steady<'t>(&self, text: &'t str) -> &'t str {
        let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let held = if self.cleans_up() { unclean(whole) } else { 0 };
        &whole[..whole.len() - held]
    }

    /// As `tokenizers` 0.22 decodes. 0.23 replaces an added token by its normalized form, which is special no longer: `[UNK]` by `[unk]`.
    fn joined(&self, ids: &[u32], skip_special: bool) -> tokenizers::Result<String> {
        let vocabulary = self.tokenizer.get_added_vocabulary();
        let added = vocabulary.get_added_tokens_decoder();
        let content = |id: &u32| match added.get(id) {
            Some(token) => Some(token.content.clone()),
            None => self.tokenizer.get_model().id_to_token(*id),
        };
        let is_kept = |token: &String| !skip_special || !vocabulary.is_special_token(token);
        let tokens: Vec<String> = ids.iter().filter_map(content).filter(is_kept).collect();
        match self.tokenizer.get_decoder() {
            Some(decoder) => decoder.decode(tokens),
            None => Ok(tokens.join(" ")),
        }
    }

    /// Rejects a model whose graph has types of tokens where the settings have none, if the network does otherwise without types than with zeros.
    pub fn check_types(&self) -> Result<(), EngineError> {
        let kind = self.config.get("model_type").and_then(Value::as_str).unwrap_or_default();
        match &self.without_types {
            Some((file, key, value)) if TYPED.contains(&kind) => Err(unsupported(file, key, value)),
            _ => Ok(()),
        }
    }

    /// Rejects padding on the left, where it decides on the order of two texts.
    pub fn check_padding(&self, repository: &Repository) -> Result<(), EngineError> {
        let tokenizer = repository.json("tokenizer.json")?.unwrap_or_default();
        match tokenizer_settings::left_padding(&self.settings, &tokenizer, &self.config) {
            Some((file, key, value)) => Err(unsupported(file, key, &value)),
            None => Ok(()),
        }
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// A token that `tokenizer_config.json` names, such as `mask_token` or `unk_token`.
    pub fn special(&self, name: &str) -> Option<String> {
        specials::named(&self.settings, &self.config, name)
    }

    fn cleans_up(&self) -> bool {
        self.settings.get("clean_up_tokenization_spaces").and_then(Value::as_bool).unwrap_or(false)
    }
}

/// Rejects texts that are empty or too long.
pub fn check(text: &str, what: &str) -> Result<(), EngineError> {
    if text.trim().is_empty() {
        return Err(invalid_input(format!("{what} is empty")));
    }
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("{what} has {} bytes, at most {MAX_TEXT_BYTES} are read", text.len());
        return Err(invalid_input(message));
    }
    Ok(())
}

/// The number of tokens for which a network has positions; `None` without a limit.
fn positions(config: &Value) -> Result<Option<usize>, EngineError> {
    let positions = values::positions(config)?.filter(|&positions| positions > 0);
    // These models count positions from the padding token.
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let offset = match kind {
        "roberta" | "xlm-roberta" | "camembert" | "mpnet" | "longformer" | "xlm-roberta-xl" => {
            values::read(CONFIG.file, config, PAD, values::count)?
                .filter(|&pad| pad > 0)
                .unwrap_or(1)
                .saturating_add(1)
        }
        _ => 0,
    };
    // Models with relative positions have no maximum.
    let bounded = positions.filter(|_| !matches!(kind, "t5" | "mt5" | "deberta-v2"));
    Ok(bounded.map(|count| count.saturating_sub(offset).max(MIN_LENGTH)))
}

/// The minimum of the network's positions and the tokenizer's setting.
fn longest(positions: Option<usize>, settings: &Value) -> Result<usize, EngineError> {
    // Libraries write a huge number where there is no maximum: it is read as a float.
    let length = |most: &Value| most.as_f64().filter(|&most| most >= MIN_LENGTH as f64);
    let setting = |key: &str| values::read(FILE, settings, key, length);
    let set = setting("model_max_length")?.or(setting("max_len")?);
    let set = set.filter(|&most| most < 1e9).map(|most| most as usize);
    Ok(positions.into_iter().chain(set).min().unwrap_or(USUAL_LENGTH))
}

/// Spaces that word-based tokenizers leave before punctuation and in English contractions, and what replaces them, in this order.
const SPACED: [(&str, &str); 10] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

/// Removes the spaces that word-based tokenizers leave before punctuation and in English contractions.
pub(crate) fn clean_up(text: &str) -> String {
    SPACED.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Number of bytes at the end of a text that [`clean_up`] could change if more text follows.
fn unclean(text: &str) -> usize {
    let begun = |from: &str| (1..from.len()).rev().find(|&length| text.ends_with(&from[..length]));
    SPACED.iter().filter_map(|&(from, _)| begun(from)).max().unwrap_or(0)
}

fn unreadable(error: tokenizers::Error) -> EngineError {
    invalid_input("the text cannot be tokenized").because(error)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::BTreeMap, fs};

    use serde_json::json;

    use super::*;

    fn load(tokenizer: &str) -> Result<Tokens, EngineError> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("tokenizer.json");
        fs::write(&path, tokenizer).expect("write");
        Tokens::load(&Repository::open(BTreeMap::from([("tokenizer.json".to_owned(), path)]))?)
    }

    pub(crate) fn of(files: &[(&str, serde_json::Value)]) -> Result<Tokens, EngineError> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let written = files.iter().map(|(name, content)| {
            let path = folder.path().join(name);
            fs::write(&path, content.to_string()).expect("write");
            ((*name).to_owned(), path)
        });
        Tokens::load(&Repository::open(written.collect())?)
    }

    /// Pairs have types, and `[UNK]` is normalized.
    pub(crate) fn lowercase() -> serde_json::Value {
        let piece = |id: &str, kind: u32| json!({"Sequence": {"id": id, "type_id": kind}});
        let pair = [piece("A", 0), piece("B", 1)];
        let unknown = json!({"id": 0, "content": "[UNK]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": true});
        json!({
            "version": "1.0", "added_tokens": [unknown], "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing", "single": [piece("A", 0)], "pair": pair, "special_tokens": {}},
            "decoder": null, "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]"},
        })
    }

    #[test]
    fn a_special_token_that_is_normalized_is_left_out_of_texts() {
        let tokens = of(&[("tokenizer.json", lowercase())]).expect("a tokenizer");
        assert_eq!(tokens.encode("a x B").expect("words").get_ids(), [1, 0, 2]);
        assert_eq!(tokens.decode(&[1, 0, 2], true).expect("text"), "a b");
        assert_eq!(tokens.decode(&[1, 0, 2], false).expect("text"), "a [UNK] b");
    }

    #[test]
    fn a_text_is_steady_up_to_what_more_tokens_could_change() {
        let tokens = |cleans_up: bool| {
            let settings = json!({"clean_up_tokenization_spaces": cleans_up});
            of(&[("tokenizer.json", lowercase()), ("tokenizer_config.json", settings)]).expect("a tokenizer")
        };
        let (cleaned, plain) = (tokens(true), tokens(false));
        for (text, steady) in [
            ("it", "it"),
            ("it ", "it"),
            ("it '", "it"),
            ("it 'v", "it"),
            ("it's", "it's"),
            ("ca n'", "ca"),
            ("ca not", "ca not"),
            ("a\u{fffd}", "a"),
            ("a \u{fffd}\u{fffd}", "a"),
        ] {
            assert_eq!(cleaned.steady(text), steady, "{text:?}");
            assert_eq!(plain.steady(text), text.trim_end_matches('\u{fffd}'), "{text:?}");
        }
    }

    #[test]
    fn the_largest_padding_token_leaves_the_fewest_positions() {
        let config =
            json!({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": usize::MAX});
        assert_eq!(positions(&config).expect("numbers"), Some(MIN_LENGTH));
    }

    #[test]
    fn a_setting_overrides_the_length_of_the_tokenizer_but_not_the_positions() {
        let tokens = |config: Value| {
            let files = [
                ("tokenizer.json", lowercase()),
                ("tokenizer_config.json", json!({"model_max_length": 20})),
                ("config.json", config),
            ];
            of(&files).expect("a tokenizer")
        };
        let bert = tokens(json!({"model_type": "bert", "max_position_embeddings": 40}));
        let lengths = [None, Some(12), Some(30), Some(50)].map(|most| bert.max_length_by(most));
        assert_eq!(lengths, [20, 12, 30, 40]);
        let relative = tokens(json!({"model_type": "t5", "n_positions": 40}));
        assert_eq!(relative.max_length_by(Some(50)), 50);
    }

    #[test]
    fn lengths_that_leave_nothing_beside_special_tokens_are_refused() {
        let load = |settings: Value| {
            of(&[("tokenizer.json", lowercase()), ("tokenizer_config.json", settings)])
                .map(|tokens| tokens.max_length)
                .map_err(|error| error.message())
        };
        assert_eq!(load(json!({"model_max_length": 8})), Ok(8));
        assert_eq!(load(json!({"model_max_length": 1e30})), Ok(8192));
        let refused = load(json!({"model_max_length": 3})).expect_err("too few");
        assert_eq!(refused, "tokenizer_config.json: model_max_length = 3 is not supported");
        for (key, value) in
            [("model_max_length", json!("20")), ("model_max_length", json!(-1)), ("max_len", json!([20]))]
        {
            let refused = load(json!({key: value})).expect_err("no length");
            assert_eq!(refused, format!("tokenizer_config.json: {key} = {value} is not supported"));
        }
    }

    #[test]
    fn a_configuration_of_another_kind_is_refused() {
        for (key, value) in [
            ("max_position_embeddings", json!("40")),
            ("n_positions", json!({"text": 40})),
            ("pad_token_id", json!([0])),
            ("pad_token_id", json!("<pad>")),
        ] {
            let files = [("tokenizer.json", lowercase()), ("config.json", json!({key: value}))];
            let refused = of(&files).expect_err("another kind").message();
            assert_eq!(refused, format!("config.json: {key} = {value} is not supported"));
        }
    }

    #[test]
    fn a_prompt_is_counted_without_the_token_at_its_end() {
        let length = |file: &Value| {
            of(&[("tokenizer.json", file.clone())]).expect("a tokenizer").prompt_length("a b").expect("words")
        };
        let mut file = lowercase();
        assert_eq!(length(&file), 2, "nothing ends the texts of this tokenizer");
        let end = json!({"id": 3, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
        file["added_tokens"].as_array_mut().expect("a list").push(end);
        file["post_processor"] = json!({
            "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [3], "tokens": ["</s>"]}},
        });
        assert_eq!(length(&file), 2, "the end follows the text");
    }

    #[test]
    fn texts_in_lower_case_keep_their_special_tokens() {
        let mut file = lowercase();
        file["normalizer"] = Value::Null;
        file["added_tokens"][0]["normalized"] = false.into();
        let mut tokens = of(&[("tokenizer.json", file)]).expect("a tokenizer");
        let ids = |tokens: &Tokens| tokens.encode("A b [UNK]").expect("words").get_ids().to_vec();
        assert_eq!(ids(&tokens), [0, 2, 0]);
        tokens.lower_case().expect("a normalizer");
        assert_eq!(ids(&tokens), [1, 2, 0]);
        assert_eq!(tokens.encode("[UNK]").expect("one token").len(), 1, "it is not read as words");
    }

    #[test]
    fn the_space_beside_a_text_is_without_the_special_tokens_of_a_pair() {
        let mut file = lowercase();
        file["post_processor"] = json!({"type": "RobertaProcessing", "sep": ["b", 2], "cls": ["a", 1], "trim_offsets": true, "add_prefix_space": false});
        let tokens = of(&[("tokenizer.json", file)]).expect("a tokenizer");
        assert_eq!(tokens.space_beside("a b", 20).expect("words"), 14);
        assert_eq!(tokens.encode_cut("a b", Some(&"a ".repeat(30)), 20, 0).expect("cut").len(), 20);
        assert_eq!(tokens.space_beside("a b", 5).expect("words"), 0);
    }

    #[test]
    fn types_of_tokens_are_zeros_where_the_class_has_none() {
        let load = |class: &str, model: &str| {
            of(&[
                ("tokenizer.json", lowercase()),
                ("tokenizer_config.json", json!({"tokenizer_class": class})),
                ("config.json", json!({"model_type": model})),
            ])
            .expect("a tokenizer")
        };
        let types = |class: &str| {
            let pair = load(class, "bert").encode_pair("a", "b", 8).expect("words");
            (pair.get_ids().to_vec(), pair.get_type_ids().to_vec())
        };
        assert_eq!(types("PreTrainedTokenizerFast"), (vec![1, 2], vec![0, 1]));
        assert_eq!(types("GPT2Tokenizer"), (vec![1, 2], vec![0, 0]));
        assert!(load("GPT2Tokenizer", "bert").check_types().is_ok(), "its network has zeros without types");
        assert!(load("PreTrainedTokenizerFast", "xlm").check_types().is_ok());
        let refused = load("GPT2Tokenizer", "xlm").check_types().expect_err("refused").message();
        assert_eq!(refused, "tokenizer_config.json: tokenizer_class = \"GPT2Tokenizer\" is not supported");
    }

    #[test]
    fn a_tokenizer_at_which_the_library_panics_is_refused() {
        let with = |normalizer: &str| {
            let words = r#"{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}"#;
            format!(
                r#"{{"version":"1.0","added_tokens":[],"normalizer":{normalizer},"pre_tokenizer":{{"type":"Whitespace"}},"post_processor":null,"decoder":null,"model":{words}}}"#
            )
        };
        let tokens = load(&with("null")).expect("a tokenizer");
        assert_eq!(tokens.encode("a").expect("a word").get_ids(), [0]);
        let cut = tokens.encode_cut("a a a a", None, 2, 1).expect("cut");
        assert_eq!((cut.len(), cut.get_overflowing().len()), (2, 2));
        let whole = tokens.encode_cut("a a", None, 2, 2).expect("nothing is cut");
        assert_eq!(whole.len(), 2);
        for pair in [None, Some("a a a a")] {
            let refused = tokens.encode_cut("a a a a", pair, 5 - 3 * usize::from(pair.is_none()), 2);
            assert_eq!(refused.expect_err("pieces do not advance").kind(), ErrorKind::InvalidInput);
        }
        let refused = load(&with(r#"{"type":"Precompiled","precompiled_charsmap":null}"#));
        assert_eq!(refused.expect_err("no rules").kind(), ErrorKind::InvalidModel);
        // A table of four gigabytes, which is not there.
        let refused = load(&with(r#"{"type":"Precompiled","precompiled_charsmap":"/P///wAAAAAA"}"#));
        assert!(refused.expect_err("no table").message().contains("state a table"));
    }
}
