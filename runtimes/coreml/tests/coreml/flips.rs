//! Every key of Core ML's own tables that is used decides on an answer, and so do settings beside a model: with another value, a fixture's answer
//! leaves its tolerance, or the model is refused. Each key of the other tables, which the same code reads, is in `runtimes/onnx/tests/onnx/flips.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use island_protocol::job::Outcome as Ended;
use island_runtimes_kit::keys::{self, Effect, Table};
use island_testing::flips::{Expected, Outcome};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Fixture,
    check::{check, load_files, suite},
};

/// Metadata of the compiled model.
const METADATA: &str = "Model.mlmodelc/metadata.json";

/// Another value of a key.
struct Flip {
    table: &'static Table,
    key: &'static str,
    fixture: &'static str,
    value: Value,
}

fn flip(table: &'static Table, key: &'static str, fixture: &'static str, value: Value) -> Flip {
    Flip { table, key, fixture, value }
}

fn flips() -> Vec<Flip> {
    let compiled = |key, value| flip(&keys::COMPILED, key, "bert-dynamic", value);
    let sound = |key, fixture, value| flip(&keys::FEATURE_EXTRACTOR, key, fixture, value);
    let letters = |key, value| flip(&keys::TOKENIZER, key, "mel-labels", value);
    let generation = |key, value| flip(&keys::GENERATION, key, "llama", value);
    let tokens: Vec<u32> = (3..309).collect();
    let other = json!([{"name": "other", "type": "MultiArray", "dataType": "Float32", "shape": "[1, 1, 1]"}]);
    vec![
        compiled("modelType", json!({"name": "MLModelType_neuralNetwork"})),
        compiled("inputSchema", json!([])),
        compiled("outputSchema", other),
        compiled("functions", json!([{"name": "main", "inputSchema": [], "outputSchema": []}])),
        sound("feature_extractor_type", "mel-labels", json!("SeamlessM4TFeatureExtractor")),
        sound("sampling_rate", "wav2vec2", json!(8000)),
        sound("feature_size", "mel-labels", json!(40)),
        sound("hop_length", "mel-labels", json!(80)),
        sound("n_fft", "mel-labels", json!(200)),
        sound("chunk_length", "mel-labels", json!(4)),
        letters("tokenizer_class", json!("JukeboxTokenizer")),
        letters("target_lang", json!("deu")),
        letters("pad_token", json!("E")),
        letters("word_delimiter_token", json!("Z")),
        letters("replace_word_delimiter_char", json!("_")),
        letters("do_lower_case", json!(true)),
        flip(&keys::TOKENIZER, "chat_template", "llama", json!("{{ messages[0].content }}")),
        generation("eos_token_id", json!(tokens)),
        generation("suppress_tokens", json!(tokens)),
    ]
}

/// Keys that no fixture can show, and what shows them.
const ELSEWHERE: [(&str, &str, &str); 4] = [
    ("metadata.json", "stateSchema", "for the library of macOS: `native.rs`"),
    ("metadata.json", "userDefinedMetadata", "the tests of `src/package/labels.rs`"),
    ("userDefined", "com.apple.coreml.model.preview.params", "the tests of `src/package/labels.rs`"),
    ("preprocessor_config.json", "do_normalize", "`runtimes/onnx/tests/onnx/flips.rs`"),
];

/// Keys of which another value is refused by the name of the key.
const REFUSED: &[(&str, &str)] = &[
    ("metadata.json", "modelType"),
    ("preprocessor_config.json", "feature_extractor_type"),
    ("tokenizer_config.json", "tokenizer_class"),
    ("tokenizer_config.json", "target_lang"),
];

/// Keys with which the model or a job no longer fits: what is refused is what they lead to.
const MISFITS: &[(&str, &str)] = &[
    ("metadata.json", "inputSchema"),
    ("metadata.json", "outputSchema"),
    ("metadata.json", "functions"),
    ("preprocessor_config.json", "feature_size"),
    ("preprocessor_config.json", "hop_length"),
    ("preprocessor_config.json", "chunk_length"),
];

/// What another value of a key does by the lists.
fn expected(flip: &Flip) -> Expected {
    if REFUSED.contains(&(flip.table.file, flip.key)) {
        Expected::RefusedByName
    } else if MISFITS.contains(&(flip.table.file, flip.key)) {
        Expected::Misfit
    } else {
        Expected::Another
    }
}

#[tokio::test]
async fn another_value_of_a_used_key_is_another_answer() {
    let flips = flips();
    every_used_key_is_flipped(&flips);
    let mut without = Vec::new();
    for flip in &flips {
        let at = format!("{} {} = {} ({})", flip.table.file, flip.key, flip.value, flip.fixture);
        let why = outcome(flip).await.differs(flip.key, expected(flip));
        without.extend(why.map(|why| format!("{at}: {why}")));
    }
    assert!(without.is_empty(), "{} of {}:\n{}", without.len(), flips.len(), without.join("\n"));
}

#[tokio::test]
async fn settings_of_another_kind_are_refused() {
    for (table, key, fixture, value) in [
        (&keys::CONFIG, "conv_kernel", "wav2vec2", json!([10, "3"])),
        (&keys::CONFIG, "conv_stride", "wav2vec2", json!("5")),
        (&keys::FEATURE_EXTRACTOR, "sampling_rate", "wav2vec2", json!("16000")),
        (&keys::TOKENIZER, "word_delimiter_token", "mel-labels", json!(4)),
        (&keys::TOKENIZER, "chat_template", "llama", json!(5)),
    ] {
        let folder = tempfile::tempdir().expect("temporary folder");
        let flip = flip(table, key, fixture, value);
        let fixture = Fixture::named(fixture);
        let mut files = fixture.files();
        set(&folder, &mut files, table.file, &flip);
        let refused = load_files(&fixture, files).await.expect_err("another kind").message;
        assert_eq!(refused, format!("{}: {key} = {} is not supported", table.file, flip.value));
    }
}

fn every_used_key_is_flipped(flips: &[Flip]) {
    let flipped: BTreeSet<(&str, &str)> = flips.iter().map(|flip| (flip.table.file, flip.key)).collect();
    let mut missing = Vec::new();
    for table in [&keys::COMPILED, &keys::NOTES, &keys::FEATURE_EXTRACTOR] {
        let used = table.keys.iter().filter(|(_, effect)| matches!(effect, Effect::Used | Effect::OneOf(_)));
        for (key, _) in used {
            let elsewhere = ELSEWHERE.iter().any(|(file, other, _)| *file == table.file && other == key);
            if elsewhere == flipped.contains(&(table.file, *key)) {
                missing.push(format!("{}: {key}", table.file));
            }
        }
    }
    assert!(missing.is_empty(), "flipped neither here nor elsewhere, or both:\n{}", missing.join("\n"));
}

/// What the other value of a key does.
async fn outcome(flip: &Flip) -> Outcome {
    let fixture = Fixture::named(flip.fixture);
    let folder = tempfile::tempdir().expect("temporary folder");
    let is_compiled = flip.table.file == keys::COMPILED.file;
    let mut files = if is_compiled { compiled(&fixture, &folder) } else { fixture.files() };
    let before = answers(&fixture, files.clone()).await;
    assert_eq!(before, Outcome::Same, "{} without another {}", flip.fixture, flip.key);
    set(&folder, &mut files, if is_compiled { METADATA } else { flip.table.file }, flip);
    answers(&fixture, files).await
}

/// What the answers of a fixture are with these files.
async fn answers(fixture: &Fixture, files: BTreeMap<String, PathBuf>) -> Outcome {
    let engine = match load_files(fixture, files).await {
        Ok(engine) => engine,
        Err(failure) => return Outcome::Refused(failure.message),
    };
    let suite = suite(fixture, Vec::new(), Value::Null, Vec::new());
    for answer in &fixture.answers {
        let played = suite.play(&engine, &fixture.filled(&answer.input)).await;
        if let Ended::Failed { failure, .. } = &played.outcome {
            return Outcome::Refused(failure.message.clone());
        }
        if check(fixture, answer, &played).is_some() {
            return Outcome::Another;
        }
    }
    Outcome::Same
}

/// The files of `bert-dynamic` with its model in compiled form: a text, weights and metadata.
fn compiled(fixture: &Fixture, folder: &TempDir) -> BTreeMap<String, PathBuf> {
    const WEIGHTS: &str = "Model.mlpackage/Data/com.apple.CoreML/weights/weight.bin";
    let tokens = |name: &str| {
        json!({
            "name": name, "type": "MultiArray", "dataType": "Int32", "shape": "[1, 1]", "shapeRange": "[[1, 1], [1, 96]]",
        })
    };
    let metadata = json!([{
        "modelType": {"name": "MLModelType_mlProgram"},
        "inputSchema": [tokens("input_ids"), tokens("attention_mask")],
        "outputSchema": [{"name": "last_hidden_state", "type": "MultiArray", "dataType": "Float32", "shape": "[1, 1, 1]"}],
    }]);
    let mut files = fixture.files();
    let weights = files.remove(WEIGHTS).expect("the weights");
    files.retain(|name, _| !name.starts_with("Model.mlpackage/"));
    files.insert("Model.mlmodelc/model.mil".to_owned(), fixture.folder.join("Model.new.mil"));
    files.insert("Model.mlmodelc/weights/weight.bin".to_owned(), weights);
    files.insert(METADATA.to_owned(), written(folder, &metadata));
    files
}

/// Sets a key of a file, in a copy of it.
fn set(folder: &TempDir, files: &mut BTreeMap<String, PathBuf>, file: &str, flip: &Flip) {
    let mut content = match files.get(file) {
        Some(path) => serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON"),
        None => json!({}),
    };
    let object: &mut Value = if content.is_array() { &mut content[0] } else { &mut content };
    assert_ne!(object.get(flip.key), Some(&flip.value), "{file} has it already");
    object[flip.key] = flip.value.clone();
    files.insert(file.to_owned(), written(folder, &content));
}

/// A new file in a folder.
fn written(folder: &TempDir, content: &Value) -> PathBuf {
    let count = fs::read_dir(folder.path()).expect("readable").count();
    let path = folder.path().join(format!("{count}.json"));
    fs::write(&path, content.to_string()).expect("written");
    path
}
