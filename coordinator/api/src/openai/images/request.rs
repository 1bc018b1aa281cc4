//! From an images request to the input of a job.

use island_protocol_api::{
    images::{ImageEditRequest, ImagesRequest},
    preferences::Preferences,
    problem::Code,
};
use serde_json::{Map, Value, json};

use crate::ApiError;
use island_coordinator_domain::catalogue::Cargo;

/// What images are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A prompt.
    Generation,
    /// A prompt and an image.
    Edit,
}

/// A request for images, mapped to the names of inputs.
#[derive(Debug)]
pub(super) struct Generation {
    pub kind: Kind,
    pub model: Option<String>,
    pub stream: bool,
    /// Whether images are returned as URLs.
    pub as_url: bool,
    pub preferences: Preferences,
    /// Input of the Cargo, by name.
    input: Map<String, Value>,
}

impl Generation {
    /// Maps a request.
    pub(super) fn new(request: ImagesRequest) -> Self {
        let stream = request.stream.unwrap_or(false);
        let sides = request.size.as_deref().and_then(sides);
        let inputs = [
            ("prompt", json!(request.prompt)),
            ("width", json!(sides.map(|(width, _)| width))),
            ("height", json!(sides.map(|(_, height)| height))),
            ("num_images", json!(request.n)),
            ("seed", json!(request.seed)),
            ("num_inference_steps", json!(request.num_inference_steps)),
            ("previews", json!(request.partial_images.filter(|count| stream && *count > 0))),
            ("guidance_scale", json!(request.guidance_scale)),
            ("negative_prompt", json!(request.negative_prompt)),
            ("scheduler", json!(request.scheduler)),
        ];
        let inputs = inputs.into_iter().filter(|(_, value)| !value.is_null());
        Self {
            kind: Kind::Generation,
            model: request.model.filter(|model| !model.is_empty()),
            stream,
            preferences: request.preferences.unwrap_or_default(),
            // Streams contain only the bytes, as in OpenAI's API.
            as_url: request.response_format.as_deref() == Some("url") && !stream,
            input: inputs.map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    /// Maps a request that changes an image.
    pub(super) fn edit(request: ImageEditRequest) -> Result<Self, ApiError> {
        let ImageEditRequest { image, images, mask, strength, options } = request;
        let mut given: Vec<String> = image.into_iter().chain(images.unwrap_or_default()).collect();
        let (Some(image), true) = (given.pop(), given.is_empty()) else {
            return Err(ApiError::field(Code::ValidationError, "image", "one image must be given"));
        };
        let mut edit = Self::new(options);
        let mask_mode = mask.is_some().then_some("transparent");
        let inputs = [
            ("image", json!(image)),
            ("mask_image", json!(mask)),
            ("mask_mode", json!(mask_mode)),
            ("strength", json!(strength)),
        ];
        let inputs = inputs.into_iter().filter(|(_, value)| !value.is_null());
        edit.input.extend(inputs.map(|(name, value)| (name.to_owned(), value)));
        Ok(Self { kind: Kind::Edit, ..edit })
    }

    /// Whether a part of an image is changed.
    pub(super) fn has_mask(&self) -> bool {
        self.input.contains_key("mask_image")
    }

    /// Whether the Cargo makes images of this kind from what is given.
    pub(super) fn suits(&self, cargo: &Cargo) -> bool {
        match self.kind {
            Kind::Generation => cargo.makes_images(),
            Kind::Edit => cargo.edits_images(self.has_mask()),
        }
    }

    /// The input for a Cargo. Returns an error for an input that the Cargo does not have, as the image would be another one
    /// without it.
    pub(super) fn input_for(&self, cargo: &Cargo) -> Result<Map<String, Value>, ApiError> {
        match self.input.keys().find(|name| !cargo.takes(name)) {
            None => Ok(self.input.clone()),
            Some(name) => {
                let field = field(name);
                let message = format!("the Cargo {} takes no {field}", cargo.entry.slug);
                Err(ApiError::field(Code::ValidationError, field, message))
            }
        }
    }
}

/// The field of a request that becomes an input.
fn field(input: &str) -> &str {
    match input {
        "num_images" => "n",
        "width" | "height" => "size",
        "previews" => "partial_images",
        "mask_image" | "mask_mode" => "mask",
        same => same,
    }
}

/// Width and height of `512x768`; `None` for `auto`.
fn sides(size: &str) -> Option<(u32, u32)> {
    let (width, height) = size.split_once('x')?;
    Some((width.parse().ok()?, height.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::body::fields;

    fn parse(body: Value) -> Result<Generation, ApiError> {
        fields(body).parse().map(Generation::new)
    }

    #[test]
    fn a_request_becomes_the_input_of_a_cargo() {
        let request = parse(json!({
            "prompt": "a boat", "size": "512x768", "n": 2, "seed": 7, "quality": "high", "style": "vivid",
            "partial_images": 2, "stream": true, "model": "gpt-image-1", "user": "somebody",
        }))
        .expect("valid");
        let expected = json!({
            "prompt": "a boat", "width": 512, "height": 768, "num_images": 2, "seed": 7, "previews": 2,
        });
        assert_eq!(Value::Object(request.input), expected);
        assert_eq!(
            (request.stream, request.as_url, request.model.as_deref()),
            (true, false, Some("gpt-image-1"))
        );
        let plain = json!({"prompt": "x", "partial_images": 3, "size": "auto", "response_format": null});
        assert_eq!(Value::Object(parse(plain).expect("valid").input), json!({"prompt": "x"}));
    }

    #[test]
    fn an_edit_has_one_image_and_its_mask_selects_by_transparency() {
        let edit = |body: Value| fields(body).parse::<ImageEditRequest>().and_then(Generation::edit);
        let masked =
            edit(json!({"prompt": "a hat", "image[]": ["aW1n"], "mask": "bWFzaw==", "n": 2, "size": "auto"}));
        let masked = masked.expect("valid");
        assert!(masked.has_mask() && masked.kind == Kind::Edit);
        let expected = json!({
            "prompt": "a hat", "image": "aW1n", "mask_image": "bWFzaw==", "mask_mode": "transparent", "num_images": 2,
        });
        assert_eq!(Value::Object(masked.input), expected);
        let plain = edit(json!({"prompt": "a hat", "image": "aW1n", "strength": 0.5})).expect("valid");
        assert_eq!(Value::Object(plain.input), json!({"prompt": "a hat", "image": "aW1n", "strength": 0.5}));
        for wrong in [json!({"prompt": "x"}), json!({"prompt": "x", "image": "YQ==", "image[]": ["YQ=="]})] {
            let error = edit(wrong).expect_err("not one image").body().error;
            assert_eq!(error.param.as_deref(), Some("image"));
        }
    }

    #[test]
    fn invalid_values_are_refused_with_their_name() {
        for (name, value) in [
            ("prompt", json!("")),
            ("prompt", json!(["a"])),
            ("prompt", json!("x".repeat(32_001))),
            ("size", json!("large")),
            ("size", json!("0x64")),
            ("size", json!("+64x64")),
            ("size", json!("064x64")),
            ("size", json!("99999999999x1")),
            ("n", json!(0)),
            ("n", json!(11)),
            ("seed", json!(-1)),
            ("response_format", json!("jpeg")),
            ("output_format", json!("webp")),
            ("background", json!("transparent")),
            ("partial_images", json!(4)),
            ("guidance_scale", json!(1e9)),
            ("negative_prompt", json!("x".repeat(32_001))),
            ("scheduler", json!("x".repeat(65))),
            ("stream", json!("yes")),
        ] {
            let mut body = json!({"prompt": "x"});
            body[name] = value.clone();
            let error = parse(body).expect_err(&format!("{name} {value}"));
            assert_eq!(error.body().error.param.as_deref(), Some(name), "{value}");
        }
    }
}
