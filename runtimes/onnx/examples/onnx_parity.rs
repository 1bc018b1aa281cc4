//! The engine's half of `tools/parity`: runs the cases of model folders and compares the outputs with the reference's.
//!
//! `onnx_parity` reads the paths of model folders, in the form of the fixtures, from standard input, one a line. It prints a line of JSON
//! before each folder, `{"model": path}`, and one for each case:
//! `{"model", "case", "verdict": "agreed" | "differed" | "refused", "largest": number, "why": [text]}`. Where the model does not load, every case
//! of it is refused. The line before a folder names what was running when the process ends early.

#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

use std::{error::Error, io, path::Path};

use island_protocol::job::Failure;
use island_runtimes_onnx_fixtures::{Case, Fixture, comparison, tensors_differ};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for folder in io::stdin().lines() {
        let folder = folder?;
        println!("{}", json!({ "model": folder }));
        for verdict in verdicts(&folder).await {
            println!("{verdict}");
        }
    }
    Ok(())
}

/// The verdicts on all cases of a model.
async fn verdicts(folder: &str) -> Vec<Value> {
    let fixture = Fixture::read(Path::new(folder));
    let mut verdicts = Vec::new();
    for task in fixture.tasks() {
        let loaded = fixture.load_watched(&task).await;
        for case in fixture.cases.iter().filter(|case| fixture.task_of(case) == task) {
            let (verdict, largest, why) = match &loaded {
                Ok((engine, trace)) => {
                    let output = fixture.answer(engine, case).await;
                    let mut why = tensors_differ(&fixture, case, &trace.take());
                    match output {
                        Ok(output) => {
                            let found = comparison(&fixture, case, &output);
                            why.extend(found.wrong);
                            why.truncate(6);
                            (if why.is_empty() { "agreed" } else { "differed" }, found.largest, why)
                        }
                        Err(failure) => refusal(&failure, "job"),
                    }
                }
                Err(failure) => refusal(failure, "load"),
            };
            verdicts.push(line(folder, &task, case, verdict, largest, &why));
        }
    }
    verdicts
}

/// A refusal, with the step that it ended and its code.
fn refusal(failure: &Failure, step: &str) -> (&'static str, f64, Vec<String>) {
    ("refused", 0.0, vec![format!("{step}: {}: {}", failure.code, failure.message)])
}

fn line(folder: &str, task: &str, case: &Case, verdict: &str, largest: f64, why: &[String]) -> Value {
    json!({ "model": folder, "task": task, "case": case.name, "verdict": verdict, "largest": largest, "why": why })
}
