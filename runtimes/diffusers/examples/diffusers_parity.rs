//! The engine's half of `tools/parity` for Stable Diffusion: the same lines as of `onnx_parity`, one for each call of a pipeline.

#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

#[path = "../tests/diffusers/support/mod.rs"]
mod support;

use std::{error::Error, io, path::Path};

use island_runtimes_diffusers::{model::Model, weights::Element};
use island_runtimes_kit::error::EngineError;
use serde_json::{Value, json};
use support::{
    Fixture, graphs,
    pipelines::{pipeline, text},
};

/// The difference that latents and images may have, as a share of the maximum: guidance and many steps amplify the rounding of the first.
const TOLERANCE: f32 = 1e-2;
/// The minimum cosine of the angle between them.
const COSINE: f64 = 0.9999;

fn main() -> Result<(), Box<dyn Error>> {
    let on = graphs(Element::F32);
    for folder in io::stdin().lines() {
        let folder = folder?;
        println!("{}", json!({ "model": folder }));
        let root = Path::new(&folder);
        let fixture = Fixture::read(root, &root.join("golden"));
        let model = fixture.model(&on);
        for case in fixture.list("pipelines") {
            println!("{}", verdict(&folder, &fixture, model.as_ref(), &case));
        }
    }
    Ok(())
}

/// The verdict on a call.
fn verdict(folder: &str, fixture: &Fixture, model: Result<&Model, &EngineError>, case: &Value) -> Value {
    let refused =
        |step: &str, failure: &EngineError| ("refused", 0.0, vec![format!("{step}: {}", failure.message())]);
    // That of a grid whose networks amplify less.
    let own = fixture.cases.get("tolerance").and_then(Value::as_f64);
    let tolerance = own.map_or(TOLERANCE, |share| share as f32);
    let (verdict, largest, why) = match model.map(|model| pipeline(fixture, model, case)) {
        Err(failure) => refused("load", failure),
        Ok(Err(failure)) => refused("job", &failure),
        Ok(Ok(apart)) => {
            // Written so that no comparison with NaN passes.
            let is_near = apart.iter().all(|one| one.share <= tolerance && one.cosine > COSINE);
            let why = if is_near { Vec::new() } else { vec![format!("{apart:?}")] };
            (if is_near { "agreed" } else { "differed" }, apart[0].share.max(apart[1].share), why)
        }
    };
    json!({ "model": folder, "task": "diffusers", "case": text(case, "name"), "verdict": verdict, "largest": largest, "why": why })
}
