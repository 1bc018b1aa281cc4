//! On macOS: the system's library computes the numbers of the reference, up to the precision of f16.

use island_runtimes_coreml::{
    model::{Model as _, take},
    native::{Native, system},
    package::{Package, find},
};
use island_runtimes_kit::error::EngineError;

use crate::support::{Case, Fixture, all, apart};

/// The Neural Engine computes in f16, whatever a model's numbers were.
const TOLERANCE: f32 = 2e-2;

/// The maximum difference of a case's outputs.
fn difference(fixture: &Fixture, case: &Case) -> Result<f32, String> {
    let (files, wanted) = (fixture.files(), case.model.as_deref());
    let said = |error: EngineError| error.message();
    let package = Package::open(&files, wanted).map_err(said)?;
    let found = find::find(&files, wanted).map_err(said)?;
    let function = case.function.as_deref().unwrap_or(&package.default_function);
    let model = Native::load(&files, &found, &package, function, false).map_err(said)?;
    let (mut state, mut most) = (model.start().map_err(said)?, 0.0_f32);
    for step in &case.steps {
        let mut given = model.run(fixture.given(step), &mut state).map_err(said)?;
        for (name, wanted) in fixture.wanted(step) {
            let got = take(&mut given, &name).ok_or_else(|| format!("it gives no {name}"))?;
            most = most.max(apart(&wanted, &got));
        }
    }
    Ok(most)
}

#[test]
fn outputs_of_every_model_equal_the_reference() {
    let mut wrong = Vec::new();
    for fixture in all() {
        for case in &fixture.cases {
            let at = format!("{}/{}", fixture.name, case.name);
            let needs_newer = fixture.name == "llama" && !system::knows_states_and_functions();
            match difference(&fixture, case) {
                Ok(most) if most <= TOLERANCE => println!("{at:50} {most:.1e}"),
                Ok(most) => wrong.push(format!("{at}: {most}")),
                Err(why) if needs_newer => println!("{at:50} left out: {why}"),
                Err(why) => wrong.push(format!("{at}: {why}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
