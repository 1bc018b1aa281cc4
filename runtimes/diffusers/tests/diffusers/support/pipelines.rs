//! Whole pipelines with the noise of a recording.
#![allow(dead_code, reason = "each test file uses a part of it")]

use island_runtimes_diffusers::{
    denoise::{Plan, Step},
    model::Model,
    request::Request,
    schedule,
};
use island_runtimes_kit::error::EngineError;
use serde_json::{Map, Value};

use super::{Apart, Fixture, Given};

/// The differences of the latents after each step, and of the image; an error if the request is refused.
pub(crate) fn pipeline(fixture: &Fixture, model: &Model, case: &Value) -> Result<[Apart; 2], EngineError> {
    let name = format!("pipelines/{}", text(case, "name"));
    let at = format!("{}/{name}", fixture.name);
    let request = Request::read(&input(fixture, case), &model.defaults())?;
    let schedule = match &case["scheduler"] {
        Value::Null => model.schedule.clone(),
        settings => serde_json::from_value::<schedule::Config>(without_nulls(settings)).expect("settings"),
    };
    let plan = Plan::with(model, &request, schedule, case["tiling"] == true)?;
    let recorded = ["latents", "noise"].iter().any(|start| fixture.has(&format!("{name}/{start}")));
    assert!(recorded, "{at}: the recording lacks its initial noise");
    let noise = Given { fixture, case: name.clone() };
    let steps = fixture.numbers(&format!("{name}/steps"));
    let image = fixture.has(&format!("{name}/image")).then(|| fixture.numbers(&format!("{name}/image")));
    let (mut worst, mut pixels) = (Apart { most: 0.0, share: 0.0, cosine: 1.0 }, worst());
    for picture in 0..request.images {
        let mut watch = |step: Step<'_>| {
            assert_eq!(step.of, steps.shape[0], "{at}: steps");
            worst = worse(worst, Apart::of(step.latents, &steps.at(step.done - 1).picture(picture)));
            Ok(())
        };
        let got = plan.generate(picture, &noise, &mut watch)?;
        if let Some(image) = image {
            pixels = worse(pixels, Apart::of(&got, &image.picture(picture)));
        }
    }
    Ok([worst, pixels])
}

/// A text of a case.
pub(crate) fn text<'c>(case: &'c Value, name: &str) -> &'c str {
    case.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The arguments of a call as an input.
fn input(fixture: &Fixture, case: &Value) -> Value {
    let mut input = Map::new();
    for (name, value) in case.as_object().expect("a case") {
        let value = match name.as_str() {
            "name" | "kind" | "scheduler" | "timesteps" => continue,
            "image" | "mask_image" => fixture.base64(value.as_str().expect("a file")).into(),
            "lora" => {
                let named =
                    |lora: &Value| serde_json::json!({ "name": lora["file"], "scale": lora["scale"] });
                input.insert(
                    "loras".to_owned(),
                    value.as_array().expect("adapters").iter().map(named).collect(),
                );
                continue;
            }
            _ => value.clone(),
        };
        input.insert(name.clone(), value);
    }
    Value::Object(input)
}

/// No difference.
pub(crate) fn worst() -> Apart {
    Apart { most: 0.0, share: 0.0, cosine: 1.0 }
}

/// The larger of two differences.
pub(crate) fn worse(one: Apart, other: Apart) -> Apart {
    Apart {
        most: one.most.max(other.most),
        share: one.share.max(other.share),
        cosine: one.cosine.min(other.cosine),
    }
}

/// Settings without those that are null.
pub(crate) fn without_nulls(settings: &Value) -> Value {
    let fields = settings.as_object().expect("settings").iter().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into()
}
