//! Concurrent jobs on one model get the outputs that each would get alone, in every session of its graph, also if another one is cancelled.

use std::{sync::Arc, time::Duration};

use island_protocol::job::{FailureCode, Fault, Outcome};
use island_runtimes_graph::{
    Feeds, Graph, Resources,
    files::GraphFiles,
    library,
    onnx::{self, Attr, Dimension, Node, Shape, Size, TensorType, Type, ValueInfo},
};
use island_runtimes_kit::{
    error::ErrorKind,
    job::{Answer, Job},
    jobs::Jobs,
    stop::Stop,
};
use island_runtimes_onnx::runtime::{Onnx, Settings};
use island_runtimes_onnx_fixtures::{Fixture, agree, context, run_job, settings};
use ndarray::{ArrayD, arr0, arr1};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often each case runs concurrently.
const TIMES: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_jobs_get_the_same_outputs_as_single_ones() {
    for name in [
        "minilm",
        "minilm-quantized",
        "bert-ner",
        "bert-fill-mask",
        "distilbert-sst2",
        "distilbert-qa",
        "bart-mnli",
    ] {
        let fixture = Arc::new(Fixture::named(name));
        for threads in [2, 5] {
            let one = settings(fixture.cargo(&fixture.task), fixture.files());
            let engine = Onnx::load(Settings { threads, slots: 16, ..one }).await.expect("loads");
            let engine = Arc::new(engine);
            let mut asked = JoinSet::new();
            let places = (0..fixture.cases.len())
                .filter(|&place| fixture.task_of(&fixture.cases[place]) == fixture.task);
            for place in places.flat_map(|place| [place; TIMES]) {
                let (fixture, engine) = (Arc::clone(&fixture), Arc::clone(&engine));
                asked.spawn(async move { (place, fixture.answer(&engine, &fixture.cases[place]).await) });
            }
            assert!(asked.len() >= TIMES, "{name} has no cases");
            while let Some(answered) = asked.join_next().await {
                let (place, answer) = answered.expect("it does not panic");
                let case = &fixture.cases[place];
                let at = format!("{name}/{}, {threads} threads", case.name);
                let answer = answer.unwrap_or_else(|failure| panic!("{at}: {}", failure.message));
                let wrong = agree(&fixture, case, &answer);
                assert!(wrong.is_empty(), "{at}: {}", wrong.join("\n"));
            }
        }
    }
}

#[test]
fn sessions_of_a_graph_agree() {
    for (fixture, path) in [("minilm", "onnx/model.onnx"), ("minilm-quantized", "onnx/model_quantized.onnx")]
    {
        let name = path.to_owned();
        let path = Fixture::named(fixture).files().remove(path).expect("the graph");
        let files = GraphFiles { name, path, weights: Vec::new() };
        let threads = Resources::cpu(5);
        let graph = Graph::load_with_lanes(library::open().expect("the library"), &files, threads);
        let graph = graph.unwrap_or_else(|failure| panic!("{fixture}: {}", failure.message()));
        let feeds = || {
            let ids = ArrayD::from_shape_fn(vec![1, 9], |place| 5 + 7 * place[1] as i64);
            Feeds::new().ints("input_ids", ids)
        };
        let output = &graph.outputs()[0];
        let alone = graph.run(feeds()).expect("runs").floats(output).expect("numbers");
        let mut lanes: Vec<_> = std::iter::from_fn(|| graph.lanes().try_enter(true)).collect();
        assert_eq!(lanes.len(), 4, "{fixture}");
        assert!(graph.lanes().try_enter(false).is_none(), "{fixture}: the wide session runs with lanes");
        for lane in &mut lanes {
            let beside = graph.run_in(lane, feeds(), &[]).expect("runs").floats(output).expect("numbers");
            assert_eq!(beside.shape(), alone.shape());
            let apart = beside.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-5, "{fixture}: {apart}");
        }
    }
}

/// What a network gives for two thousand texts of thousands of tokens is tens of gigabytes.
#[tokio::test]
async fn the_outputs_of_many_long_texts_are_not_in_memory_at_once() {
    let fixture = Fixture::named("minilm");
    let (engine, watch) = fixture.load_watched(&fixture.task).await.expect("loads");
    // Short texts of equal length, with many long ones between them.
    let long = "boat ".repeat(600);
    let mut texts = vec![long.as_str(); 1000];
    (texts[0], texts[999]) = ("boat", "boat");
    let asked = json!({ "input": texts });
    let answer = run_job(&engine, fixture.cargo(&fixture.task), asked).await.expect("answered");
    let embeddings = answer["embeddings"].as_array().expect("a list");
    assert_eq!((embeddings.len(), &embeddings[0]), (1000, &embeddings[999]));
    let first = watch.take().into_iter().find(|seen| seen.name == "input_ids").expect("a run");
    assert_eq!(first.shape[0], 1, "the last text waits until the outputs of the first are embeddings");
}

/// Turns of a loop that take minutes.
const LONG: i64 = 20_000_000;
/// Turns that take milliseconds.
const SHORT: i64 = 100;

/// A graph that adds `one` to `x` in each of `turns` turns of a loop: one step, as long as its input requires.
fn counting() -> Graph {
    const FLOAT: i32 = 1;
    const INT: i32 = 7;
    const BOOL: i32 = 9;
    let value = |name: &str, element: i32, sizes: &[i64]| {
        let dims = sizes.iter().map(|&size| Dimension { size: Some(Size::Fixed(size)) }).collect();
        let tensor = TensorType { element: Some(element), shape: Some(Shape { dims }) };
        ValueInfo { name: Some(name.to_owned()), r#type: Some(Type { tensor: Some(tensor) }) }
    };
    let node = |kind: &str, inputs: &[&str], outputs: &[&str], attributes: Vec<Attr>| Node {
        op_type: Some(kind.to_owned()),
        inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
        outputs: outputs.iter().map(|&name| name.to_owned()).collect(),
        attributes: attributes.into_iter().map(Attr::attribute).collect(),
        ..Node::default()
    };
    let body = onnx::Graph {
        name: Some("body".to_owned()),
        nodes: vec![
            node("Identity", &["still"], &["goes_on"], Vec::new()),
            node("Add", &["before", "one"], &["after"], Vec::new()),
        ],
        inputs: vec![value("turn", INT, &[]), value("still", BOOL, &[]), value("before", FLOAT, &[1])],
        outputs: vec![value("goes_on", BOOL, &[]), value("after", FLOAT, &[1])],
        ..onnx::Graph::default()
    };
    let graph = onnx::Graph {
        name: Some("counting".to_owned()),
        nodes: vec![node("Loop", &["turns", "", "x"], &["y"], vec![Attr::Graph("body", body)])],
        inputs: vec![value("turns", INT, &[]), value("x", FLOAT, &[1]), value("one", FLOAT, &[1])],
        outputs: vec![value("y", FLOAT, &[1])],
        ..onnx::Graph::default()
    };
    let opset = onnx::OperatorSet { version: Some(17), ..onnx::OperatorSet::default() };
    let model = onnx::Model {
        ir_version: Some(8),
        graph: Some(graph),
        opset_import: vec![opset],
        ..onnx::Model::default()
    };
    let library = library::open().expect("the library");
    let loaded = Graph::of_bytes(library, "counting", &model.to_bytes(), Vec::new(), Resources::cpu(1));
    loaded.unwrap_or_else(|failure| panic!("{}", failure.message()))
}

fn turns(count: i64) -> Feeds<'static> {
    let numbers = Feeds::new().floats("x", arr1(&[0.0]).into_dyn()).floats("one", arr1(&[1.0]).into_dyn());
    numbers.ints("turns", arr0(count).into_dyn())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_cancelled_within_a_step_ends_and_its_neighbor_is_answered() {
    let jobs = Jobs::new(Arc::new(counting()), 2);
    let run = |count: i64, cancel: CancellationToken| {
        let answer = move |graph: &Graph, _: &Job| {
            let counted = graph.run(turns(count))?.floats("y")?;
            Ok(Answer::of(json!(counted.sum()), 0))
        };
        jobs.run(context(cancel), answer)
    };
    let cancel = CancellationToken::new();
    let neighbor = async {
        let graph = jobs.model().expect("loaded");
        // The session is taken as long as the step lasts.
        while graph.lanes().try_enter(false).is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        cancel.cancel();
        run(SHORT, CancellationToken::new()).await
    };
    let (cancelled, neighbor) = tokio::join!(run(LONG, cancel.clone()), neighbor);
    let Outcome::Failed { failure, .. } = cancelled else { panic!("{cancelled:?}") };
    assert_eq!((failure.fault, failure.code), (Fault::Interrupted, FailureCode::CancelledByUser));
    let Outcome::Completed { output, .. } = neighbor else { panic!("{neighbor:?}") };
    assert_eq!(output, Some(json!(100.0)));
    jobs.shutdown().await;
}

#[test]
fn a_run_for_several_jobs_ends_early_if_all_are_cancelled() {
    let graph = counting();
    let tokens = [CancellationToken::new(), CancellationToken::new()];
    let jobs = tokens.clone().map(Stop::new);
    tokens[0].cancel();
    let counted = graph.run_in(&mut graph.lanes().enter(), turns(SHORT), &jobs).expect("one waits for it");
    assert_eq!(counted.floats("y").expect("a number").sum(), 100.0);
    tokens[1].cancel();
    let ended = graph.run_in(&mut graph.lanes().enter(), turns(LONG), &jobs);
    assert_eq!(ended.expect_err("no one waits").kind(), ErrorKind::Interrupted);
}
