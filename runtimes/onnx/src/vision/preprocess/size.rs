//! The size of a preprocessed image. The arithmetic, including its rounding, is that of the reference.

use island_runtimes_kit::{error::EngineError, keys::unsupported};
use serde_json::Value;

use super::{FILE, bounded};

/// A side in pixels.
pub type Side = u32;

/// How a size is chosen.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// This size.
    Exact {
        /// Width in pixels.
        width: Side,
        /// Height in pixels.
        height: Side,
    },
    /// The shorter side becomes `edge`, unless the longer one would exceed `longest`.
    Shortest {
        /// Pixels.
        edge: Side,
        /// Pixels.
        longest: Option<Side>,
        /// Rounding of the other side.
        rounding: Rounding,
    },
    /// The longer side becomes this.
    Longest(Side),
    /// The maximum size that fits.
    Within {
        /// Width in pixels.
        width: Side,
        /// Height in pixels.
        height: Side,
    },
    /// Sides are rounded down to multiples of this.
    Divisor(Side),
    /// A square of `edge`; for center crops, `kept` is its share of the shorter side.
    Bordered {
        /// Pixels.
        edge: Side,
        /// Between 0 and 1.
        kept: f64,
    },
    /// This size in multiples of `multiple`; with kept proportions, the side that changes less determines the scale.
    Steps {
        /// Width in pixels.
        width: Side,
        /// Height in pixels.
        height: Side,
        /// Whether the image keeps its proportions.
        keep_aspect: bool,
        /// Pixels.
        multiple: Side,
    },
}

/// Rounding of the longer side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Down.
    Down,
    /// As the detection transformers round.
    Detr,
    /// The same, in multiples of 16.
    Yolos,
}

impl Rule {
    /// Width and height of the resized image; 0 if it is too thin.
    pub fn target(&self, (width, height): (u32, u32)) -> (u32, u32) {
        let (w, h) = (f64::from(width), f64::from(height));
        match *self {
            Self::Exact { width, height } => (width, height),
            Self::Longest(edge) => {
                let scale = f64::from(edge) / w.max(h);
                ((w * scale + 0.5) as u32, (h * scale + 0.5) as u32)
            }
            Self::Within { width: most_wide, height: most_high } => {
                let scale = (f64::from(most_high) / h).min(f64::from(most_wide) / w);
                ((w * scale) as u32, (h * scale) as u32)
            }
            Self::Divisor(divisor) => (width / divisor * divisor, height / divisor * divisor),
            Self::Bordered { edge, .. } if edge >= 384 => (edge, edge),
            Self::Bordered { edge, kept } => along((w, h), f64::from((f64::from(edge) / kept) as u32), None),
            Self::Steps { width: to_width, height: to_height, keep_aspect, multiple } => {
                let (mut across, mut down) = (f64::from(to_width) / w, f64::from(to_height) / h);
                if keep_aspect {
                    let scale = if (1.0 - across).abs() < (1.0 - down).abs() { across } else { down };
                    (across, down) = (scale, scale);
                }
                let multiple = f64::from(multiple);
                let step = |side: f64| ((side / multiple).round_ties_even() * multiple) as u32;
                (step(across * w), step(down * h))
            }
            Self::Shortest { edge, longest, rounding: Rounding::Down } => {
                along((w, h), f64::from(edge), longest.map(f64::from))
            }
            Self::Shortest { edge, longest, rounding } => {
                let (wide, high) = detr((width, height), edge, longest, rounding);
                match rounding {
                    Rounding::Yolos => (wide / 16 * 16, high / 16 * 16),
                    _ => (wide, high),
                }
            }
        }
    }

    /// The center crop after resizing.
    pub fn crop(&self) -> Option<(u32, u32)> {
        match *self {
            Self::Bordered { edge, .. } if edge < 384 => Some((edge, edge)),
            _ => None,
        }
    }
}

fn along((w, h): (f64, f64), edge: f64, longest: Option<f64>) -> (u32, u32) {
    let (short, long) = (w.min(h), w.max(h));
    let (mut new_short, mut new_long) = (edge, (edge * long / short).floor());
    if let Some(longest) = longest.filter(|&longest| new_long > longest) {
        (new_short, new_long) = ((longest * new_short / new_long).floor(), longest);
    }
    let (short, long) = (new_short as u32, new_long as u32);
    if w <= h { (short, long) } else { (long, short) }
}

fn detr((width, height): (u32, u32), edge: Side, longest: Option<Side>, rounding: Rounding) -> (u32, u32) {
    let (w, h) = (f64::from(width), f64::from(height));
    let (least, most) = (w.min(h), w.max(h));
    let (mut short, mut raw) = (f64::from(edge), f64::from(edge));
    if let Some(longest) = longest.map(f64::from).filter(|longest| most / least * short > *longest) {
        raw = longest * least / most;
        short = raw.round_ties_even();
    }
    let keeps = short == least && (rounding == Rounding::Detr || width >= height);
    if keeps {
        (width, height)
    } else if w < h {
        (short as u32, (raw * h / w) as u32)
    } else {
        ((raw * w / h) as u32, short as u32)
    }
}

/// Width and height of a setting: one number, or `height` and `width`.
pub fn pair(file: &Value, name: &str) -> Result<Option<(Side, Side)>, EngineError> {
    let Some(value) = file.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    if let Some(both) = value.as_f64() {
        let both = bounded(name, both)?;
        return Ok(Some((both, both)));
    }
    if let Some([height, width]) = value.as_array().and_then(|sides| sides.first_chunk::<2>()) {
        let side = |side: &Value| bounded(name, side.as_f64().unwrap_or(0.0));
        return Ok(Some((side(width)?, side(height)?)));
    }
    let side = |side: &str| value.get(side).and_then(Value::as_f64);
    match (side("width"), side("height")) {
        (Some(width), Some(height)) => Ok(Some((bounded(name, width)?, bounded(name, height)?))),
        _ => Ok(None),
    }
}

/// The same for a setting that has no other form. An error if it has one.
pub fn pair_only(file: &Value, name: &str) -> Result<Option<(Side, Side)>, EngineError> {
    match (pair(file, name)?, file.get(name)) {
        (None, Some(other)) if !other.is_null() => Err(unsupported(FILE, name, other)),
        (sides, _) => Ok(sides),
    }
}

/// Refuses a size in a form that no class has: its default would be used instead.
pub fn check(size: &Value) -> Result<(), EngineError> {
    const SIDES: [&str; 6] = ["height", "width", "max_height", "max_width", "shortest_edge", "longest_edge"];
    let is_known = match size {
        Value::Null | Value::Number(_) => true,
        Value::Array(sides) => sides.len() == 2,
        Value::Object(sides) => {
            let given = SIDES.map(|side| sides.get(side).filter(|value| !value.is_null()));
            let [height, width, max_height, max_width, ..] = given.map(|side| side.is_some());
            given.iter().any(Option::is_some)
                && given.iter().flatten().all(|side| side.is_number())
                && height == width
                && max_height == max_width
        }
        _ => false,
    };
    if is_known { Ok(()) } else { Err(unsupported(FILE, "size", size)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vision::preprocess::Preprocessor;

    #[test]
    fn sizes_in_an_unknown_form_are_refused() {
        for (name, value) in [
            ("size", json!("48")),
            ("size", json!({"edge": 48})),
            ("size", json!({"shortest_edge": "48"})),
            ("size", json!({"height": 48, "width": "48"})),
            ("size", json!({"height": 48})),
            ("size", json!({"max_width": 48, "longest_edge": 60})),
            ("size", json!({"height": null, "width": null})),
            ("size", json!([48])),
            ("crop_size", json!({"shortest_edge": 48})),
            ("crop_size", json!("48")),
            ("pad_size", json!({"height": 48})),
        ] {
            let mut file =
                json!({"image_processor_type": "CLIPImageProcessor", "do_center_crop": true, "do_pad": true});
            file[name] = value.clone();
            let refused = Preprocessor::of(&file).expect_err("unknown form").message();
            assert_eq!(refused, format!("preprocessor_config.json: {name} = {value} is not supported"));
        }
    }

    #[test]
    fn numbers_of_another_kind_are_refused() {
        for (name, value) in [
            ("rescale_factor", json!("0.5")),
            ("max_size", json!([60])),
            ("ensure_multiple_of", json!("14")),
            ("size_divisor", json!(true)),
            ("crop_pct", json!("0.9")),
            ("image_mean", json!([0.5, null, 0.5, 0.5])),
            ("image_mean", json!([0.5, "0.5", 0.5])),
            ("image_mean", json!([])),
            ("image_std", json!("0.5")),
            ("image_std", json!([0.5, 0, 0.5])),
        ] {
            let mut file = json!({"image_processor_type": "ViTImageProcessor", "size": 48});
            file[name] = value.clone();
            let refused = Preprocessor::of(&file).expect_err("another kind").message();
            assert_eq!(refused, format!("preprocessor_config.json: {name} = {value} is not supported"));
        }
        let plain =
            json!({"image_processor_type": "ViTImageProcessor", "crop_pct": null, "image_std": [0.5]});
        assert_eq!(Preprocessor::of(&plain).expect("null counts as absent").levels.std, [0.5; 3]);
    }

    fn target(file: Value, size: (u32, u32)) -> (u32, u32) {
        Preprocessor::of(&file).expect("settings").rule.expect("a rule").target(size)
    }

    #[test]
    fn old_and_new_settings_are_equivalent() {
        let old = json!({"feature_extractor_type": "DetrFeatureExtractor", "size": 800, "max_size": 1333});
        let new = json!({"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 800, "longest_edge": 1333}});
        for size in [(640, 480), (480, 640), (2000, 300), (800, 800), (33, 97)] {
            assert_eq!(target(old.clone(), size), target(new.clone(), size));
        }
        assert_eq!(target(new.clone(), (640, 480)), (1066, 800));
        assert_eq!(target(new, (2000, 300)), (1333, 200));
    }

    #[test]
    fn one_number_is_a_square_or_the_shorter_side() {
        assert_eq!(
            target(json!({"feature_extractor_type": "ViTFeatureExtractor", "size": 224}), (640, 480)),
            (224, 224)
        );
        assert_eq!(
            target(json!({"feature_extractor_type": "CLIPFeatureExtractor", "size": 224}), (640, 480)),
            (298, 224)
        );
    }

    #[test]
    fn two_numbers_are_height_and_width() {
        for class in ["ViT", "CLIP", "DPT", "PoolFormer", "EfficientNet"] {
            let file = json!({"image_processor_type": format!("{class}ImageProcessor"), "size": [44, 52], "crop_pct": null});
            assert_eq!(target(file, (91, 67)), (52, 44), "{class}");
        }
    }

    #[test]
    fn only_detectors_bound_the_longer_side() {
        let size = json!({"shortest_edge": 44, "longest_edge": 56});
        let of = |class: &str| {
            target(
                json!({"image_processor_type": format!("{class}ImageProcessor"), "size": size.clone()}),
                (91, 67),
            )
        };
        for class in ["CLIP", "Bit", "MobileNetV1", "MobileNetV2", "MobileViT"] {
            assert_eq!(of(class), (59, 44), "{class}");
        }
        assert_eq!(of("Detr").1, 41);
    }

    #[test]
    fn detectors_round_the_other_side_alike() {
        let of = |class: &str| {
            let size = json!({"shortest_edge": 44, "longest_edge": 56});
            let file = json!({"image_processor_type": format!("{class}ImageProcessor"), "size": size});
            [(41, 117), (117, 41), (91, 67), (20, 17)].map(|image| target(file.clone(), image))
        };
        assert_eq!(of("RTDetr"), of("Detr"));
        assert_eq!(of("RTDetr")[0], (20, 56), "19.6 is rounded to the nearest");
    }

    #[test]
    fn a_class_divides_twice_and_another_is_padded_to_its_size_alone() {
        let file = json!({"image_processor_type": "EfficientNetImageProcessor", "do_normalize": false, "image_std": [0.5, 0.5, 0.25]});
        assert_eq!(Preprocessor::of(&file).expect("settings").levels.last, [0.5, 0.5, 0.25]);
        let file =
            json!({"image_processor_type": "DonutImageProcessor", "pad_size": {"height": 80, "width": 90}});
        assert_eq!(Preprocessor::of(&file).expect("settings").pad, None);
    }

    #[test]
    fn depth_sizes_are_multiples() {
        let file = json!({"image_processor_type": "DPTImageProcessor", "size": {"height": 518, "width": 518},
            "keep_aspect_ratio": true, "ensure_multiple_of": 14});
        assert_eq!(target(file, (640, 480)), (686, 518));
    }

    #[test]
    fn invalid_sizes_are_rejected() {
        for size in
            [json!(0), json!(1e9), json!({"height": -3, "width": 5}), json!({"shortest_edge": 100_000})]
        {
            let failure = Preprocessor::of(&json!({"size": size})).expect_err("refused");
            assert!(failure.message().contains("pixels"), "{}", failure.message());
        }
    }
}
