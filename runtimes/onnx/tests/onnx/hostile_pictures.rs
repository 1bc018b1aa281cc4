//! Invalid images and repositories fail with a clear message.

use std::{fs, io::Cursor};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use image::{DynamicImage, ImageFormat, RgbImage};
use island_protocol::job::{Failure, FailureCode};
use island_runtimes_onnx::runtime::Onnx;
use island_runtimes_onnx_fixtures::{Fixture, run_job, settings};
use serde_json::{Value, json};

fn encoded(picture: RgbImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Vec::new();
    DynamicImage::from(picture).write_to(&mut Cursor::new(&mut bytes), format).expect("written");
    bytes
}

fn noise(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| image::Rgb([(x * 7) as u8, (y * 13) as u8, (x * y) as u8]))
}

async fn failure_of(fixture: &Fixture, engine: &Onnx, input: Value) -> Failure {
    let shown = input.to_string().chars().take(80).collect::<String>();
    match run_job(engine, fixture.cargo(&fixture.task), input).await {
        Ok(output) => panic!("{}: {shown} was answered: {output}", fixture.name),
        Err(failure) => failure,
    }
}

async fn refused(fixture: &Fixture, engine: &Onnx, bytes: &[u8], why: &str) {
    let failure = failure_of(fixture, engine, json!({ "image": STANDARD.encode(bytes) })).await;
    assert_eq!(failure.code, FailureCode::InvalidInput, "{}", failure.message);
    assert!(failure.message.contains(why), "{:?} does not contain {why:?}", failure.message);
}

#[tokio::test]
async fn incomplete_image_files_are_rejected() {
    let fixture = Fixture::named("vit");
    let engine = fixture.load(&fixture.task).await.expect("loaded");
    refused(&fixture, &engine, b"Once upon a time there was a picture.", "not in a known format").await;
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::WebP,
        ImageFormat::Gif,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
    ] {
        let whole = encoded(noise(64, 48), format);
        let answer =
            run_job(&engine, fixture.cargo(&fixture.task), json!({ "image": STANDARD.encode(&whole) })).await;
        answer.unwrap_or_else(|failure| panic!("a whole {format:?}: {}", failure.message));
        refused(&fixture, &engine, &whole[..whole.len() / 2], "cannot be read").await;
    }
    for text in
        ["", "data:image/png;base64,", "data:image/png,abc", "not base64!", "https://example.com/cat.png"]
    {
        let failure = failure_of(&fixture, &engine, json!({ "image": text })).await;
        assert_eq!(failure.code, FailureCode::InvalidInput, "{text:?}: {}", failure.message);
    }
}

#[tokio::test]
async fn oversized_header_is_rejected_before_decoding() {
    let fixture = Fixture::named("vit");
    let engine = fixture.load(&fixture.task).await.expect("loaded");
    let mut bomb = encoded(noise(1, 1), ImageFormat::Bmp);
    bomb[18..26].copy_from_slice(&[0x30, 0x75, 0, 0, 0x30, 0x75, 0, 0]);
    refused(&fixture, &engine, &bomb, "30000 × 30000").await;
    let mut gif = encoded(noise(4, 4), ImageFormat::Gif);
    gif[6..10].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    refused(&fixture, &engine, &gif, "image").await;
    gif[6..10].copy_from_slice(&[0, 0, 4, 0]);
    refused(&fixture, &engine, &gif, "image").await;
}

#[tokio::test]
async fn image_too_thin_for_its_model_is_rejected() {
    let fixture = Fixture::named("detr");
    let engine = fixture.load(&fixture.task).await.expect("loaded");
    refused(&fixture, &engine, &encoded(noise(4000, 1), ImageFormat::Png), "too long and thin").await;
}

#[tokio::test]
async fn points_must_lie_in_the_image() {
    let fixture = Fixture::named("sam");
    let engine = fixture.load(&fixture.task).await.expect("loaded");
    let image = STANDARD.encode(encoded(noise(60, 40), ImageFormat::Png));
    let many: Vec<Value> = (0..100).map(|at| json!({ "x": at % 60, "y": 1 })).collect();
    for (input, why) in [
        (json!({ "image": image }), "points are missing"),
        (json!({ "image": image, "points": [{ "x": 61, "y": 3 }] }), "must lie in the image"),
        (json!({ "image": image, "points": many }), "at most 64 points"),
        (json!({ "image": image, "boxes": [{ "xmin": 1, "ymin": 1, "xmax": 9, "ymax": 9 }] }), "points only"),
    ] {
        let failure = failure_of(&fixture, &engine, input).await;
        assert_eq!(failure.code, FailureCode::InvalidInput);
        assert!(failure.message.contains(why), "{:?} does not contain {why:?}", failure.message);
    }
}

#[tokio::test]
async fn repository_without_image_settings_does_not_load() {
    for name in ["vit", "detr", "segformer", "dpt", "trocr"] {
        let fixture = Fixture::named(name);
        let mut files = fixture.files();
        files.remove("preprocessor_config.json").expect("there");
        let error = Onnx::load(settings(fixture.cargo(&fixture.task), files)).await.expect_err("refused");
        let failure = Failure::from(error);
        assert_eq!(failure.code, FailureCode::ModelRejected);
        assert!(failure.message.contains("no preprocessor_config.json"), "{}", failure.message);
    }
}

#[tokio::test]
async fn sizes_out_of_range_do_not_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("preprocessor_config.json");
    let fixture = Fixture::named("vit");
    for settings_file in [
        json!({ "size": 100_000 }),
        json!({ "size": { "height": 0, "width": 5 } }),
        json!({ "image_std": [1, 0, 1] }),
        json!({ "image_mean": "gray" }),
        json!({ "resample": 77 }),
    ] {
        fs::write(&path, settings_file.to_string()).expect("written");
        let mut files = fixture.files();
        files.insert("preprocessor_config.json".to_owned(), path.clone());
        let error = Onnx::load(settings(fixture.cargo(&fixture.task), files)).await.expect_err("refused");
        let failure = Failure::from(error);
        assert_eq!(failure.code, FailureCode::ModelRejected, "{settings_file}: {}", failure.message);
    }
}

#[tokio::test]
async fn nan_weights_are_reported() {
    let fixture = Fixture::named("vit");
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = fixture.files();
    let graph = files.get_mut("onnx/model.onnx").expect("there");
    let mut bytes = fs::read(&*graph).expect("readable");
    // The weights of the patches: 24 × 3 × 8 × 8 floats, whose length precedes them. With every bit set a float is NaN.
    let tag = [0x4a, 0x80, 0x90, 0x01];
    let start = bytes.windows(4).position(|window| window == tag).expect("the weights of the patches") + 4;
    bytes[start..start + 4096].fill(0xff);
    *graph = folder.path().join("model.onnx");
    fs::write(&*graph, bytes).expect("written");
    let error = Onnx::load(settings(fixture.cargo(&fixture.task), files)).await.expect_err("refused");
    let failure = Failure::from(error);
    assert_eq!(failure.code, FailureCode::ModelRejected);
    assert!(failure.message.contains("not a number"), "{}", failure.message);
}
