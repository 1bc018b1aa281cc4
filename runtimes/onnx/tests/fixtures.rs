//! Every fixture is answered as the Python pipelines answered it.

mod support;

use support::{Case, Fixture, agree, all};

#[tokio::test]
async fn every_answer_is_that_of_the_reference() {
    let mut wrong = Vec::new();
    let fixtures = all();
    assert!(!fixtures.is_empty(), "there are no fixtures");
    for fixture in &fixtures {
        for task in fixture.tasks() {
            if !island_runtimes_onnx::task::names().contains(&task.as_str()) {
                println!("SKIPPED: {}: no engine answers {task} yet", fixture.name);
                continue;
            }
            let engine = match fixture.load(&task).await {
                Ok(engine) => engine,
                Err(failure) => {
                    wrong.push(format!("{}: does not load: {}", fixture.name, failure.message));
                    continue;
                }
            };
            for case in fixture.cases.iter().filter(|case| fixture.task_of(case) == task) {
                wrong.extend(differences(fixture, case, &engine).await);
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

async fn differences(
    fixture: &Fixture,
    case: &Case,
    engine: &island_runtimes_onnx::runtime::Onnx,
) -> Vec<String> {
    let at = format!("{}/{}", fixture.name, case.name);
    match fixture.answer(engine, case).await {
        Ok(output) => agree(fixture, case, &output).into_iter().map(|why| format!("{at}: {why}")).collect(),
        Err(failure) => vec![format!("{at}: {} {}", failure.code, failure.message)],
    }
}
