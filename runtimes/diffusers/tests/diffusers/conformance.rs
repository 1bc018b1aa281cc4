//! The conformance suite, and the events of an image.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::event::AttemptEvent;
use island_runtimes_api::conformance::{Fixture as Suite, run_all};
use island_runtimes_diffusers::runtime::Diffusers;
use serde_json::json;

use crate::support::{Fixture, run_job};

#[tokio::test(flavor = "multi_thread")]
async fn engine_conforms() {
    let fixture = Fixture::named("sd15");
    let engine = Diffusers::load(fixture.settings()).await.expect("a model");
    let input = |prompt: &str| json!({ "prompt": prompt, "steps": 2, "width": 32, "height": 32, "seed": 1 });
    let suite = Suite {
        cargo: fixture.cargo(),
        artifacts: fixture.files(),
        good: vec![input("a boat"), input("a house")],
        long: json!({ "prompt": "a boat", "steps": 500, "num_images": 8, "previews": 20, "seed": 1 }),
        bad: vec![
            json!({}),
            json!({ "prompt": "a boat", "steps": -1 }),
            json!({ "prompt": "a boat", "width": 100_000 }),
            json!({ "prompt": "a boat", "image": "nothing" }),
            json!({ "prompt": "a boat", "scheduler": "the best" }),
        ],
        reads_tokens: false,
    };
    run_all(&engine, &suite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_reports_progress_and_sends_each_image() {
    let fixture = Fixture::named("sd15");
    let engine = Diffusers::load(fixture.settings()).await.expect("a model");
    let input = json!({
        "prompt": "a boat", "negative_prompt": "fog", "num_inference_steps": 4, "width": 64, "height": 32,
        "num_images": 2, "previews": 1, "scheduler": "euler_a", "seed": 11,
    });
    let (output, said) = run_job(&engine, fixture.cargo(), input.clone()).await;
    let output = output.expect("pictures");
    let progress: Vec<(u64, u64)> = said
        .iter()
        .filter_map(|event| match event {
            AttemptEvent::Progress { step, total, .. } => Some((*step, *total)),
            _ => None,
        })
        .collect();
    assert_eq!(progress, (0..=8).map(|step| (step, 8)).collect::<Vec<_>>());
    let images: Vec<_> = said
        .iter()
        .filter_map(|event| match event {
            AttemptEvent::Image(image) => Some(image),
            _ => None,
        })
        .collect();
    let sizes: Vec<_> = images.iter().map(|image| (image.width, image.height)).collect();
    let (preview, whole) = ((Some(8), Some(4)), (Some(64), Some(32)));
    assert_eq!(sizes, [preview, whole, preview, whole]);
    assert_eq!(output["seed"], 11);
    assert_eq!(output["images"][1]["data"], images[3].data.as_str());
    assert_ne!(images[1].data, images[3].data, "each picture has its own noise");
    let file = STANDARD.decode(&images[1].data).expect("base64");
    let reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().expect("a PNG");
    let text = &reader.info().utf8_text[0];
    assert_eq!(text.keyword, "parameters");
    let text = text.get_text().expect("text");
    assert!(
        text.starts_with(
            "a boat\nNegative prompt: fog\nSteps: 4, Sampler: euler_a, CFG scale: 7.5, Seed: 11"
        ),
        "{text}"
    );
    // The second image of a seed does not depend on the number of images.
    let mut more = input;
    more["num_images"] = 3.into();
    let (again, _) = run_job(&engine, fixture.cargo(), more).await;
    assert_eq!(again.expect("pictures")["images"][1], output["images"][1]);
}
