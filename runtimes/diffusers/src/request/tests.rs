//! Valid and invalid inputs.

use island_runtimes_kit::error::ErrorKind;
use serde_json::json;

use super::*;

/// A PNG of one opaque pixel.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC";

fn defaults() -> Defaults {
    Defaults {
        steps: 20,
        guidance: 7.5,
        size: (512, 512),
        multiple: 8,
        max_side: 2048,
        max_output_bytes: 12 << 20,
        loras: Vec::new(),
    }
}

#[test]
fn absent_fields_have_defaults() {
    let request = Request::read(&json!({ "prompt": "a boat" }), &defaults()).expect("it makes sense");
    assert_eq!((request.height, request.width, request.steps, request.images), (512, 512, 20, 1));
    assert_eq!((request.guidance, request.seed, request.previews), (7.5, None, 0));
}

#[test]
fn aliases_of_fields_are_accepted() {
    let steps =
        |name: &str| Request::read(&json!({ "prompt": "x", name: 7 }), &defaults()).expect(name).steps;
    assert_eq!([steps("steps"), steps("num_steps"), steps("num_inference_steps")], [7; 3]);
    let whole =
        Request::read(&json!({ "prompt": "x", "width": 64.0, "seed": 3.0 }), &defaults()).expect("whole");
    assert_eq!((whole.width, whole.seed), (64, Some(3)));
}

#[test]
fn invalid_fields_are_named() {
    let wrong = [
        (json!({}), "prompt"),
        (json!({ "prompt": 3 }), "string"),
        (json!({ "prompt": "x", "shade": "red" }), "shade"),
        (json!({ "prompt": "x", "num_inference_steps": -1 }), "num_inference_steps is -1"),
        (json!({ "prompt": "x", "num_inference_steps": 0 }), "num_inference_steps is 0"),
        (json!({ "prompt": "x", "steps": 1_000_000 }), "num_inference_steps is 1000000"),
        (json!({ "prompt": "x", "steps": 2.5 }), "2.5"),
        (json!({ "prompt": "x", "width": 100_000 }), "width is 100000"),
        (json!({ "prompt": "x", "height": -64 }), "height is -64"),
        (json!({ "prompt": "x", "height": 513 }), "height is 513"),
        (json!({ "prompt": "x", "guidance_scale": -1.0 }), "guidance_scale is -1"),
        (json!({ "prompt": "x", "guidance_scale": "NaN" }), "string"),
        (json!({ "prompt": "x", "guidance_scale": 1e300 }), "guidance_scale"),
        (json!({ "prompt": "x", "seed": -4 }), "seed"),
        (json!({ "prompt": "x", "num_images": 100 }), "num_images is 100"),
        (json!({ "prompt": "x", "num_images": 5, "width": 1024, "height": 1024 }), "4 fit"),
        (json!({ "prompt": "x", "previews": 21 }), "previews is 21"),
        (json!({ "prompt": "x", "strength": 0.5 }), "no image"),
        (json!({ "prompt": "x", "mask_image": "aGVsbG8=" }), "no image"),
        (
            json!({ "prompt": "x", "image": DOT, "mask_image": DOT, "mask_mode": "transparent" }),
            "no transparency",
        ),
        (json!({ "prompt": "x", "mask_mode": "dark" }), "dark"),
        (json!({ "prompt": "x", "image": "aGVsbG8=" }), "image is not in a known format"),
        (json!({ "prompt": "x", "image": "https://example.com/a.png" }), "address"),
        (json!({ "prompt": "x", "loras": [{ "name": "a", "scale": 1e9 }] }), "scale of the lora a"),
        (json!({ "prompt": "x", "clip_skip": -1 }), "clip_skip is -1"),
        (json!({ "prompt": "x", "original_size": [-1, 5] }), "sizes"),
    ];
    for (input, named) in wrong {
        let failure = Request::read(&input, &defaults()).expect_err(&input.to_string());
        assert_eq!(failure.kind(), ErrorKind::InvalidInput, "{input}");
        assert!(failure.message().contains(named), "{input}: {}", failure.message());
    }
}
