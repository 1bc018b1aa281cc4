//! Concurrent jobs on one model get the outputs that each would get alone, in every session of its graph.

mod support;

use std::sync::Arc;

use island_runtimes_graph::{Feeds, Graph, Resources, files::GraphFiles, library};
use island_runtimes_onnx::runtime::{Onnx, Settings};
use ndarray::ArrayD;
use support::{Fixture, agree, settings};
use tokio::task::JoinSet;

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
            let beside = graph.run_in(lane, feeds()).expect("runs").floats(output).expect("numbers");
            assert_eq!(beside.shape(), alone.shape());
            let apart = beside.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-5, "{fixture}: {apart}");
        }
    }
}
