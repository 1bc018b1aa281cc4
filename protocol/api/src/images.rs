//! Bodies of OpenAI's images API.

use serde::{Deserialize, Serialize};

use crate::preferences::Preferences;

/// A request for images. Unknown fields are ignored, as in chat requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ImagesRequest {
    /// The prompt.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1, "maxLength" = 32000)))]
    pub prompt: String,
    /// Slug or alias of an image Cargo; if absent, or one of OpenAI's names, the best one that an Island can run now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Number of images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 10)))]
    pub n: Option<u32>,
    /// Width and height in pixels, such as `512x768`; `auto` is the size that the model was trained for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(regex(pattern = r"^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$")))]
    pub size: Option<String>,
    /// `b64_json`, or `url` for a `data:` URL: images are stored with their job and have no address of their own. Streams support only
    /// `b64_json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["b64_json", "url", null])))]
    pub response_format: Option<String>,
    /// File format; only `png`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["png", null])))]
    pub output_format: Option<String>,
    /// Background; no image has a transparent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["auto", "opaque", null])))]
    pub background: Option<String>,
    /// Whether to stream events while images are generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Number of previews of each image on a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 3)))]
    pub partial_images: Option<u32>,
    /// The negative prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxLength" = 32000)))]
    pub negative_prompt: Option<String>,
    /// Number of denoising steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 1000)))]
    pub num_inference_steps: Option<u32>,
    /// Guidance scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0.0, max = 100.0)))]
    pub guidance_scale: Option<f64>,
    /// Seed of the noise: the same seed gives the same images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 9_007_199_254_740_991_u64)))]
    pub seed: Option<u64>,
    /// Name of the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxLength" = 64)))]
    pub scheduler: Option<String>,
    /// Which Islands may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// A request for images that are made from a given one. It is sent as `multipart/form-data`; unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ImageEditRequest {
    /// The image: a PNG, JPEG, WebP, GIF, BMP or TIFF file. The server reads it into base64, as Cargos take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1, "contentMediaType" = "application/octet-stream")))]
    pub image: Option<String>,
    /// The same as a list of one: no model takes several.
    #[serde(rename = "image[]", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxItems" = 16)))]
    pub images: Option<Vec<String>>,
    /// An image whose transparent pixels select the part that is changed. If absent, the whole image is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1, "contentMediaType" = "application/octet-stream")))]
    pub mask: Option<String>,
    /// How much of the image may change, 0 to 1; if absent, 0.8, or 1 with a mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub strength: Option<f64>,
    /// What is made. If `size` is absent, the result has the size of the image.
    #[serde(flatten)]
    pub options: ImagesRequest,
}

/// The generated images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Images {
    /// Time of the request, Unix seconds.
    pub created: i64,
    /// One entry for each requested image.
    pub data: Vec<ImageData>,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// Width and height, such as `512x768`.
    pub size: String,
    /// `png`.
    pub output_format: String,
    /// Seed of the images.
    pub seed: u64,
}

/// One image.
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

/// An event of a stream; the SSE event has the same name as `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum ImageEvent {
    /// A preview.
    #[serde(rename = "image_generation.partial_image")]
    Partial {
        /// Index of the preview among those of its image, from 0.
        partial_image_index: u32,
        /// The image.
        #[serde(flatten)]
        image: StreamedImage,
    },
    /// A finished image.
    #[serde(rename = "image_generation.completed")]
    Completed {
        /// The image.
        #[serde(flatten)]
        image: StreamedImage,
        /// Token counts.
        usage: ImageUsage,
    },
    /// A preview of a changed image.
    #[serde(rename = "image_edit.partial_image")]
    EditPartial {
        /// Index of the preview among those of its image, from 0.
        partial_image_index: u32,
        /// The image.
        #[serde(flatten)]
        image: StreamedImage,
    },
    /// A changed image.
    #[serde(rename = "image_edit.completed")]
    EditCompleted {
        /// The image.
        #[serde(flatten)]
        image: StreamedImage,
        /// Token counts.
        usage: ImageUsage,
    },
}

impl ImageEvent {
    /// Returns the SSE event name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Partial { .. } => "image_generation.partial_image",
            Self::Completed { .. } => "image_generation.completed",
            Self::EditPartial { .. } => "image_edit.partial_image",
            Self::EditCompleted { .. } => "image_edit.completed",
        }
    }
}

/// An image on a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct StreamedImage {
    /// The file in base64.
    pub b64_json: String,
    /// Time of the request, Unix seconds.
    pub created_at: i64,
    /// Width and height of the file.
    pub size: String,
    /// `png`.
    pub output_format: String,
    /// Always `auto`: there is only one quality.
    pub quality: String,
    /// Always `opaque`.
    pub background: String,
}

/// Token counts. Images are not counted in tokens here, so all are zero; clients expect the fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ImageUsage {
    /// Tokens of the prompt.
    pub input_tokens: u64,
    /// Tokens of the images.
    pub output_tokens: u64,
    /// Total.
    pub total_tokens: u64,
}
