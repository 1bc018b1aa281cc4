//! What a request for pictures asks for.

use island_protocol::problem::Code;
use serde_json::{Map, Value, json};

use crate::{
    api::{ApiError, body::Fields},
    catalogue::Cargo,
};

/// Longest prompt, in characters, as others have it.
const MAX_PROMPT: usize = 32_000;
/// Largest seed that every client reads as a whole number.
const MAX_SEED: i64 = (1 << 53) - 1;

/// A checked request. Fields that are not known are ignored, as other servers do.
#[derive(Debug)]
pub(super) struct Asked {
    pub model: Option<String>,
    pub stream: bool,
    /// Whether a picture is wanted as a URL.
    pub as_url: bool,
    /// Input of the Cargo, by name.
    input: Map<String, Value>,
}

fn invalid(param: &str, message: impl Into<String>) -> ApiError {
    ApiError::field(Code::ValidationError, param, message)
}

impl Asked {
    /// Checks the fields.
    pub(super) fn parse(mut fields: Fields) -> Result<Self, ApiError> {
        let Value::String(prompt) = fields.required("prompt")? else {
            return Err(invalid("prompt", "prompt must be a string"));
        };
        if prompt.is_empty() || prompt.chars().count() > MAX_PROMPT {
            return Err(invalid("prompt", format!("prompt must have 1 to {MAX_PROMPT} characters")));
        }
        let mut input = Map::from_iter([("prompt".to_owned(), prompt.into())]);
        if let Some(size) = fields.string("size")?.filter(|size| size != "auto") {
            let (width, height) = sides(&size)
                .ok_or_else(|| invalid("size", "size must be auto or WIDTHxHEIGHT, such as 512x768"))?;
            input.insert("width".to_owned(), width.into());
            input.insert("height".to_owned(), height.into());
        }
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let as_url = match fields.string("response_format")?.as_deref() {
            None | Some("b64_json") => false,
            // A stream has the bytes alone, as with others.
            Some("url") => !stream,
            Some(_) => return Err(invalid("response_format", "response_format must be b64_json or url")),
        };
        if fields.string("output_format")?.is_some_and(|format| format != "png") {
            return Err(invalid("output_format", "output_format must be png"));
        }
        if fields.string("background")?.as_deref() == Some("transparent") {
            return Err(invalid("background", "no picture here has a transparent background"));
        }
        for (name, within, low, high) in [
            ("n", "num_images", 1, 10),
            ("seed", "seed", 0, MAX_SEED),
            ("num_inference_steps", "num_inference_steps", 1, 1000),
        ] {
            if let Some(value) = fields.integer(name, low..=high)? {
                input.insert(within.to_owned(), json!(value));
            }
        }
        if let Some(count) = fields.integer("partial_images", 0..=3)?.filter(|count| stream && *count > 0) {
            input.insert("previews".to_owned(), json!(count));
        }
        if let Some(value) = fields.number("guidance_scale", 0.0..=100.0)? {
            input.insert("guidance_scale".to_owned(), json!(value));
        }
        for (name, most) in [("negative_prompt", MAX_PROMPT), ("scheduler", 64)] {
            if let Some(value) = fields.string(name)? {
                if value.chars().count() > most {
                    return Err(invalid(name, format!("{name} must have at most {most} characters")));
                }
                input.insert(name.to_owned(), value.into());
            }
        }
        let model = fields.string("model")?.filter(|model| !model.is_empty());
        Ok(Self { model, stream, as_url, input })
    }

    /// The input for a Cargo; what it does not take is refused, for it would be another picture without.
    pub(super) fn input_for(&self, cargo: &Cargo) -> Result<Map<String, Value>, ApiError> {
        match self.input.keys().find(|name| !cargo.takes(name)) {
            None => Ok(self.input.clone()),
            Some(name) => {
                let slug = &cargo.entry.slug;
                Err(invalid(name, format!("the Cargo {slug} takes no {name}")))
            }
        }
    }
}

/// Width and height of `512x768`.
fn sides(size: &str) -> Option<(u32, u32)> {
    let (width, height) = size.split_once('x')?;
    let pixels = |text: &str| {
        let is_plain = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_plain && !text.starts_with('0'))
    };
    Some((pixels(width)?, pixels(height)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::body::fields;

    #[test]
    fn a_request_becomes_the_input_of_a_cargo() {
        let asked = Asked::parse(fields(json!({
            "prompt": "a boat", "size": "512x768", "n": 2, "seed": 7, "quality": "high", "style": "vivid",
            "partial_images": 2, "stream": true, "model": "gpt-image-1", "user": "somebody",
        })))
        .expect("it makes sense");
        let wanted = json!({
            "prompt": "a boat", "width": 512, "height": 768, "num_images": 2, "seed": 7, "previews": 2,
        });
        assert_eq!(Value::Object(asked.input), wanted);
        assert_eq!((asked.stream, asked.as_url, asked.model.as_deref()), (true, false, Some("gpt-image-1")));
        let plain =
            Asked::parse(fields(json!({"prompt": "x", "partial_images": 3, "size": "auto"}))).expect("plain");
        assert_eq!(Value::Object(plain.input), json!({"prompt": "x"}));
    }

    #[test]
    fn nonsense_is_refused_with_its_name() {
        for (name, value) in [
            ("prompt", json!("")),
            ("prompt", json!(["a"])),
            ("prompt", json!("x".repeat(MAX_PROMPT + 1))),
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
            ("negative_prompt", json!("x".repeat(MAX_PROMPT + 1))),
            ("scheduler", json!("x".repeat(65))),
            ("stream", json!("yes")),
        ] {
            let mut body = json!({"prompt": "x"});
            body[name] = value.clone();
            let error = Asked::parse(fields(body)).expect_err(&format!("{name} {value}"));
            assert_eq!(error.body().error.param.as_deref(), Some(name), "{value}");
        }
    }
}
