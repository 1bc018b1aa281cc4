//! What clients of OpenAI's images API send and are answered.

use serde::{Deserialize, Serialize};

/// A request for pictures. Fields that are not known are ignored, as with chats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ImagesRequest {
    /// What to show.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1, "maxLength" = 32000)))]
    pub prompt: String,
    /// Slug or alias of a Cargo that makes pictures; absent, or one of OpenAI's names, it is the best one that an Island can run now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 10)))]
    pub n: Option<u32>,
    /// Width and height in pixels, such as `512x768`; `auto` is the size that the model was trained for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(regex(pattern = r"^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$")))]
    pub size: Option<String>,
    /// `b64_json`, or `url` for a `data:` URL: pictures are kept with their job and under no address of their own. Streams have the
    /// former alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["b64_json", "url"])))]
    pub response_format: Option<String>,
    /// The file format; only `png`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["png"])))]
    pub output_format: Option<String>,
    /// Whether to answer with events as pictures come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Previews of each picture on a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 3)))]
    pub partial_images: Option<u32>,
    /// What not to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxLength" = 32000)))]
    pub negative_prompt: Option<String>,
    /// Steps from noise to picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 1000)))]
    pub num_inference_steps: Option<u32>,
    /// How much more the prompt counts than its absence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0.0, max = 100.0)))]
    pub guidance_scale: Option<f64>,
    /// Where noise comes from: the same seed makes the same pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 9_007_199_254_740_991_u64)))]
    pub seed: Option<u64>,
    /// The scheduler by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxLength" = 64)))]
    pub scheduler: Option<String>,
}

/// Pictures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Images {
    /// When they were asked for, Unix seconds.
    pub created: i64,
    /// One for each that was asked for.
    pub data: Vec<ImageData>,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// Width and height, such as `512x768`.
    pub size: String,
    /// `png`.
    pub output_format: String,
    /// Seed they were made from.
    pub seed: u64,
}

/// One picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ImageData {
    /// The file in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b64_json: Option<String>,
    /// The file as a `data:` URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What is told on a stream; the SSE event has the same name as `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum ImageEvent {
    /// A preview.
    #[serde(rename = "image_generation.partial_image")]
    Partial {
        /// Which of its picture's previews, from 0.
        partial_image_index: u32,
        /// The picture.
        #[serde(flatten)]
        image: StreamedImage,
    },
    /// A picture as it was asked for.
    #[serde(rename = "image_generation.completed")]
    Completed {
        /// The picture.
        #[serde(flatten)]
        image: StreamedImage,
        /// What it used, as others count.
        usage: ImageUsage,
    },
}

impl ImageEvent {
    /// The SSE event name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Partial { .. } => "image_generation.partial_image",
            Self::Completed { .. } => "image_generation.completed",
        }
    }
}

/// A picture on a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct StreamedImage {
    /// The file in base64.
    pub b64_json: String,
    /// When it was asked for, Unix seconds.
    pub created_at: i64,
    /// Width and height of the file.
    pub size: String,
    /// `png`.
    pub output_format: String,
    /// Always `auto`: there is one quality.
    pub quality: String,
    /// Always `opaque`.
    pub background: String,
}

/// Tokens, which pictures here are not counted in: always zero, for clients that read them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ImageUsage {
    /// Of the prompt.
    pub input_tokens: u64,
    /// Of the pictures.
    pub output_tokens: u64,
    /// Both.
    pub total_tokens: u64,
}
