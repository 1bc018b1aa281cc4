//! Graphs with weights of few bits: which file is chosen, and that no output depends on other jobs.

use std::{collections::BTreeMap, path::PathBuf};

use island_runtimes_graph::files::{GraphFiles, Preference};
use island_runtimes_kit::repository::Repository;
use island_runtimes_onnx::runtime::Onnx;
use island_runtimes_onnx_fixtures::{Fixture, agree, settings};

const WHOLE: &str = "onnx/model.onnx";
const EIGHT: &str = "onnx/model_quantized.onnx";
const FOUR: &str = "onnx/model_q4.onnx";

/// A repository of one model in three precisions.
fn files(precisions: &[&str]) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    for fixture in ["distilbert-quantized", "distilbert-q4", "distilbert-sst2"] {
        files.extend(Fixture::named(fixture).files());
    }
    files.retain(|name, _| !name.contains(".onnx") || precisions.contains(&name.as_str()));
    files
}

#[tokio::test]
async fn best_precision_for_a_cpu_is_chosen_and_reported() {
    for (precisions, taken, answers) in [
        (&[WHOLE, EIGHT, FOUR][..], EIGHT, "distilbert-quantized"),
        (&[WHOLE, FOUR], WHOLE, "distilbert-sst2"),
        (&[FOUR], FOUR, "distilbert-q4"),
    ] {
        let fixture = Fixture::named(answers);
        let engine = Onnx::load(settings(fixture.cargo(&fixture.task), files(precisions))).await;
        let engine = engine.unwrap_or_else(|failure| panic!("{taken}: {}", failure.message()));
        assert!(engine.version().ends_with(&format!(", {taken}")), "{} is not {taken}", engine.version());
        for case in &fixture.cases {
            let output = fixture.answer(&engine, case).await.expect("answered");
            let wrong = agree(&fixture, case, &output);
            assert!(wrong.is_empty(), "{taken}, {}: {}", case.name, wrong.join("\n"));
        }
        let others = ["distilbert-quantized", "distilbert-q4", "distilbert-sst2"].into_iter();
        for other in others.filter(|other| *other != answers).map(Fixture::named) {
            let case = other.cases.iter().find(|case| case.name == "truncated").expect("a case");
            let output = other.answer(&engine, case).await.expect("answered");
            assert!(!agree(&other, case, &output).is_empty(), "{taken} answers as {} does", other.name);
        }
    }
}

#[test]
fn gpu_uses_another_file() {
    let chosen = |precisions: &[&str]| {
        let repository = Repository::open(files(precisions)).expect("a repository");
        GraphFiles::find(&repository, "model", Preference::Gpu { half: true }).expect("a graph").name
    };
    assert_eq!(chosen(&[WHOLE, EIGHT, FOUR]), WHOLE);
    assert_eq!(chosen(&[EIGHT, FOUR]), FOUR);
    assert_eq!(chosen(&[EIGHT]), EIGHT);
}

#[tokio::test]
async fn texts_of_a_quantized_graph_are_not_batched() {
    let fixture = Fixture::named("minilm-quantized");
    let mut files = fixture.files();
    let graph = files.remove(EIGHT).expect("the graph");
    files.insert(WHOLE.to_owned(), graph);
    let engine = Onnx::load(settings(fixture.cargo(&fixture.task), files)).await.expect("loads");
    assert!(engine.version().ends_with(WHOLE), "{}", engine.version());
    for case in &fixture.cases {
        let output = fixture.answer(&engine, case).await.expect("answered");
        let wrong = agree(&fixture, case, &output);
        assert!(wrong.is_empty(), "{}: {}", case.name, wrong.join("\n"));
    }
}
