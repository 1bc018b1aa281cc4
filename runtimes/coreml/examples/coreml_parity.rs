//! The engine's half of `tools/parity` for Core ML packages: the same lines as of `onnx_parity`.
//!
//! A case whose name ends with `(tensors)` is a run of the model; another one is a job.

#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

#[path = "../tests/coreml/support/mod.rs"]
mod support;

use std::{error::Error, io, path::Path};

use island_protocol::job::Outcome;
use island_runtimes_coreml::package::Package;
use serde_json::{Value, json};
use support::{
    Case, Fixture,
    check::{check, difference, load_without, suite},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for folder in io::stdin().lines() {
        let folder = folder?;
        println!("{}", json!({ "model": folder }));
        let fixture = Fixture::read(Path::new(&folder));
        for case in &fixture.cases {
            let (verdict, largest, why) = match outcome(&fixture, case) {
                Ok(largest) => ("agreed", largest, Vec::new()),
                Err(why) if why.starts_with("load: ") || why.starts_with("run: ") => {
                    ("refused", 0.0, vec![why])
                }
                Err(why) => ("differed", 0.0, vec![why]),
            };
            println!("{}", line(&folder, &format!("{} (tensors)", case.name), verdict, largest, &why));
        }
        for (name, verdict, why) in jobs(&fixture).await {
            println!("{}", line(&folder, &name, verdict, 0.0, &why));
        }
    }
    Ok(())
}

/// The largest difference of a run, or why it is refused or differs.
fn outcome(fixture: &Fixture, case: &Case) -> Result<f32, String> {
    let package = Package::open(&fixture.files(), case.model.as_deref());
    difference(fixture, &package.map_err(|failure| format!("load: {}", failure.message()))?, case)
}

/// The verdicts on the jobs of a model.
async fn jobs(fixture: &Fixture) -> Vec<(String, &'static str, Vec<String>)> {
    let suite = suite(fixture, Vec::new(), Value::Null, Vec::new());
    let mut verdicts = Vec::new();
    for answer in &fixture.answers {
        let (verdict, why) = match load_without(fixture, answer.without.as_deref()).await {
            Err(failure) => ("refused", vec![format!("load: {}: {}", failure.code, failure.message)]),
            Ok(engine) => {
                let played = suite.play(&engine, &fixture.filled(&answer.input)).await;
                match (&played.outcome, check(fixture, answer, &played)) {
                    (Outcome::Failed { failure, .. }, _) => {
                        ("refused", vec![format!("job: {}: {}", failure.code, failure.message)])
                    }
                    (_, Some(why)) => ("differed", vec![why]),
                    (_, None) => ("agreed", Vec::new()),
                }
            }
        };
        verdicts.push((answer.name.clone(), verdict, why));
    }
    verdicts
}

fn line(folder: &str, case: &str, verdict: &str, largest: f32, why: &[String]) -> Value {
    json!({ "model": folder, "task": "coreml", "case": case, "verdict": verdict, "largest": largest, "why": why })
}
