//! Every key of the settings tables that is used decides on an answer: with another value, a fixture's answer leaves its tolerance. Keys of which
//! the value here is refused are listed apart: that shows less.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use island_protocol::job::Failure;
use island_runtimes_kit::keys::{self, Effect, Table};
use island_runtimes_onnx::runtime::Onnx;
use island_runtimes_onnx_fixtures::{Case, Fixture, agree, run_job, settings};
use island_testing::flips::{Expected, Outcome};
use serde_json::{Value, json};
use tempfile::TempDir;

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer_config.json";
const PREPROCESSOR: &str = "preprocessor_config.json";
const RANKING: &str = "config_sentence_transformers.json";

/// Another value of a key.
#[derive(Debug, Clone, Copy)]
struct Flip {
    table: &'static Table,
    key: &'static str,
    fixture: &'static str,
    value: &'static str,
    /// The file, and where in it, if not the table's: `modules.json#/2`.
    at: Option<&'static str>,
    /// Settings beside it, without which it has no effect: file, key and value.
    beside: &'static [(&'static str, &'static str, &'static str)],
    /// An input that shows it, instead of the fixture's.
    input: Option<&'static str>,
}

const fn flip(table: &'static Table, key: &'static str, fixture: &'static str, value: &'static str) -> Flip {
    Flip { table, key, fixture, value, at: None, beside: &[], input: None }
}

impl Flip {
    const fn at(self, at: &'static str) -> Self {
        Self { at: Some(at), ..self }
    }

    const fn beside(self, beside: &'static [(&'static str, &'static str, &'static str)]) -> Self {
        Self { beside, ..self }
    }

    const fn input(self, input: &'static str) -> Self {
        Self { input: Some(input), ..self }
    }
}

/// One text, of which letters become a special token.
const TEXT: &str = r#"{"text": "The ship lies in the harbour"}"#;
const LABELLED: &[(&str, &str, &str)] = &[(TOKENIZER, "added_tokens_decoder", "null")];
const SAMPLED: &[(&str, &str, &str)] =
    &[(GENERATION, "do_sample", "true"), (GENERATION, "num_beams", "1"), (GENERATION, "temperature", "3.0")];
const SEEDED: &str = r#"{"text": "The ship lies in the harbour", "seed": 7, "max_new_tokens": 12}"#;
const ONE_TEXT: &str = r#"{"text": "The ship lies in the harbour", "max_new_tokens": 12}"#;
const ONE_BEAM: &[(&str, &str, &str)] = &[(GENERATION, "num_beams", "1")];
const LLAMA: &[(&str, &str, &str)] =
    &[(TOKENIZER, "tokenizer_class", "\"LlamaTokenizerFast\""), (TOKENIZER, "bos_token", "\"<|im_end|>\"")];
/// Tokens that would be generated.
const SUPPRESSED: &str = "[5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40]";
const PROMPTED: &[(&str, &str, &str)] =
    &[(RANKING, "prompts", r#"{"query": "the film was: "}"#), (RANKING, "default_prompt_name", "\"query\"")];
const EMBEDDED: &str = r#"{"input": "The ship lies in the harbour"}"#;

fn model() -> Vec<Flip> {
    let table = &keys::CONFIG;
    let config = |key, fixture, value| flip(table, key, fixture, value);
    vec![
        config("model_type", "whisper", "\"gpt2\""),
        config("attention_type", "distilbert-sst2", "\"block_sparse\"").beside(&[
            (CONFIG, "model_type", "\"big_bird\""),
            (CONFIG, "attention_type", "\"original_full\""),
        ]),
        config("id2label", "distilbert-sst2", r#"{"0": "A", "1": "B"}"#),
        config("label2id", "bart-mnli", r#"{"a": 0, "entailment": 1, "c": 2}"#),
        config("num_labels", "distilbert-sst2", "3").beside(&[(CONFIG, "id2label", "null")]),
        config("problem_type", "bert-toxic", "\"single_label_classification\""),
        config("prefix", "bart-cnn", "\"the the the \""),
        config("task_specific_params", "t5", "{}"),
        config("tokenizer_class", "distilbert-sst2", "\"PreTrainedTokenizerFast\"")
            .beside(&[(TOKENIZER, "tokenizer_class", "null"), (TOKENIZER, "do_lower_case", "false")])
            .input(r#"{"text": "THE SHIP LIES IN THE HARBOUR"}"#),
        config("pad_token_id", "roberta-sentiment", "100")
            .beside(&[(TOKENIZER, "model_max_length", "null"), (CONFIG, "max_position_embeddings", "110")]),
        config("max_position_embeddings", "distilbert-sst2", "12"),
        config("n_positions", "t5", "4"),
        config("decoder", "vit-gpt2", r#"{"model_type": "gpt2", "n_positions": 8}"#),
        config("conv_stride", "wav2vec2", "[5, 2, 2, 2, 2, 2, 4]").input(r#"{"timestamps": "word"}"#),
        config("sampling_rate", "mms-tts", "22050"),
        config("max_target_positions", "whisper", "6"),
        config("median_filter_width", "whisper-timestamped", "1"),
        config("num_mel_bins", "speecht5", "40"),
        config("reduction_factor", "speecht5", "3"),
        config("max_speech_positions", "speecht5", "2"),
        config("max_text_positions", "speecht5", "4"),
        config("speaker_embedding_dim", "speecht5", "16"),
    ]
}

fn generation() -> Vec<Flip> {
    let set = |key, fixture, value| flip(&keys::GENERATION, key, fixture, value);
    vec![
        set("max_length", "marian-merged", "4"),
        set("max_new_tokens", "marian-merged", "3"),
        set("min_length", "marian-merged", "30"),
        set("min_new_tokens", "marian-merged", "30"),
        set("num_beams", "marian-merged", "1"),
        set("do_sample", "marian-merged", "true"),
        set("temperature", "marian-merged", "0.01").beside(SAMPLED).input(SEEDED),
        set("top_k", "marian-merged", "1").beside(SAMPLED).input(SEEDED),
        set("top_p", "marian-merged", "0.001").beside(SAMPLED).input(SEEDED),
        set("min_p", "marian-merged", "1.0").beside(SAMPLED).input(SEEDED),
        set("repetition_penalty", "marian-merged", "5.0"),
        set("encoder_repetition_penalty", "marian-merged", "20.0").beside(ONE_BEAM).input(ONE_TEXT),
        set("no_repeat_ngram_size", "marian-merged", "1"),
        set("encoder_no_repeat_ngram_size", "bart-cnn", "1"),
        set("length_penalty", "marian-merged", "-9.0"),
        set(
            "bad_words_ids",
            "marian-merged",
            "[[5],[6],[7],[8],[9],[10],[11],[12],[13],[14],[15],[16],[17],[18],[19],[20],[21],[22],[23],[24],[25]]",
        ),
        set("sequence_bias", "marian-biased", "null"),
        set("exponential_decay_length_penalty", "marian-biased", "null"),
        set("renormalize_logits", "marian-merged", "false").beside(&[(
            GENERATION,
            "suppress_tokens",
            SUPPRESSED,
        )]),
        set("suppress_tokens", "marian-merged", SUPPRESSED),
        set("begin_suppress_tokens", "marian-merged", SUPPRESSED),
        set("forced_bos_token_id", "bart-cnn", "5"),
        set("forced_eos_token_id", "bart-cnn", "7"),
        set("decoder_start_token_id", "marian-merged", "5"),
        set("bos_token_id", "bart-cnn", "9").beside(&[(GENERATION, "decoder_start_token_id", "null")]),
        set("eos_token_id", "marian-merged", "[5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25]"),
        set("alignment_heads", "whisper-timestamped", "[[0, 0]]"),
        set("is_multilingual", "whisper", "false"),
        set("lang_to_id", "whisper", "{}"),
        set("task_to_id", "whisper", "{}"),
        set("no_timestamps_token_id", "whisper", "5"),
        set("max_initial_timestamp_index", "whisper", "0"),
        set("forced_decoder_ids", "whisper", "[[1, 304], [2, 305]]"),
        set("language", "whisper", "\"xx\""),
        set("task", "whisper", "\"translate\""),
    ]
}

fn tokenizer() -> Vec<Flip> {
    let set = |key, fixture, value| flip(&keys::TOKENIZER, key, fixture, value);
    let role = |key| set(key, "distilbert-sst2", "\"i\"").input(TEXT);
    let mut flips: Vec<Flip> =
        ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
            .map(role)
            .into();
    flips.extend([
        set("tokenizer_class", "distilbert-sst2", "\"JukeboxTokenizer\""),
        set("additional_special_tokens", "distilbert-sst2", "[\"i\"]").input(TEXT),
        set("extra_special_tokens", "distilbert-sst2", "{\"own_token\": \"i\"}").input(TEXT),
        set("added_tokens_decoder", "distilbert-sst2", r#"{"0": {"content": "i", "special": false}}"#)
            .input(TEXT),
        set("model_max_length", "distilbert-sst2", "8"),
        set("max_len", "distilbert-sst2", "8").beside(&[(TOKENIZER, "model_max_length", "null")]),
        set("model_input_names", "bert-qa", r#"["input_ids", "attention_mask"]"#),
        set("truncation_side", "bert-ends", "\"right\""),
        set("clean_up_tokenization_spaces", "roberta-fill-mask", "true")
            .input(r#"{"text": "the ship , the <mask> ."}"#),
        set("do_lower_case", "distilbert-sst2", "false").input(r#"{"text": "THE SHIP LIES IN THE HARBOUR"}"#),
        set("strip_accents", "distilbert-sst2", "false").input(r#"{"text": "thé shïp lîes ïn thé hârbour"}"#),
        set("tokenize_chinese_chars", "distilbert-sst2", "false").input(r#"{"text": "the 中文中文 ship"}"#),
        set("add_prefix_space", "roberta-sentiment", "true").input(r#"{"text": "the ship"}"#),
        set("trim_offsets", "roberta-qa", "false"),
        set("add_bos_token", "qwen3-embedding", "false").beside(LLAMA).input(EMBEDDED),
        set("add_eos_token", "qwen3-embedding", "true").beside(LLAMA).input(EMBEDDED),
        set("legacy_behaviour", "nllb", "true"), // words: ok
        set("word_delimiter_token", "wav2vec2", "\"E\""),
        set("replace_word_delimiter_char", "wav2vec2", "\"_\""),
        set("normalize", "mms-tts", "false"),
        set("add_blank", "mms-tts", "false"),
        // The letter that Romanian is written with, for the one that the vocabulary has.
        set("language", "mms-tts", "\"ron\"")
            .beside(&[("vocab.json", "\u{163}", "30")])
            .input("{\"text\": \"the \u{21b} sea\"}"),
        set("target_lang", "wav2vec2", "\"deu\""),
    ]);
    let map =
        |key, value| flip(&keys::SPECIAL_TOKENS, key, "distilbert-sst2", value).beside(LABELLED).input(TEXT);
    flips.extend(
        ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
            .map(|key| map(key, "\"i\"")),
    );
    flips.push(map("additional_special_tokens", "[\"i\"]"));
    flips
}

fn processors() -> Vec<Flip> {
    let image = |key, fixture, value| flip(&keys::IMAGE_PROCESSOR, key, fixture, value);
    let sound = |key, fixture, value| flip(&keys::FEATURE_EXTRACTOR, key, fixture, value);
    vec![
        image("image_processor_type", "vit", "\"JukeboxImageProcessor\""),
        image("feature_extractor_type", "vit", "\"JukeboxFeatureExtractor\"").beside(&[(
            PREPROCESSOR,
            "image_processor_type",
            "null",
        )]),
        image("do_resize", "vit", "false"),
        image("size", "vit", r#"{"height": 24, "width": 24}"#),
        image("max_size", "detr", "40")
            .beside(&[(PREPROCESSOR, "size", "64"), (PREPROCESSOR, "pad_size", "null")]),
        image("size_divisor", "depth-anything", "28").beside(&[(
            PREPROCESSOR,
            "image_processor_type",
            "\"GLPNImageProcessor\"",
        )]),
        image("size_divisibility", "resnet", "32"),
        image("keep_aspect_ratio", "depth-anything", "false"),
        image("ensure_multiple_of", "depth-anything", "28"),
        image("resample", "vit", "0"),
        image("do_center_crop", "pictures-efficientnet", "true"),
        image("crop_size", "pictures-levit", r#"{"height": 40, "width": 40}"#),
        image("crop_pct", "pictures-poolformer", "0.5"),
        image("do_rescale", "vit", "false"),
        image("rescale_factor", "vit", "0.001"),
        image("rescale_offset", "pictures-efficientnet", "false"),
        image("do_normalize", "vit", "false"),
        image("image_mean", "vit", "[0.1, 0.2, 0.3]"),
        image("image_std", "vit", "[0.1, 0.2, 0.3]"),
        image("include_top", "pictures-efficientnet", "false"),
        image("do_flip_channel_order", "vit", "true"),
        image("do_pad", "pictures-donut", "false"),
        image("pad_size", "detr", r#"{"height": 400, "width": 400}"#),
        image("do_thumbnail", "pictures-donut", "false"),
        image("do_align_long_axis", "pictures-donut", "false"),
        sound("feature_extractor_type", "whisper", "\"SeamlessM4TFeatureExtractor\""),
        sound("sampling_rate", "wav2vec2", "8000"),
        sound("feature_size", "whisper", "40"),
        sound("hop_length", "whisper", "80"),
        sound("n_fft", "whisper", "200"),
        sound("chunk_length", "whisper", "4"),
        sound("do_normalize", "moonshine", "true"),
        flip(&keys::PROCESSOR, "processor_class", "whisper", "\"JukeboxProcessor\""),
    ]
}

fn embedding() -> Vec<Flip> {
    let pooling = |key, fixture, value| flip(&keys::POOLING, key, fixture, value).at("1_Pooling/config.json");
    let gliner = |key, value| flip(&keys::GLINER, key, "gliner", value);
    vec![
        flip(&keys::MODULE, "type", "embedding-layers", "\"sentence_transformers.models.Router\"")
            .at("modules.json#/2"),
        flip(&keys::MODULE, "path", "embedding-layers", "\"3_LayerNorm\"").at("modules.json#/2"),
        flip(&keys::TRANSFORMER, "max_seq_length", "minilm", "8"),
        flip(&keys::TRANSFORMER, "do_lower_case", "qwen3-embedding", "true")
            .input(r#"{"input": "THE SHIP LIES IN THE HARBOUR"}"#),
        pooling("pooling_mode", "embedding-layers", "\"max\""),
        pooling("pooling_mode_cls_token", "minilm", "true"),
        pooling("pooling_mode_max_tokens", "minilm", "true"),
        pooling("pooling_mode_mean_tokens", "bge", "true"),
        pooling("pooling_mode_mean_sqrt_len_tokens", "minilm", "true"),
        pooling("pooling_mode_weightedmean_tokens", "minilm", "true"),
        pooling("pooling_mode_lasttoken", "minilm", "true"),
        pooling("include_prompt", "bge", "false"),
        flip(&keys::DENSE, "bias", "embedding-layers", "false").at("2_Dense/config.json"),
        flip(&keys::DENSE, "activation_function", "embedding-layers", "\"torch.nn.modules.linear.Identity\"")
            .at("2_Dense/config.json"),
        flip(&keys::SENTENCE_TRANSFORMERS, "prompts", "bge", "{}"),
        flip(&keys::SENTENCE_TRANSFORMERS, "default_prompt_name", "bge", "\"query\""),
        flip(&keys::SENTENCE_TRANSFORMERS, "truncate_dim", "minilm", "4"),
        flip(&keys::RANKING_TRANSFORMER, "max_seq_length", "bert-rank", "12"),
        flip(&keys::RANKING_TRANSFORMER, "do_lower_case", "bert-rank", "true")
            .beside(&[(TOKENIZER, "do_lower_case", "false")])
            .input(r#"{"query": "WHICH TRAIN?", "documents": ["THE TRAIN FROM BERLIN"]}"#),
        flip(&keys::RANKING, "prompts", "bert-rank", "{}").beside(PROMPTED),
        flip(&keys::RANKING, "default_prompt_name", "bert-rank", "\"query\"").beside(&PROMPTED[..1]),
        gliner("max_width", "1"),
        gliner("max_len", "3"),
        gliner("ent_token", "\"<<SEP>>\""),
        gliner("sep_token", "\"<<ENT>>\""),
        gliner("span_mode", "\"token_level\""),
        gliner("words_splitter_type", "\"spacy\""),
    ]
}

/// Keys that no fixture of this engine can show, and what shows them.
const ELSEWHERE: [(&str, &str, &str); 2] = [
    (
        GENERATION,
        "early_stopping",
        "the option of a job with this name: `never-early` of bart-cnn, `short-beams` of marian",
    ),
    (TOKENIZER, "chat_template", "for language models: `runtimes/coreml/tests/coreml/answers.rs` has one"),
];

/// Keys with classes and names, of which another value is refused by the name of the key.
const REFUSED: &[(&str, &str)] = &[
    (CONFIG, "model_type"),
    (CONFIG, "attention_type"),
    (GENERATION, "do_sample"),
    (GENERATION, "language"),
    (TOKENIZER, "tokenizer_class"),
    (TOKENIZER, "target_lang"),
    (PREPROCESSOR, "image_processor_type"),
    (PREPROCESSOR, "feature_extractor_type"),
    (PREPROCESSOR, "pad_size"),
    ("processor_config.json", "processor_class"),
    ("modules.json", "type"),
    ("gliner_config.json", "span_mode"),
    ("gliner_config.json", "words_splitter_type"),
];

/// Keys by fixture with which its weights, its texts or its other settings no longer fit: what is refused is what they lead to.
const MISFITS: &[(&str, &str)] = &[
    ("distilbert-sst2", "num_labels"),
    ("roberta-sentiment", "pad_token_id"),
    ("distilbert-sst2", "max_position_embeddings"),
    ("speecht5", "num_mel_bins"),
    ("speecht5", "reduction_factor"),
    ("speecht5", "max_text_positions"),
    ("speecht5", "speaker_embedding_dim"),
    ("whisper", "task_to_id"),
    ("distilbert-sst2", "model_max_length"),
    ("distilbert-sst2", "max_len"),
    ("vit", "do_resize"),
    ("vit", "size"),
    ("pictures-donut", "do_thumbnail"),
    ("whisper", "feature_size"),
    ("whisper", "hop_length"),
    ("whisper", "chunk_length"),
    ("embedding-layers", "path"),
    ("embedding-layers", "pooling_mode"),
    ("bge", "prompts"),
    ("bert-rank", "prompts"),
    ("t5", "task_specific_params"),
    ("gliner", "max_width"),
];

/// What another value of a key does by the lists.
fn expected(flip: &Flip) -> Expected {
    if REFUSED.contains(&(flip.table.file, flip.key)) {
        Expected::RefusedByName
    } else if MISFITS.contains(&(flip.fixture, flip.key)) {
        Expected::Misfit
    } else {
        Expected::Another
    }
}

#[tokio::test]
async fn another_value_of_a_used_key_is_another_answer() {
    let flips = [model(), generation(), tokenizer(), processors(), embedding()].concat();
    every_used_key_is_flipped(&flips);
    let only = island_testing::selection("FLIP").unwrap_or_default();
    let mut without = Vec::new();
    for flip in flips.iter().filter(|flip| flip.key.contains(&only)) {
        let at = format!("{} {} = {} ({})", flip.table.file, flip.key, flip.value, flip.fixture);
        let why = match outcome(flip).await {
            Ok(outcome) => outcome.differs(flip.key, expected(flip)),
            Err(why) => Some(why),
        };
        without.extend(why.map(|why| format!("{at}: {why}")));
    }
    assert!(without.is_empty(), "{} of {}:\n{}", without.len(), flips.len(), without.join("\n"));
}

fn every_used_key_is_flipped(flips: &[Flip]) {
    let flipped: BTreeSet<(&str, &str, &str)> =
        flips.iter().map(|flip| (flip.table.file, flip.table.of, flip.key)).collect();
    let of_engine = [
        &keys::CONFIG,
        &keys::GENERATION,
        &keys::TOKENIZER,
        &keys::SPECIAL_TOKENS,
        &keys::IMAGE_PROCESSOR,
        &keys::FEATURE_EXTRACTOR,
        &keys::PROCESSOR,
        &keys::GLINER,
        &keys::MODULE,
        &keys::TRANSFORMER,
        &keys::POOLING,
        &keys::DENSE,
        &keys::SENTENCE_TRANSFORMERS,
        &keys::RANKING_TRANSFORMER,
        &keys::RANKING,
    ];
    let mut missing = Vec::new();
    for table in of_engine {
        let used = table.keys.iter().filter(|(_, effect)| matches!(effect, Effect::Used | Effect::OneOf(_)));
        for (key, _) in used {
            let elsewhere = ELSEWHERE.iter().any(|(file, other, _)| *file == table.file && other == key);
            if elsewhere == flipped.contains(&(table.file, table.of, *key)) {
                missing.push(format!("{} of {:?}: {key}", table.file, table.of));
            }
        }
    }
    assert!(missing.is_empty(), "flipped neither here nor elsewhere, or both:\n{}", missing.join("\n"));
}

/// What the other value of a key does, in the first case that it changes.
async fn outcome(flip: &Flip) -> Result<Outcome, String> {
    let fixture = Fixture::named(flip.fixture);
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut files = fixture.files();
    for (file, key, value) in flip.beside {
        set(&folder, &mut files, file, key, value)?;
    }
    let before = files.clone();
    set(&folder, &mut files, flip.at.unwrap_or(flip.table.file), flip.key, flip.value)?;
    let mut cases = fixture.cases.clone();
    if let Some(input) = flip.input {
        let wanted: Value = serde_json::from_str(input).expect("JSON");
        let mut case = cases.swap_remove(0);
        match wanted.as_object() {
            // Added to the fixture's sound.
            Some(more) if case.input.get("audio").is_some() => {
                more.iter().for_each(|(name, value)| case.input[name] = value.clone());
            }
            _ => case.input = wanted,
        }
        cases = vec![case];
    }
    if flip.input.is_some() || !flip.beside.is_empty() {
        // What surrounds it is not the reference's, so that the answers before are compared with.
        for case in &mut cases {
            let before = answer(&fixture, case, &before).await;
            case.output = before.map_err(|failure| format!("without it: {}", failure.message))?;
        }
    }
    for case in &cases {
        match answer(&fixture, case, &files).await {
            Ok(output) if agree(&fixture, case, &output).is_empty() => {}
            Ok(_) => return Ok(Outcome::Another),
            Err(failure) => return Ok(Outcome::Refused(failure.message)),
        }
    }
    Ok(Outcome::Same)
}

async fn answer(fixture: &Fixture, case: &Case, files: &BTreeMap<String, PathBuf>) -> Result<Value, Failure> {
    let cargo = fixture.cargo(fixture.task_of(case));
    let engine = Onnx::load(settings(cargo.clone(), files.clone())).await?;
    run_job(&engine, cargo, fixture.input(case)).await
}

/// Sets a key of a file, in a copy of it: null removes it.
fn set(
    folder: &TempDir,
    files: &mut BTreeMap<String, PathBuf>,
    at: &str,
    key: &str,
    value: &str,
) -> Result<(), String> {
    let (file, place) = at.split_once('#').unwrap_or((at, ""));
    let mut content = match files.get(file) {
        Some(path) => serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON"),
        None => json!({}),
    };
    let value: Value = serde_json::from_str(value).expect("JSON");
    let object = content.pointer_mut(place).ok_or_else(|| format!("{at} is not there"))?;
    if value.is_null() {
        object.as_object_mut().expect("an object").remove(key);
    } else if object.get(key) == Some(&value) {
        return Err(format!("{file} has {key} = {value} already"));
    } else {
        object[key] = value;
    }
    let path = unused(folder.path());
    fs::write(&path, content.to_string()).expect("written");
    files.insert(file.to_owned(), path);
    Ok(())
}

fn unused(folder: &Path) -> PathBuf {
    folder.join(fs::read_dir(folder).expect("readable").count().to_string())
}
