//! `POST /images/edits`.

use island_protocol::cargo::RuntimeType;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, finished},
    network::Network,
    problem,
};

/// A Cargo that makes images.
pub(crate) const PAINT: &str = r#"
slug = "paint"
name = "Paint"
description = "Makes images."
category = "image"
runtime_type = "diffusers"
price_per_job = 0.5
price_unit = "image"
required_vram_mb = 0
required_ram_mb = 100
[input_schema]
type = "object"
required = ["prompt"]
additionalProperties = false
[input_schema.properties]
prompt = { type = "string" }
image = { type = "string" }
mask_image = { type = "string" }
mask_mode = { type = "string" }
strength = { type = "number" }
num_images = { type = "integer" }
width = { type = "integer" }
height = { type = "integer" }
[output_schema]
type = "object"
[example]
input = { prompt = "a" }
"#;

async fn start() -> (Network, Island) {
    let network = Network::start_with(|config| {
        let file = |slug: &str| config.catalogue.dir.join(format!("{slug}.toml"));
        std::fs::write(file("paint"), PAINT).expect("cargo file");
        // Larger, but trained for parts of images.
        let inpaint = PAINT
            .replace("\"paint\"", "\"inpaint\"")
            .replace("ram_mb = 100", "ram_mb = 900")
            .replace("required = [\"prompt\"]", "required = [\"prompt\", \"image\", \"mask_image\"]")
            .replace("input = { prompt = \"a\" }", "input = { prompt = \"a\", image = \"YQ==\", mask_image = \"YQ==\" }");
        std::fs::write(file("inpaint"), inpaint).expect("cargo file");
    })
    .await;
    let island = Island::start_with(&network, RuntimeType::Diffusers).await;
    (network, island)
}

/// A form with files and other fields.
fn edit(network: &Network, files: &[(&str, &[u8])], fields: &[(&str, &str)]) -> RequestBuilder {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend(part.into_bytes());
    }
    for (name, content) in files {
        let head = format!(
            "--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n"
        );
        body.extend([head.as_bytes(), content, b"\r\n"].concat());
    }
    body.extend(b"--b--\r\n");
    let request = network.call(Method::POST, "/images/edits");
    request.header("Content-Type", "multipart/form-data; boundary=b").body(body)
}

#[tokio::test]
async fn an_image_is_changed_as_a_whole_or_in_its_transparent_part() {
    let (network, mut island) = start().await;
    let output = json!({
        "images": [{"index": 0, "data": "aW1n", "format": "png"}], "seed": 7, "width": 64, "height": 64,
    });
    let whole = edit(&network, &[("image", b"\x89PNG")], &[("prompt", "a hat"), ("n", "2"), ("strength", "0.5")]);
    let part = edit(
        &network,
        &[("image[]", b"\x89PNG"), ("mask", b"mask")],
        &[("prompt", "a hat"), ("model", "gpt-image-1"), ("size", "64x64")],
    );
    for (request, model, input) in [
        (whole, "paint", json!({"prompt": "a hat", "image": "iVBORw==", "num_images": 2, "strength": 0.5})),
        (
            part,
            "inpaint",
            json!({
                "prompt": "a hat", "image": "iVBORw==", "mask_image": "bWFzaw==", "mask_mode": "transparent",
                "width": 64, "height": 64,
            }),
        ),
    ] {
        let ((status, body), sent) = tokio::join!(answer(request), async {
            let assignment = island.take().await;
            island.end(assignment.key, assignment.first_event, finished(output.clone())).await;
            assignment.input
        });
        assert_eq!(sent, input, "{model}");
        assert_eq!((status, &body["model"]), (200, &json!(model)), "{body}");
        assert_eq!(body["data"], json!([{"b64_json": "aW1n"}]));
    }
    assert!((network.credits(&network.consumer).await - 8.5).abs() < 1e-9, "three images were requested");
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_with_the_field() {
    let (network, _island) = start().await;
    let image: &[(&str, &[u8])] = &[("image", b"a")];
    let twice: &[(&str, &[u8])] = &[("image[]", b"a"), ("image[]", b"b")];
    for (files, fields, status, param) in [
        (image, [("prompt", "x"), ("model", "inpaint")], 422, json!("mask")),
        (image, [("prompt", "x"), ("model", "echo")], 404, json!("model")),
        (image, [("prompt", "x"), ("strength", "2")], 422, json!("strength")),
        (twice, [("prompt", "x"), ("n", "1")], 422, json!("image")),
        (&[], [("prompt", "x"), ("n", "1")], 422, json!("image")),
    ] {
        let (code, error) = problem(edit(&network, files, &fields)).await;
        assert_eq!((code, &error["param"]), (status, &param), "{error}");
    }
    // The name of the request's field, not that of the Cargo's input.
    let previews = [("prompt", "x"), ("stream", "true"), ("partial_images", "1")];
    let (status, error) = problem(edit(&network, image, &previews)).await;
    assert_eq!((status, &error["param"]), (422, &json!("partial_images")), "{error}");
    let body: Value = json!({"prompt": "x"});
    let (status, _) = problem(network.call(Method::POST, "/images/edits").json(&body)).await;
    assert_eq!(status, 415, "the body is a form");
}
