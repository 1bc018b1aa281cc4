//! Defaults of image processor classes.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    media::resize::Filter,
};
use serde_json::Value;

use super::{
    FILE, bounded,
    size::{self, Rounding, Rule},
};

type Normal = ([f32; 3], [f32; 3]);

/// Mean and standard deviation of ImageNet.
pub const IMAGENET: Normal = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
const HALF: Normal = ([0.5; 3], [0.5; 3]);
const CLIP: Normal = ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);

/// The defaults of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessorDefaults {
    sizing: Sizing,
    /// Resampling filter.
    pub filter: Filter,
    /// The center crop.
    pub crop: Option<(u32, u32)>,
    /// Mean and standard deviation.
    pub normal: Option<Normal>,
    /// Blue is the first channel.
    pub is_bgr: bool,
}

/// The meaning of a size with one number, and of other settings.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sizing {
    /// Both sides.
    Square(u32),
    /// The shorter side.
    Shortest(u32, Rounding),
    /// The shorter side, and a border is cropped: `crop_pct`.
    Bordered(u32),
    /// Both sides, or near them in steps: `keep_aspect_ratio`, `ensure_multiple_of`.
    Steps(u32),
    /// No size: sides are rounded down to multiples of a divisor.
    Divisor,
}

impl ProcessorDefaults {
    /// The defaults of the class that wrote a settings file.
    pub fn of(file: &Value) -> Self {
        let named = ["image_processor_type", "feature_extractor_type"]
            .iter()
            .find_map(|name| file.get(name)?.as_str());
        let class = named.unwrap_or_default();
        let class = class.strip_suffix("Fast").unwrap_or(class);
        let class = class.strip_suffix("ImageProcessor").or_else(|| class.strip_suffix("FeatureExtractor"));
        let plain = Self {
            sizing: Sizing::Square(224),
            filter: Filter::Bilinear,
            crop: None,
            normal: Some(HALF),
            is_bgr: false,
        };
        let shortest = |edge| Sizing::Shortest(edge, Rounding::Down);
        let detr = Self { normal: Some(IMAGENET), ..plain };
        match class.unwrap_or_default() {
            "CLIP" | "Bit" | "ChineseCLIP" => Self {
                sizing: shortest(224),
                filter: Filter::Bicubic,
                crop: Some((224, 224)),
                normal: Some(CLIP),
                ..plain
            },
            "ConvNext" | "ConvNeXT" => Self { sizing: Sizing::Bordered(384), ..plain },
            "MobileNetV1" | "MobileNetV2" => Self { sizing: shortest(256), crop: Some((224, 224)), ..plain },
            "MobileViT" => {
                Self { sizing: shortest(224), crop: Some((256, 256)), normal: None, is_bgr: true, ..plain }
            }
            "DeiT" | "Beit" => {
                Self { sizing: Sizing::Square(256), filter: Filter::Bicubic, crop: Some((224, 224)), ..plain }
            }
            "Blip" => {
                Self { sizing: Sizing::Square(384), filter: Filter::Bicubic, normal: Some(CLIP), ..plain }
            }
            "Siglip" => Self { filter: Filter::Bicubic, ..plain },
            "Segformer" => Self { sizing: Sizing::Square(512), ..detr },
            "DPT" => Self { sizing: Sizing::Steps(384), filter: Filter::Bicubic, ..plain },
            "GLPN" => Self { sizing: Sizing::Divisor, normal: None, ..plain },
            "Detr" | "ConditionalDetr" | "DeformableDetr" | "GroundingDino" => {
                Self { sizing: Sizing::Shortest(800, Rounding::Detr), ..detr }
            }
            "Yolos" => Self { sizing: Sizing::Shortest(800, Rounding::Yolos), ..detr },
            "RTDetr" => Self { sizing: Sizing::Square(640), normal: None, ..plain },
            "Sam" => Self { sizing: shortest(1024), ..detr },
            _ => plain,
        }
    }

    /// How images are resized.
    pub fn rule(&self, file: &Value) -> Result<Rule, EngineError> {
        let number = |name: &str| file.get(name).and_then(Value::as_f64);
        if self.sizing == Sizing::Divisor {
            return Ok(Rule::Divisor(bounded("size_divisor", number("size_divisor").unwrap_or(32.0))?));
        }
        let size = file.get("size").unwrap_or(&Value::Null);
        let edge =
            |name: &str| size.get(name).and_then(Value::as_f64).map(|edge| bounded(name, edge)).transpose();
        let rounding = match self.sizing {
            Sizing::Shortest(_, rounding) => rounding,
            _ => Rounding::Down,
        };
        if let Some((width, height)) = size::pair(file, "size")?.filter(|_| size.is_object()) {
            return Ok(match self.sizing {
                Sizing::Steps(_) => self.steps(file, width, height)?,
                _ => Rule::Exact { width, height },
            });
        }
        if let (Some(width), Some(height)) = (edge("max_width")?, edge("max_height")?) {
            return Ok(Rule::Within { width, height });
        }
        let longest = match edge("longest_edge")? {
            None => number("max_size").map(|edge| bounded("max_size", edge)).transpose()?,
            longest => longest,
        };
        let one = size.as_f64().map(|edge| bounded("size", edge)).transpose()?;
        match (edge("shortest_edge")?.or(one), longest, self.sizing) {
            (None, Some(longest), _) => Ok(Rule::Longest(longest)),
            (edge, _, Sizing::Square(usual)) if size.get("shortest_edge").is_none() => {
                let side = edge.unwrap_or(usual);
                Ok(Rule::Exact { width: side, height: side })
            }
            (edge, _, Sizing::Bordered(usual)) => {
                let kept = number("crop_pct").unwrap_or(224.0 / 256.0);
                if !(kept > 0.05 && kept <= 1.0) {
                    return Err(invalid_model(format!(
                        "{FILE}: crop_pct is {kept}, not above 0.05 and at most 1"
                    )));
                }
                Ok(Rule::Bordered { edge: edge.unwrap_or(usual), kept })
            }
            (edge, _, Sizing::Steps(usual)) => {
                let side = edge.unwrap_or(usual);
                self.steps(file, side, side)
            }
            (edge, longest, Sizing::Shortest(usual, _)) => {
                Ok(Rule::Shortest { edge: edge.unwrap_or(usual), longest, rounding })
            }
            (edge, longest, _) => Ok(Rule::Shortest { edge: edge.unwrap_or(224), longest, rounding }),
        }
    }

    fn steps(&self, file: &Value, width: u32, height: u32) -> Result<Rule, EngineError> {
        let keep_aspect = file.get("keep_aspect_ratio").and_then(Value::as_bool).unwrap_or(false);
        let multiple = file.get("ensure_multiple_of").and_then(Value::as_f64).unwrap_or(1.0);
        Ok(Rule::Steps { width, height, keep_aspect, multiple: bounded("ensure_multiple_of", multiple)? })
    }
}
