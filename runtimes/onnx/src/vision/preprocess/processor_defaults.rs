//! Defaults of image processor classes.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::unsupported,
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

/// Classes without defaults of their own, and files without a class; `Image` is that of transformers.js.
const PLAIN: [&str; 4] = ["", "Image", "ViT", "ViTMSN"];

/// The class that wrote a settings file, without `ImageProcessor` or `FeatureExtractor` at its end.
pub fn class(file: &Value) -> &str {
    let named = NAMES.iter().find_map(|name| file.get(*name)?.as_str()).unwrap_or_default();
    let name = named.strip_suffix("Fast").unwrap_or(named);
    let class = name.strip_suffix("ImageProcessor").or_else(|| name.strip_suffix("FeatureExtractor"));
    // Another ending is another kind of class, which is unknown by its whole name.
    class.unwrap_or(named)
}

/// Keys that name the class.
pub(super) const NAMES: [&str; 2] = ["image_processor_type", "feature_extractor_type"];

/// The defaults of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessorDefaults {
    sizing: Sizing,
    /// Rounding of the longer side where the shorter one is given to a class that has both by default.
    rounding: Rounding,
    /// Resampling filter.
    pub filter: Filter,
    /// The center crop.
    pub crop: Option<(u32, u32)>,
    /// Mean and standard deviation.
    pub normal: Option<Normal>,
    /// Blue is the first channel.
    pub is_bgr: bool,
    /// Whether pixels are divided by the standard deviation once more: `include_top`.
    pub divides_twice: bool,
    /// Whether images are turned, reduced and padded to the size: those of documents.
    pub is_page: bool,
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
    /// The shorter side, enlarged by the share that the crop keeps: by default `crop_pct`, or if it is absent this.
    Enlarged(u32, f64),
    /// Both sides, or near them in steps: `keep_aspect_ratio`, `ensure_multiple_of`.
    Steps(u32),
    /// No size: sides are rounded down to multiples of a divisor.
    Divisor,
}

impl ProcessorDefaults {
    /// The defaults of the class that wrote a settings file.
    ///
    /// An error if the class is unknown: its defaults, and the meaning of its settings, would be guesses.
    pub fn of(file: &Value) -> Result<Self, EngineError> {
        let class = class(file);
        let plain = Self {
            sizing: Sizing::Square(224),
            rounding: Rounding::Down,
            filter: Filter::Bilinear,
            crop: None,
            normal: Some(HALF),
            is_bgr: false,
            divides_twice: false,
            is_page: false,
        };
        let shortest = |edge| Sizing::Shortest(edge, Rounding::Down);
        let detr = Self { normal: Some(IMAGENET), ..plain };
        Ok(match class {
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
            "RTDetr" => Self { sizing: Sizing::Square(640), rounding: Rounding::Detr, normal: None, ..plain },
            "Sam" => Self { sizing: shortest(1024), ..detr },
            "EfficientNet" => {
                Self { sizing: Sizing::Square(346), filter: Filter::Nearest, divides_twice: true, ..plain }
            }
            "Levit" => Self {
                sizing: Sizing::Enlarged(224, LEVIT),
                filter: Filter::Bicubic,
                crop: Some((224, 224)),
                ..detr
            },
            "PoolFormer" => Self {
                sizing: Sizing::Enlarged(224, 0.9),
                filter: Filter::Bicubic,
                crop: Some((224, 224)),
                ..detr
            },
            "Pvt" => detr,
            "Donut" => Self { is_page: true, ..plain },
            _ if PLAIN.contains(&class) => plain,
            _ => {
                let (name, value) =
                    NAMES.iter().find_map(|name| Some((*name, file.get(*name)?))).unwrap_or_default();
                return Err(unsupported(FILE, name, value));
            }
        })
    }

    /// How images are resized.
    pub fn rule(&self, file: &Value) -> Result<Rule, EngineError> {
        let number = |name: &str| file.get(name).and_then(Value::as_f64);
        if self.sizing == Sizing::Divisor {
            return Ok(Rule::Divisor(bounded("size_divisor", number("size_divisor").unwrap_or(32.0))?));
        }
        let size = file.get("size").unwrap_or(&Value::Null);
        size::check(size)?;
        if let Some((width, height)) = self.page(file)? {
            return Ok(Rule::Shortest { edge: width.min(height), longest: None, rounding: Rounding::Down });
        }
        let edge =
            |name: &str| size.get(name).and_then(Value::as_f64).map(|edge| bounded(name, edge)).transpose();
        let rounding = match self.sizing {
            Sizing::Shortest(_, rounding) => rounding,
            _ => self.rounding,
        };
        if let Sizing::Enlarged(usual, kept) = self.sizing {
            let square = size::pair(file, "size")?.filter(|_| size.is_object() || size.is_array());
            return enlarged(file, edge("shortest_edge")?.or(edge_of(size)?), square, usual, kept);
        }
        // Two numbers are height and width.
        if let Some((width, height)) =
            size::pair(file, "size")?.filter(|_| size.is_object() || size.is_array())
        {
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
            // Only the processors of detectors bound the longer side as well.
            (edge, _, Sizing::Shortest(usual, Rounding::Down)) => {
                Ok(Rule::Shortest { edge: edge.unwrap_or(usual), longest: None, rounding })
            }
            (edge, longest, Sizing::Shortest(usual, _)) => {
                Ok(Rule::Shortest { edge: edge.unwrap_or(usual), longest, rounding })
            }
            (edge, longest, _) => Ok(Rule::Shortest { edge: edge.unwrap_or(224), longest, rounding }),
        }
    }

    /// The page size of documents, width and height. Old files have the width first.
    pub fn page(&self, file: &Value) -> Result<Option<(u32, u32)>, EngineError> {
        if !self.is_page {
            return Ok(None);
        }
        let sides = size::pair(file, "size")?.unwrap_or((1920, 2560));
        let is_old = file.get("size").is_some_and(Value::is_array);
        Ok(Some(if is_old { (sides.1, sides.0) } else { sides }))
    }

    fn steps(&self, file: &Value, width: u32, height: u32) -> Result<Rule, EngineError> {
        let keep_aspect = file.get("keep_aspect_ratio").and_then(Value::as_bool).unwrap_or(false);
        let multiple = file.get("ensure_multiple_of").and_then(Value::as_f64).unwrap_or(1.0);
        Ok(Rule::Steps { width, height, keep_aspect, multiple: bounded("ensure_multiple_of", multiple)? })
    }
}

/// Share of the shorter side that LeViT's crop keeps.
const LEVIT: f64 = 224.0 / 256.0;

/// One number as a size.
fn edge_of(size: &Value) -> Result<Option<u32>, EngineError> {
    size.as_f64().map(|edge| bounded("size", edge)).transpose()
}

/// The shorter side becomes `edge` divided by the share that the crop keeps. LeViT has no `crop_pct`, and multiplies.
fn enlarged(
    file: &Value,
    edge: Option<u32>,
    sides: Option<(u32, u32)>,
    usual: u32,
    kept: f64,
) -> Result<Rule, EngineError> {
    let shortest = |edge: f64| {
        let edge = bounded("size", edge.floor())?;
        Ok(Rule::Shortest { edge, longest: None, rounding: Rounding::Down })
    };
    let is_levit = kept == LEVIT;
    // An explicit null means that nothing is enlarged.
    let kept = match file.get("crop_pct").filter(|_| !is_levit) {
        None => Some(kept),
        Some(Value::Null) => None,
        Some(given) => Some(given.as_f64().filter(|kept| (0.05..=1.0).contains(kept)).ok_or_else(|| {
            invalid_model(format!("{FILE}: crop_pct is {given}, not above 0.05 and at most 1"))
        })?),
    };
    match (sides, kept) {
        (Some((width, height)), _) if is_levit => Ok(Rule::Exact { width, height }),
        (Some((width, height)), None) => Ok(Rule::Exact { width, height }),
        (Some((width, height)), Some(kept)) if width == height => shortest(f64::from(width) / kept),
        (Some((width, height)), Some(kept)) => {
            let side = |side: u32| bounded("size", (f64::from(side) / kept).floor());
            Ok(Rule::Exact { width: side(width)?, height: side(height)? })
        }
        (None, Some(_)) if is_levit => shortest(256.0 / 224.0 * f64::from(edge.unwrap_or(usual))),
        (None, kept) => shortest(f64::from(edge.unwrap_or(usual)) / kept.unwrap_or(1.0)),
    }
}
