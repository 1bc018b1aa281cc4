//! Speech in several models: the engine conforms, reports progress, and rejects models that do not match.

use std::{collections::BTreeMap, fs, path::PathBuf};

use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    job::{Failure, FailureCode, Fault, FinishReason, Outcome},
};
use island_runtimes_api::conformance::{self, Played};
use island_runtimes_coreml::{
    model::{Model as _, Tensor, take},
    package::Package,
    portable::Portable,
    proto::{
        self,
        model::{ArrayType, Feature, FeatureKind, Model},
    },
    runtime::{CoreMl, Settings},
};
use island_runtimes_graph::{Resources, library};
use island_runtimes_kit::{media::sound, repository::Repository, speech::mel::LogMel};
use prost::Message as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Fixture, npy};

const PROGRAM: &str = "Data/com.apple.CoreML/model.mlmodel";
const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";
const DECODER: &str = "tiny/TextDecoder.mlpackage";

/// A fixture's repository, for changes.
struct RepositoryCopy {
    fixture: Fixture,
    files: BTreeMap<String, PathBuf>,
    engine: Value,
    folder: TempDir,
}

impl RepositoryCopy {
    fn of(name: &str) -> Self {
        let fixture = Fixture::named(name);
        let mut engine = fixture.engine.clone();
        engine["task"] = fixture.task.clone().into();
        Self { files: fixture.files(), engine, fixture, folder: tempfile::tempdir().expect("a folder") }
    }

    fn with(mut self, path: &str, bytes: &[u8]) -> Self {
        let to = self.folder.path().join(path.replace('/', "-"));
        fs::write(&to, bytes).expect("written");
        self.files.insert(path.to_owned(), to);
        self
    }

    fn without(mut self, start: &str) -> Self {
        let before = self.files.len();
        self.files.retain(|path, _| !path.starts_with(start));
        assert!(self.files.len() < before, "{start} was there");
        self
    }

    /// A changed description of a model.
    fn described(self, model: &str, change: impl Fn(&mut Model)) -> Self {
        let path = format!("{model}/{PROGRAM}");
        let mut read = proto::read::model(&fs::read(&self.files[&path]).expect("readable")).expect("a model");
        change(&mut read);
        self.with(&path, &read.encode_to_vec())
    }

    /// RepositoryCopy dimensions of an input.
    fn sized(self, model: &str, input: &str, change: impl Fn(&mut ArrayType)) -> Self {
        self.described(model, |model| change(array(feature(model, input))))
    }

    fn cargo(&self) -> CargoSpec {
        let cargo = json!({ "slug": self.fixture.name, "runtime_type": "coreml", "engine": self.engine });
        serde_json::from_value(cargo).expect("a Cargo")
    }

    async fn load(&self) -> Result<CoreMl, Failure> {
        let (cargo, files) = (self.cargo(), self.files.clone());
        CoreMl::load(Settings { files, cargo, slots: 2, threads: 1, uses_gpu: false })
            .await
            .map_err(Failure::from)
    }

    /// The reason why it does not load.
    async fn refused(&self) -> String {
        rejected(self.load().await.expect_err("it must not load"))
    }

    fn suite(&self, good: Vec<Value>, long: Value, bad: Vec<Value>) -> conformance::Fixture {
        let artifacts = BTreeMap::new();
        conformance::Fixture { cargo: self.cargo(), artifacts, good, long, bad, reads_tokens: false }
    }

    async fn play(&self, engine: &CoreMl, input: &Value) -> Played {
        self.suite(Vec::new(), Value::Null, Vec::new()).play(engine, input).await
    }

    /// The input of an answer.
    fn input(&self, name: &str) -> Value {
        let answer = self.fixture.answers.iter().find(|answer| answer.name == name).expect("an answer");
        self.fixture.filled(&answer.input)
    }
}

fn rejected(failure: Failure) -> String {
    let kind = (failure.fault, failure.code);
    assert_eq!(kind, (Fault::Job, FailureCode::ModelRejected), "{}", failure.message);
    failure.message
}

fn feature<'m>(model: &'m mut Model, name: &str) -> &'m mut Feature {
    let description = model.description.as_mut().expect("a description");
    let all = description.input.iter_mut().chain(&mut description.output);
    all.into_iter().find(|feature| feature.name == name).expect("a feature")
}

fn array(feature: &mut Feature) -> &mut ArrayType {
    match feature.r#type.as_mut().and_then(|ty| ty.kind.as_mut()) {
        Some(FeatureKind::Array(array)) => array,
        _ => panic!("{} is not an array", feature.name),
    }
}

fn noise(seconds: usize) -> Value {
    let mut seed = 1_u32;
    let sample = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from((seed >> 16) as i16) / 65_536.0
    };
    sound::wav(&(0..seconds * 16_000).map(sample).collect::<Vec<f32>>(), 16_000).into()
}

async fn keeps_the_contract(fixture: &RepositoryCopy, good: Vec<Value>, long: Value, bad: Vec<Value>) {
    let engine = fixture.load().await.expect("loads");
    let suite = fixture.suite(good, long, bad);
    conformance::same_again(&engine, &suite).await;
    if suite.good[0].get("language").is_some() {
        // A window is one step, for generated text and for labels; labels count as tokens.
        conformance::work_grows(&engine, &suite).await;
    }
    conformance::writes_only_in_scratch(&engine, &suite).await;
    conformance::bad_input_is_a_failure_of_the_job(&engine, &suite).await;
    conformance::cancelled_before_the_start(&engine, &suite).await;
    conformance::cancelled_while_running(&engine, &suite).await;
    conformance::dropped_runs_leave_nothing(&engine, &suite).await;
    conformance::nobody_listening(&engine, &suite).await;
    conformance::concurrent_runs_do_not_mix(&engine, &suite).await;
}

#[tokio::test]
async fn whisper_conforms() {
    let fixture = RepositoryCopy::of("whisperkit");
    let audio = fixture.input("detected")["audio"].clone();
    let bad = vec![
        json!({}),
        json!({ "audio": "" }),
        json!({ "audio": "aGVsbG8=" }),
        json!({ "audio": audio, "language": "xx" }),
        json!({ "audio": audio, "task": "sing" }),
        json!({ "audio": audio, "timestamps": "word" }),
        json!({ "audio": audio, "num_beams": 99 }),
    ];
    let good = vec![fixture.input("german"), fixture.input("translated")];
    keeps_the_contract(&fixture, good, json!({ "audio": noise(60), "language": "en" }), bad).await;
}

#[tokio::test]
async fn long_audio_reports_progress_and_streams_text() {
    let fixture = RepositoryCopy::of("whisperkit");
    let engine = fixture.load().await.expect("loads");
    let played = fixture.play(&engine, &fixture.input("long")).await;
    let Outcome::Completed { output: Some(output), usage, finish_reason, .. } = &played.outcome else {
        panic!("{:?}", played.outcome)
    };
    assert_eq!(output["text"], played.text.trim());
    assert!(usage.prompt_tokens > 0 && usage.completion_tokens >= played.counted() && played.counted() > 0);
    assert!(matches!(finish_reason, Some(FinishReason::Stop | FinishReason::Length)));
    let steps: Vec<(u64, u64)> = played
        .events
        .iter()
        .filter_map(|event| match event {
            AttemptEvent::Progress { step, total, .. } => Some((*step, *total)),
            _ => None,
        })
        .collect();
    assert!(steps.len() > 1 && steps[0] == (0, 710), "{steps:?}");
    assert!(steps.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[1].1 == 710), "{steps:?}");
    let tokens = played.events.iter().filter(|event| matches!(event, AttemptEvent::Token { .. }));
    assert!(tokens.count() > 3);
}

#[tokio::test]
async fn silence_has_finite_features() {
    let fixture = RepositoryCopy::of("whisperkit");
    let engine = fixture.load().await.expect("loads");
    let silence = sound::wav(&vec![0.0; 16_000], 16_000);
    let played = fixture.play(&engine, &json!({ "audio": silence, "language": "en" })).await;
    assert!(matches!(played.outcome, Outcome::Completed { .. }), "{:?}", played.outcome);
}

/// The package's features and ours are equal up to the precision of f16.
#[test]
fn features_of_the_package_and_ours_agree() {
    let fixture = Fixture::named("whisperkit");
    let package = Package::open(&fixture.files(), Some("tiny/MelSpectrogram.mlpackage")).expect("opens");
    let environment = library::open().expect("the library");
    let model = Portable::load(&package, "main", environment, Resources::cpu(1));
    let model = model.expect("loads");
    let repository = Repository::open(BTreeMap::new()).expect("empty");
    let features = LogMel::fitted(&repository, Some((20, 500))).expect("features");
    let samples = npy(&fixture.folder.join("spectrogram.0.in.audio.npy")).into_floats();
    let ours = features.extract(&samples.iter().copied().collect::<Vec<f32>>());
    let given = vec![("audio".to_owned(), Tensor::Floats(samples))];
    let mut heard = model.run(given, &mut model.start().expect("starts")).expect("runs");
    let theirs = take(&mut heard, "melspectrogram_features").expect("features").into_floats();
    assert_eq!((ours.len(), theirs.len()), (10_000, 10_000));
    // Values below the minimum of f16 are equal for it.
    let both = ours.iter().zip(&theirs).filter(|(ours, _)| **ours > (2.0_f32.powi(-23).log10() + 4.0) / 4.0);
    let apart: Vec<f32> = both.map(|(ours, theirs)| (ours - theirs).abs()).collect();
    let most = apart.iter().copied().fold(0.0_f32, f32::max);
    println!("features of the package and ours: maximum difference {most:.1e} in {} values", apart.len());
    assert!(apart.len() > 2000 && most < 0.1, "{} places, {most}", apart.len());
}

#[tokio::test]
async fn missing_models_are_named() {
    let lacks = |start: &str| RepositoryCopy::of("whisperkit").without(start);
    assert!(lacks("tiny/AudioEncoder").refused().await.contains("lacks AudioEncoder"));
    assert!(lacks("tiny/TextDecoder").refused().await.contains("lacks TextDecoder"));
    assert!(lacks("tokenizer.json").refused().await.contains("tokenizer.json"));
    let mut other = RepositoryCopy::of("whisperkit");
    other.engine["model"] = "small".into();
    assert!(other.refused().await.contains("AudioEncoder"));
    let weights = format!("{DECODER}/{WEIGHTS}");
    assert!(lacks(&weights).refused().await.contains("weight.bin"));
}

#[tokio::test]
async fn one_of_several_whispers_must_be_named() {
    let mut fixture = RepositoryCopy::of("whisperkit");
    let again: Vec<(String, PathBuf)> = fixture
        .files
        .iter()
        .filter_map(|(path, file)| Some((format!("other/{}", path.strip_prefix("tiny/")?), file.clone())))
        .collect();
    fixture.files.extend(again);
    assert!(fixture.refused().await.contains("setting model"));
    fixture.engine["model"] = "tiny".into();
    let played = fixture.play(&fixture.load().await.expect("loads"), &fixture.input("german")).await;
    assert!(matches!(played.outcome, Outcome::Completed { .. }), "{:?}", played.outcome);
}

#[tokio::test]
async fn mismatched_models_are_rejected() {
    let sized = |model: &str, input: &str, sizes: &'static [i64]| {
        RepositoryCopy::of("whisperkit").sized(model, input, |array| array.shape = sizes.to_vec())
    };
    let why = sized(DECODER, "value_cache", &[1, 32, 1, 60]).refused().await;
    assert!(why.contains("value_cache") && why.contains("fits the others"), "{why}");
    let why = sized(DECODER, "key_cache", &[32, 64]).refused().await;
    assert!(why.contains("key_cache"), "{why}");
    let why = sized(DECODER, "key_cache", &[1, 1 << 40, 1, 1 << 40]).refused().await;
    assert!(why.contains("more than"), "{why}");
    let why = sized(DECODER, "input_ids", &[1, 4]).refused().await;
    assert!(why.contains("input_ids"), "{why}");
    let why = sized("tiny/AudioEncoder.mlpackage", "melspectrogram_features", &[1, 20]).refused().await;
    assert!(why.contains("[1, bands, 1, frames]"), "{why}");
    let why = sized("tiny/MelSpectrogram.mlpackage", "audio", &[480_000]).refused().await;
    assert!(why.contains("80000 samples"), "{why}");
    let strange = RepositoryCopy::of("whisperkit")
        .described(DECODER, |model| feature(model, "cache_length").name = "cache_width".to_owned());
    assert!(strange.refused().await.contains("cache_length"));
    let silent = RepositoryCopy::of("whisperkit")
        .described(DECODER, |model| feature(model, "logits").name = "loudness".to_owned());
    assert!(silent.refused().await.contains("gives no logits"));
    let settings = br#"{ "feature_size": 80 }"#;
    let why = RepositoryCopy::of("whisperkit").with("preprocessor_config.json", settings).refused().await;
    assert!(why.contains("80 mel bands"), "{why}");
}

#[tokio::test]
async fn cache_shorter_than_a_prompt_is_rejected() {
    let mut fixture = RepositoryCopy::of("whisperkit");
    for (input, sizes) in [
        ("key_cache", vec![1, 32, 1, 4]),
        ("value_cache", vec![1, 32, 1, 4]),
        ("kv_cache_update_mask", vec![1, 4]),
        ("decoder_key_padding_mask", vec![1, 4]),
    ] {
        fixture = fixture.sized(DECODER, input, |array| array.shape = sizes.clone());
    }
    let why = fixture.refused().await;
    assert!(why.contains("takes 4 tokens"), "{why}");
}

#[tokio::test]
async fn mismatched_encoder_states_are_an_error_of_the_model() {
    let fixture = RepositoryCopy::of("whisperkit")
        .sized(DECODER, "encoder_output_embeds", |array| array.shape = vec![1, 16, 1, 100]);
    let why = fixture.refused().await;
    assert!(why.starts_with("a trial job failed: "), "{why}");
    assert!(why.contains("encoder_output_embeds") && why.contains("250"), "{why}");
}

#[tokio::test]
async fn nan_weights_are_an_error_of_the_model() {
    for (model, said) in [(DECODER, "logits"), ("tiny/AudioEncoder.mlpackage", "AudioEncoder")] {
        let path = format!("{model}/{WEIGHTS}");
        let fixture = RepositoryCopy::of("whisperkit");
        let mut weights = fs::read(&fixture.files[&path]).expect("readable");
        for (at, byte) in weights.iter_mut().enumerate().skip(64) {
            // One number in each row of the file; data lie between headers, which are kept.
            if at % 64 == 3 && *byte != 0xDE {
                *byte = 0xff;
            }
        }
        let why = fixture.with(&path, &weights).refused().await;
        assert!(why.contains(said) && why.contains("weights are broken"), "{why}");
    }
}

#[tokio::test]
async fn an_embedding_is_never_made_of_integers() {
    let fixture = RepositoryCopy::of("bert-static").described("Model.mlpackage", |model| {
        array(feature(model, "last_hidden_state")).data_type = 0x2_0020;
    });
    let why = fixture.refused().await;
    assert!(
        why.starts_with("Model.mlpackage gives no vectors of real numbers; it gives last_hidden"),
        "{why}"
    );
}

#[tokio::test]
async fn ctc_models_conform() {
    for (name, inputs) in [
        ("wav2vec2-fixed", ["1.1.wav", "3.3.wav"]),
        ("wav2vec2", ["1.1.wav", "3.3.wav"]),
        ("mel-labels", ["1.1.wav", "6.2.wav"]),
    ] {
        let fixture = RepositoryCopy::of(name);
        let good: Vec<Value> = inputs.map(|name| fixture.input(name)).into();
        let audio = &good[0]["audio"];
        let bad = vec![
            json!({}),
            json!({ "audio": "!" }),
            json!({ "audio": audio, "language": "de" }),
            json!({ "audio": audio, "task": "translate" }),
        ];
        keeps_the_contract(&fixture, good, json!({ "audio": noise(120) }), bad).await;
    }
}

#[tokio::test]
async fn words_have_timestamps() {
    for name in ["wav2vec2", "wav2vec2-fixed", "mel-labels"] {
        let fixture = RepositoryCopy::of(name);
        let engine = fixture.load().await.expect("loads");
        for answer in &fixture.fixture.answers {
            let mut input = fixture.fixture.filled(&answer.input);
            input["timestamps"] = "word".into();
            let played = fixture.play(&engine, &input).await;
            let Outcome::Completed { output: Some(output), .. } = played.outcome else {
                panic!("{name}: {:?}", played.outcome)
            };
            let seconds: f64 = answer.name.trim_end_matches(".wav").parse().expect("seconds");
            let words = output["segments"].as_array().expect("words");
            let texts: Vec<&str> = words.iter().filter_map(|word| word["text"].as_str()).collect();
            assert_eq!(output["text"], texts.join(" "), "{name}");
            let time = |word: &Value, of: &str| word[of].as_f64().expect("seconds");
            let mut last = 0.0;
            for word in words {
                let (start, end) = (time(word, "start"), time(word, "end"));
                assert!(
                    last <= start && start < end && end <= seconds + 0.03,
                    "{name}: {word} behind {last}"
                );
                last = end;
            }
            assert!(last > seconds / 2.0, "{name}: {last}");
        }
    }
}

#[tokio::test]
async fn features_of_the_package_are_used_if_it_has_any() {
    let mut fixture = RepositoryCopy::of("mel-labels");
    let front = Fixture::named("whisperkit").files().into_iter();
    let front = front.filter_map(|(path, file)| Some((path.strip_prefix("tiny/")?.to_owned(), file)));
    fixture.files.extend(front.filter(|(path, _)| path.starts_with("MelSpectrogram")));
    let fixture = fixture.without("preprocessor_config.json");
    let engine = fixture.load().await.expect("loads");
    assert!(engine.version().contains("Model.mlpackage"), "{}", engine.version());
    let played = fixture.play(&engine, &fixture.input("1.1.wav")).await;
    let Outcome::Completed { output: Some(output), .. } = played.outcome else {
        panic!("{:?}", played.outcome)
    };
    assert!(output["text"].as_str().is_some_and(|text| text.len() > 4), "{output}");
    let why = RepositoryCopy::of("mel-labels").without("preprocessor_config.json").refused().await;
    assert!(why.contains("defines them"), "{why}");
}

#[tokio::test]
async fn invalid_vocabularies_are_rejected() {
    const MODEL: &str = "Model.mlpackage";
    let fixture = || RepositoryCopy::of("wav2vec2-fixed");
    assert!(fixture().without("vocab.json").refused().await.contains("vocab.json"));
    assert!(fixture().with("vocab.json", br#"{ "A": 1 }"#).refused().await.contains("blank"));
    let sized =
        |sizes: &'static [i64]| fixture().sized(MODEL, "input_values", |array| array.shape = sizes.to_vec());
    let why = sized(&[1, 400]).refused().await;
    assert!(why.contains("reads too few samples"), "{why}");
    let why = sized(&[2, 40_000]).refused().await;
    assert!(why.contains("input_values") || why.contains("[2, 40000]"), "{why}");
    let named = fixture().described(MODEL, |model| feature(model, "input_values").name = "mask".to_owned());
    assert!(named.refused().await.contains("0 inputs"));
    let endless = sized(&[1, 1 << 40]);
    let why = endless.refused().await;
    assert!(why.contains("takes no audio"), "{why}");
    let path = format!("{MODEL}/{WEIGHTS}");
    let mut weights = fs::read(&fixture().files[&path]).expect("readable");
    for (at, byte) in weights.iter_mut().enumerate().skip(64) {
        if at % 64 == 3 && *byte != 0xDE {
            *byte = 0xff;
        }
    }
    let why = fixture().with(&path, &weights).refused().await;
    assert!(why.contains("weights are broken"), "{why}");
}

#[test]
fn invalid_windows_are_rejected() {
    let repository = Repository::open(BTreeMap::new()).expect("empty");
    assert!(LogMel::fitted(&repository, Some((80, 3000))).is_ok_and(|features| features.window == 480_000));
    for known in [(0, 3000), (80, 0), (80, usize::MAX), (1 << 40, 3000), (80, 1 << 20)] {
        assert!(LogMel::fitted(&repository, Some(known)).is_err(), "{known:?}");
    }
}
