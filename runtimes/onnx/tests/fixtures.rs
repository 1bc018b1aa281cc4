//! Every fixture gets the output of the Python pipelines.

mod support;

use island_runtimes_graph::tensor_trace::TensorTrace;
use island_runtimes_onnx::runtime::Onnx;
use support::{Case, Fixture, agree, all, arrays::tensors_differ};

#[tokio::test]
async fn outputs_equal_the_reference() {
    let mut wrong = Vec::new();
    let fixtures = all();
    assert!(!fixtures.is_empty(), "there are no fixtures");
    for fixture in &fixtures {
        for task in fixture.tasks() {
            // Not a task but decoding of audio, which `sounds.rs` tests.
            if task == "audio-decoding" {
                continue;
            }
            let (engine, watch) = match fixture.load_watched(&task).await {
                Ok(loaded) => loaded,
                Err(failure) => {
                    wrong.push(format!("{}: does not load: {}", fixture.name, failure.message));
                    continue;
                }
            };
            for case in fixture.cases.iter().filter(|case| fixture.task_of(case) == task) {
                wrong.extend(differences(fixture, case, &engine, &watch).await);
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

async fn differences(fixture: &Fixture, case: &Case, engine: &Onnx, watch: &TensorTrace) -> Vec<String> {
    let at = format!("{}/{}", fixture.name, case.name);
    let answered = fixture.answer(engine, case).await;
    let mut wrong = tensors_differ(fixture, case, &watch.take());
    match answered {
        Ok(output) => wrong.extend(agree(fixture, case, &output)),
        Err(failure) => wrong.push(format!("{} {}", failure.code, failure.message)),
    }
    wrong.into_iter().map(|why| format!("{at}: {why}")).collect()
}
