//! Models and jobs compared with the reference.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{collections::BTreeMap, path::PathBuf};

use island_protocol::{
    cargo::CargoSpec,
    job::{Failure, Outcome},
};
use island_runtimes_api::conformance::{self, Played};
use island_runtimes_coreml::{
    model::{Model as _, take},
    package::Package,
    portable::Portable,
    runtime::{CoreMl, Settings},
};
use island_runtimes_graph::{Resources, library};
use serde_json::{Value, json};

use super::{Answer, Case, Fixture, apart};

/// The maximum difference of a case's outputs.
pub(crate) fn difference(fixture: &Fixture, package: &Package, case: &Case) -> Result<f32, String> {
    let environment = library::open().map_err(|error| error.reason)?;
    let function = case.function.as_deref().unwrap_or(&package.default_function);
    let threads = Resources::cpu(1);
    let model = Portable::load(package, function, environment, threads)
        .map_err(|failure| format!("load: {}", failure.message()))?;
    let mut state = model.start().map_err(|failure| failure.message())?;
    let (mut most, mut wrong) = (0.0_f32, Vec::new());
    for (index, step) in case.steps.iter().enumerate() {
        let mut given = model
            .run(fixture.given(step), &mut state)
            .map_err(|failure| format!("run: {}", failure.message()))?;
        for (name, wanted) in fixture.wanted(step) {
            let got = take(&mut given, &name).ok_or_else(|| format!("it gives no {name}"))?;
            let apart = apart(&wanted, &got);
            if apart > case.tolerance {
                wrong.push(format!(
                    "{name} at step {index}: {apart} (shapes {:?}, {:?})",
                    wanted.shape(),
                    got.shape()
                ));
            }
            most = most.max(apart);
        }
    }
    if wrong.is_empty() { Ok(most) } else { Err(wrong.join("; ")) }
}

/// The package of a case.
pub(crate) fn open(fixture: &Fixture, case: &Case) -> Package {
    Package::open(&fixture.files(), case.model.as_deref())
        .unwrap_or_else(|failure| panic!("{}: {}", fixture.name, failure.message()))
}

/// The Cargo of a fixture.
fn cargo(fixture: &Fixture) -> CargoSpec {
    let mut engine = fixture.engine.clone();
    engine["task"] = fixture.task.clone().into();
    let cargo = json!({ "slug": fixture.name, "runtime_type": "coreml", "engine": engine });
    serde_json::from_value(cargo).expect("a Cargo")
}

/// The engine of a fixture.
pub(crate) async fn load(fixture: &Fixture) -> Result<CoreMl, Failure> {
    load_without(fixture, None).await
}

/// The same without the files whose names begin so.
pub(crate) async fn load_without(fixture: &Fixture, left_out: Option<&str>) -> Result<CoreMl, Failure> {
    let mut files = fixture.files();
    files.retain(|name, _| left_out.is_none_or(|left_out| !name.starts_with(left_out)));
    load_files(fixture, files).await
}

/// The same with other files.
pub(crate) async fn load_files(
    fixture: &Fixture,
    files: BTreeMap<String, PathBuf>,
) -> Result<CoreMl, Failure> {
    let cargo = cargo(fixture);
    CoreMl::load(Settings { files, cargo, slots: 2, threads: 1, uses_gpu: false })
        .await
        .map_err(Failure::from)
}

/// The jobs of a fixture.
pub(crate) fn suite(
    fixture: &Fixture,
    good: Vec<Value>,
    long: Value,
    bad: Vec<Value>,
) -> conformance::Fixture {
    let reads_tokens = fixture.task == "text-generation";
    conformance::Fixture { cargo: cargo(fixture), artifacts: BTreeMap::new(), good, long, bad, reads_tokens }
}

/// The difference of an answer from the expected one.
fn differs(wanted: &Value, got: &Value, tolerance: f64) -> Option<String> {
    match (wanted, got) {
        (Value::Object(wanted), Value::Object(_)) => {
            let inner = |(name, wanted): (&String, &Value)| {
                differs(wanted, got.get(name)?, tolerance).map(|why| format!("{name}: {why}"))
            };
            let missing = wanted.keys().find(|name| got.get(name.as_str()).is_none());
            missing.map(|name| format!("{name} is missing")).or_else(|| wanted.iter().find_map(inner))
        }
        (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
            wanted.iter().zip(got).find_map(|(wanted, got)| differs(wanted, got, tolerance))
        }
        (Value::Number(one), Value::Number(other)) => {
            let apart = one.as_f64()? - other.as_f64()?;
            (apart.is_nan() || apart.abs() > tolerance).then(|| format!("{other} for {one}"))
        }
        _ => (wanted != got).then(|| format!("{got} for {wanted}")),
    }
}

/// Why the answer of a job is not the expected one.
pub(crate) fn check(fixture: &Fixture, answer: &Answer, played: &Played) -> Option<String> {
    let Outcome::Completed { output, usage, .. } = &played.outcome else {
        return Some(format!("{:?}", played.outcome));
    };
    if fixture.task == "text-generation" {
        let said = json!({ "text": played.text, "tokens": usage.completion_tokens });
        return differs(&answer.output, &said, 0.0);
    }
    let output = output.clone().unwrap_or_default();
    let lacks = answer.has.iter().find(|name| output.get(name.as_str()).is_none());
    lacks
        .map(|name| format!("{name} is missing"))
        .or_else(|| differs(&answer.output, &output, answer.tolerance))
}
