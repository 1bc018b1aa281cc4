//! SpeechT5 and Supertonic: tokenization, speakers, and invalid inputs.

use std::{collections::BTreeMap, fs, path::PathBuf};

use island_protocol::job::{Failure, FailureCode, Fault};
use island_runtimes_kit::error::ErrorKind;
use island_runtimes_kit::repository::Repository;
use island_runtimes_onnx::{
    runtime::Onnx,
    speech::tts::{characters::Characters, numbers},
};
use island_runtimes_onnx_fixtures::{Fixture, run_job, settings};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The library's tokens of texts, and its spelling of numbers.
#[derive(Debug, Deserialize)]
struct Readings {
    texts: Vec<Reading>,
    numbers: Vec<Spelling>,
}

#[derive(Debug, Deserialize)]
struct Reading {
    text: String,
    ids: Vec<i64>,
}

#[derive(Debug, Deserialize)]
struct Spelling {
    text: String,
    spelt: String,
}

fn readings(fixture: &Fixture) -> Readings {
    let text = fs::read(fixture.folder.join("readings.json")).expect("readings");
    serde_json::from_slice(&text).expect("readings")
}

#[test]
fn characters_equal_the_reference() {
    for name in ["speecht5", "speecht5-split"] {
        let fixture = Fixture::named(name);
        let repository = Repository::open(fixture.files()).expect("a repository");
        let settings = repository.json("tokenizer_config.json").expect("readable").expect("settings");
        let characters = Characters::of(&repository, &settings).expect("characters");
        let texts = readings(&fixture).texts;
        assert!(texts.len() > 5, "{name} has too few texts");
        for Reading { text, ids } in texts {
            assert_eq!(characters.read_any(&text).expect("read"), ids, "{name}: {text:?}");
        }
    }
}

#[test]
fn numbers_are_spelled_as_the_reference_spells_them() {
    let numbers = readings(&Fixture::named("speecht5")).numbers;
    assert!(numbers.len() > 20);
    for Spelling { text, spelt } in numbers {
        assert_eq!(numbers::spell(&text).expect("spelt"), spelt, "{text:?}");
    }
    let long = "9".repeat(37);
    assert_eq!(numbers::spell(&long).expect_err("too long").kind(), ErrorKind::InvalidInput);
}

/// A voice that differs from the fixture's.
struct Voice {
    fixture: Fixture,
    files: BTreeMap<String, PathBuf>,
    folder: TempDir,
}

impl Voice {
    fn of(name: &str) -> Self {
        let fixture = Fixture::named(name);
        Self { files: fixture.files(), fixture, folder: tempfile::tempdir().expect("a folder") }
    }

    fn without(mut self, name: &str) -> Self {
        self.files.remove(name).expect("it was there");
        self
    }

    fn with(mut self, name: &str, bytes: &[u8]) -> Self {
        let path = self.folder.path().join(name.replace('/', "-"));
        fs::write(&path, bytes).expect("written");
        self.files.insert(name.to_owned(), path);
        self
    }

    /// With other settings of the engine.
    fn set(mut self, engine: Value) -> Self {
        self.fixture.engine = engine;
        self
    }

    /// With another value in its `config.json`.
    fn configured(self, name: &str, value: Value) -> Self {
        let mut config: Value =
            serde_json::from_slice(&fs::read(&self.files["config.json"]).expect("read")).expect("JSON");
        config[name] = value;
        let config = config.to_string();
        self.with("config.json", config.as_bytes())
    }

    async fn load(&self) -> Result<Onnx, Failure> {
        Onnx::load(settings(self.fixture.cargo("text-to-speech"), self.files.clone()))
            .await
            .map_err(Failure::from)
    }

    async fn synthesize(&self, engine: &Onnx, input: Value) -> Result<Value, Failure> {
        run_job(engine, self.fixture.cargo("text-to-speech"), input).await
    }

    /// The reason why it does not load, an error of the Cargo.
    async fn refused(&self) -> String {
        let failure = self.load().await.expect_err("it must not load");
        assert_eq!((failure.fault, failure.code), (Fault::Job, FailureCode::ModelRejected), "{failure:?}");
        failure.message
    }
}

fn seconds(output: &Value) -> f64 {
    output["seconds"].as_f64().expect("seconds")
}

#[tokio::test]
async fn unspeakable_inputs_are_rejected() {
    let voice = Voice::of("speecht5");
    let engine = voice.load().await.expect("loads");
    let speaker = |count: usize, last: Value| {
        let mut numbers = vec![json!(0.5); count - 1];
        numbers.push(last);
        json!({ "text": "a", "speaker_embeddings": numbers })
    };
    let long = "a".repeat(200);
    for (input, code, why) in [
        (json!({ "text": "" }), FailureCode::InvalidInput, "text is empty"),
        (json!({ "text": " \n" }), FailureCode::InvalidInput, "text is empty"),
        (json!({ "text": "🙂 🙂" }), FailureCode::InvalidInput, "no character of this voice"),
        (json!({ "text": "a".repeat(5001) }), FailureCode::InvalidInput, "5001 characters"),
        (json!({ "text": long }), FailureCode::ContextLengthExceeded, "201 characters, the voice takes 95"),
        (json!({ "text": "7".repeat(40) }), FailureCode::InvalidInput, "40 digits"),
        (json!({ "text": "a", "speaker_embeddings": [] }), FailureCode::InvalidInput, "0 numbers"),
        (speaker(511, json!(1)), FailureCode::InvalidInput, "they are 511 numbers, the model takes 512"),
        (speaker(513, json!(1)), FailureCode::InvalidInput, "513 numbers"),
        (speaker(512, json!(1e300)), FailureCode::InvalidInput, "number 511 is not finite"),
        (speaker(512, json!("x")), FailureCode::InvalidInput, "does not fit the task"),
        (speaker(512, Value::Null), FailureCode::InvalidInput, "does not fit the task"),
    ] {
        let failure = voice.synthesize(&engine, input).await.expect_err(why);
        assert_eq!((failure.fault, failure.code), (Fault::Job, code), "{}", failure.message);
        assert!(failure.message.contains(why), "{:?} does not contain {why:?}", failure.message);
    }
    let spoken =
        voice.synthesize(&engine, json!({ "text": "The sea is calm." })).await.expect("the next job runs");
    assert!(seconds(&spoken) > 0.1);
}

#[tokio::test]
async fn missing_parts_of_a_voice_are_named() {
    let voice = || Voice::of("speecht5");
    let vocoder = "onnx/decoder_postnet_and_vocoder.onnx";
    assert!(voice().without(vocoder).refused().await.contains("has no vocoder"));
    assert!(voice().without("onnx/encoder_model.onnx").refused().await.contains("has no encoder"));
    let half = Voice::of("speecht5-split").without("decoder_with_past_model.onnx");
    assert!(half.refused().await.contains("decoder_with_past_model"));
    let none = voice().without("spm_char.model");
    assert!(none.refused().await.contains("neither spm_char.model nor tokenizer.json"));
    let model = fs::read(&voice().files["spm_char.model"]).expect("read");
    let cut = voice().with("spm_char.model", &model[..model.len() / 2 - 1]);
    assert!(cut.refused().await.contains("spm_char.model"));
    // One more piece, `ab`, a normal one.
    let words = voice().with("spm_char.model", &[&model[..], b"\x0a\x04\x0a\x02ab"].concat());
    assert!(words.refused().await.contains("not a model of single characters"));
    assert!(voice().with("spm_char.model", b"").refused().await.contains("no piece for unknown"));
    assert!(voice().configured("num_mel_bins", json!(0)).refused().await.contains("num_mel_bins"));
    assert!(voice().set(json!({ "maxlenratio": -1 })).refused().await.contains("maxlenratio"));
}

#[tokio::test]
async fn speaker_file_is_checked_when_the_voice_is_loaded() {
    let voice = || Voice::of("speecht5");
    let name = "speaker_embeddings.bin";
    let whole = fs::read(&voice().files[name]).expect("read");
    assert!(voice().with(name, &whole[..2044]).refused().await.contains("511 numbers, the model takes 512"));
    assert!(voice().with(name, &whole[..2043]).refused().await.contains("not a whole number of floats"));
    let mut broken = whole;
    broken[400..404].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(voice().with(name, &broken).refused().await.contains("number 100 is not finite"));
    let named = voice().set(json!({ "speaker_embeddings": "speakers/none.npy" }));
    assert!(named.refused().await.contains("speakers/none.npy is not among its files"));

    let nobody = voice().without(name);
    let engine = nobody.load().await.expect("loads without a speaker");
    let failure = nobody.synthesize(&engine, json!({ "text": "a boat" })).await.expect_err("no speaker");
    assert_eq!(failure.code, FailureCode::InvalidInput);
    assert!(failure.message.contains("speaker_embeddings are missing"), "{}", failure.message);
    let own = json!({ "text": "a boat", "speaker_embeddings": vec![0.1; 512] });
    nobody.synthesize(&engine, own).await.expect("the job's own speaker speaks");
}

#[tokio::test]
async fn decoder_that_never_ends_is_stopped() {
    // Two frames a step, 256 samples each, at 16 kHz.
    let step = 2.0 * 256.0 / 16_000.0;
    let text = json!({ "text": "a small boat" });
    let usual = Voice::of("speecht5-split").set(json!({ "speaker_embeddings": "speakers/awb.npy" }));
    let engine = usual.load().await.expect("loads");
    let output = usual.synthesize(&engine, text.clone()).await.expect("spoken");
    // Twenty frames for each of thirteen characters and the end.
    assert!((seconds(&output) - 14.0 * 10.0 * step).abs() < 0.01, "{}", seconds(&output));
    let narrow = usual.configured("max_speech_positions", json!(23));
    let engine = narrow.load().await.expect("loads");
    let output = narrow.synthesize(&engine, text).await.expect("spoken");
    assert!((seconds(&output) - 23.0 * step).abs() < 0.01, "{}", seconds(&output));
}

#[tokio::test]
async fn nan_weights_are_an_error_of_the_voice() {
    let voice = Voice::of("speecht5");
    for name in ["encoder_model", "decoder_model_merged", "decoder_postnet_and_vocoder"] {
        let name = format!("onnx/{name}.onnx");
        let mut graph = fs::read(&voice.files[&name]).expect("read");
        let tensor = longest_run_of_floats(&graph);
        graph[tensor].fill(0xff);
        let broken = Voice::of("speecht5").with(&name, &graph);
        let failure = broken.load().await.expect_err(&name);
        assert_eq!((failure.fault, failure.code), (Fault::Job, FailureCode::ModelRejected));
        let message = failure.message;
        assert!(message.contains("weights are broken") && message.contains(&name), "{name}: {message}");
    }
}

/// The longest range of a file that reads as small numbers: a tensor's data.
fn longest_run_of_floats(file: &[u8]) -> std::ops::Range<usize> {
    let small = |at: usize| {
        let number = f32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]]);
        number.abs() < 100.0 && number.abs() > 1e-7
    };
    let mut best = (0, 0);
    for phase in 0..4 {
        let mut begin = phase;
        for at in (phase..file.len() - 4).step_by(4) {
            if !small(at) {
                begin = at + 4;
            } else if at - begin > best.0 {
                best = (at - begin, begin);
            }
        }
    }
    assert!(best.0 > 1000, "no tensor was found");
    best.1..best.1 + best.0
}

#[tokio::test]
async fn voice_of_one_speaker_rejects_another() {
    let fixture = Fixture::named("mms-tts");
    let engine = fixture.load("text-to-speech").await.expect("loads");
    let input = json!({ "text": "the sea", "speaker_embeddings": vec![0.1; 512] });
    let failure = run_job(&engine, fixture.cargo("text-to-speech"), input).await.expect_err("one speaker");
    assert_eq!(failure.code, FailureCode::InvalidInput);
    assert!(failure.message.contains("leave out speaker_embeddings"), "{}", failure.message);
}

#[tokio::test]
async fn supertonic_rejects_what_it_cannot_speak_and_names_what_it_can() {
    let voice = Voice::of("supertonic");
    let engine = voice.load().await.expect("loads");
    for (input, why) in [
        (json!({ "text": " " }), "text is empty"),
        (json!({ "text": "中文 🙂 …" }), "no character of this voice"),
        (json!({ "text": "a", "voice": "F9" }), "there is no voice \"F9\"; there are F1, M1"),
        (json!({ "text": "a", "language": "xx" }), "\"xx\" is unknown; known: en, de, ko, na"),
        (json!({ "text": "a", "speed": 3 }), "speed is 3, it must be between 0.7 and 2"),
        (json!({ "text": "a", "steps": 0 }), "steps is 0, it must be between 1 and 100"),
        (json!({ "text": "a", "seed": -1 }), "does not fit the task"),
    ] {
        let failure = voice.synthesize(&engine, input).await.expect_err(why);
        assert_eq!((failure.fault, failure.code), (Fault::Job, FailureCode::InvalidInput), "{failure:?}");
        assert!(failure.message.contains(why), "{:?} does not contain {why:?}", failure.message);
    }
    let speak = async |input| voice.synthesize(&engine, input).await.expect("spoken");
    let usual = speak(json!({ "text": "The sea is calm. 中" })).await;
    assert_eq!(usual, speak(json!({ "text": "The sea is calm.", "seed": 0, "language": "na" })).await);
    for other in
        [json!({ "seed": 1 }), json!({ "voice": "M1" }), json!({ "language": "de" }), json!({ "steps": 2 })]
    {
        let mut input = other.clone();
        input["text"] = "The sea is calm.".into();
        assert_ne!(usual["audio"], speak(input).await["audio"], "{other}");
    }
    let of_one = Voice::of("supertonic").set(json!({}));
    let engine = of_one.load().await.expect("loads");
    of_one.synthesize(&engine, json!({ "text": "a" })).await.expect("spoken without a mark of the language");
    let failure =
        of_one.synthesize(&engine, json!({ "text": "a", "language": "en" })).await.expect_err("one language");
    assert!(failure.message.contains("leave out language"), "{}", failure.message);
}

#[tokio::test]
async fn broken_files_of_supertonic_are_named() {
    let voice = || Voice::of("supertonic");
    let mut nobody = voice();
    for name in ["F1", "M1"] {
        nobody = nobody.without(&format!("voice_styles/{name}.json"));
    }
    assert!(nobody.refused().await.contains("no voice"));
    for (name, content, why) in [
        ("onnx/tts.json", json!({ "ae": {} }), "/ttl/chunk_compress_factor of onnx/tts.json"),
        (
            "onnx/tts.json",
            json!({ "ae": { "sample_rate": 0 }, "ttl": { "chunk_compress_factor": 1 } }),
            "/ae/sample_rate",
        ),
        ("onnx/unicode_indexer.json", json!({ "a": 1 }), "must be a list of ids"),
        ("onnx/unicode_indexer.json", json!([1, 2]), "has no id for"),
        (
            "voice_styles/F1.json",
            json!({ "style_ttl": { "dims": [2], "data": [1] } }),
            "style_ttl of voice_styles/F1.json",
        ),
        (
            "voice_styles/F1.json",
            json!({ "style_ttl": { "dims": [u64::MAX, 9], "data": [1] } }),
            "style_ttl of voice_styles/F1.json",
        ),
        (
            "voice_styles/F1.json",
            json!({ "style_ttl": { "dims": [1], "data": [[1e300]] } }),
            "finite numbers",
        ),
    ] {
        let refused = voice().with(name, content.to_string().as_bytes()).refused().await;
        assert!(refused.contains(why), "{refused:?} does not contain {why:?}");
    }
    assert!(voice().without("onnx/vocoder.onnx").refused().await.contains("vocoder"));
}
