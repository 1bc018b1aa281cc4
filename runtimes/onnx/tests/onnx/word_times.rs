//! The times of words that Whisper gives with graphs that have what their decoder attends to, and their refusal by name without. The fixtures
//! compare the times with the reference's.

use std::{collections::BTreeMap, fs, path::PathBuf};

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_onnx::runtime::Onnx;
use island_runtimes_onnx_fixtures::{Fixture, agree, run_job, settings};
use serde_json::{Value, json};

const GENERATION: &str = "generation_config.json";

async fn load(fixture: &Fixture, files: BTreeMap<String, PathBuf>) -> Result<Onnx, Failure> {
    Onnx::load(settings(fixture.cargo(&fixture.task), files)).await.map_err(Failure::from)
}

/// The refusal of the first case with the times of words.
async fn refused(fixture: &Fixture, files: BTreeMap<String, PathBuf>) -> String {
    let engine = load(fixture, files).await.expect("loads");
    let mut input = fixture.input(&fixture.cases[0]);
    input["timestamps"] = "word".into();
    let failure = run_job(&engine, fixture.cargo(&fixture.task), input).await.expect_err("no times");
    assert_eq!(failure.code, FailureCode::InvalidInput, "{}", failure.message);
    failure.message
}

/// A fixture whose Cargo offers the times of words, or does not.
fn offering(name: &str, offers: bool) -> Fixture {
    Fixture { engine: json!({"word_times": offers}), ..Fixture::named(name) }
}

#[tokio::test]
async fn a_model_without_attention_refuses_the_times_of_words_by_name() {
    const REFUSAL: &str = "this model gives times of segments, not of words: ";
    const GRAPHS: [(&str, &str); 2] =
        [("whisper", "onnx/decoder_model_merged.onnx"), ("whisper-en", "onnx/decoder_model.onnx")];
    for (name, graph) in GRAPHS {
        let fixture = offering(name, false);
        let why = refused(&fixture, fixture.files()).await;
        assert_eq!(why, format!("{REFUSAL}{graph} has no output cross_attentions.0"));
    }
    let fixture = offering("whisper-timestamped", false);
    let mut files = fixture.files();
    let mut content: Value =
        serde_json::from_slice(&fs::read(&files[GENERATION]).expect("readable")).expect("JSON");
    content.as_object_mut().expect("an object").remove("alignment_heads");
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join(GENERATION);
    fs::write(&path, content.to_string()).expect("written");
    files.insert(GENERATION.to_owned(), path);
    let why = refused(&fixture, files).await;
    assert_eq!(why, format!("{REFUSAL}generation_config.json has no alignment_heads"));
}

#[tokio::test]
async fn a_cargo_that_offers_what_its_model_lacks_does_not_load() {
    for (name, why) in [
        ("whisper", "onnx/decoder_model_merged.onnx has no output cross_attentions.0"),
        ("moonshine", "the model has no timestamps"),
    ] {
        let fixture = offering(name, true);
        let failure = load(&fixture, fixture.files()).await.expect_err("offers too much");
        assert_eq!(failure.code, FailureCode::ModelRejected, "{}", failure.message);
        assert_eq!(failure.message, format!("[engine]: word_times = true is not supported; {why}"));
    }
    for name in ["wav2vec2", "whisper-timestamped", "whisper-en-timestamped"] {
        let fixture = offering(name, true);
        load(&fixture, fixture.files()).await.expect("it gives them");
    }
}

#[tokio::test]
async fn the_times_of_words_change_no_text() {
    let fixture = Fixture::named("whisper-timestamped");
    let engine = fixture.load(&fixture.task).await.expect("loads");
    for case in &fixture.cases {
        let mut input = fixture.input(case);
        input["timestamps"] = "segment".into();
        let output = run_job(&engine, fixture.cargo(&fixture.task), input).await.expect("an answer");
        assert_eq!(output["text"], case.output["text"], "{}", case.name);
    }
}

#[tokio::test]
async fn a_decoder_without_a_cache_has_the_same_times() {
    let fixture = Fixture::named("whisper-en-timestamped");
    let mut files = fixture.files();
    files.remove("onnx/decoder_with_past_model.onnx").expect("a graph for later steps");
    let engine = load(&fixture, files).await.expect("loads");
    for case in &fixture.cases {
        let output = fixture.answer(&engine, case).await.expect("an answer");
        assert_eq!(agree(&fixture, case, &output), Vec::<String>::new(), "{}", case.name);
    }
}
