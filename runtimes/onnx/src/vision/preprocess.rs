//! Pictures to what a graph reads, as `preprocessor_config.json` says it.
//!
//! Settings have changed their names over the years, and what they leave out depends on the class that wrote them: [`processor_defaults`]
//! knows those, [`size`] the ways to choose a size.

use image::{RgbImage, imageops};
use island_runtimes_graph::{Feeds, Graph, filled};
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    media::resize::{Filter, resize},
    repository::Repository,
};
use ndarray::{Array4, ArrayD};
use serde_json::Value;

pub mod processor_defaults;
pub mod size;

use processor_defaults::ProcessorDefaults;
use size::{Rule, Side};

/// Longest side of what a graph is given, pixels.
const MAX_SIDE: u32 = 8192;
/// Most pixels of it.
const MAX_PIXELS: u64 = 16 << 20;
/// Most pixels between the two steps of a resize.
const MAX_BETWEEN: u64 = 64 << 20;
const FILE: &str = "preprocessor_config.json";

/// What is done to a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessor {
    /// How large it becomes; absent, it stays.
    pub rule: Option<Rule>,
    /// Sides become multiples of this, at least one of it.
    pub step: u32,
    /// How pixels are weighed.
    pub filter: Filter,
    /// The middle that is kept, width and height.
    pub crop: Option<(u32, u32)>,
    /// Bytes to numbers.
    pub levels: Levels,
    /// What it is filled up to on the right and below, width and height.
    pub pad: Option<(u32, u32)>,
}

/// Bytes to numbers, channel by channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// What a byte is multiplied by.
    pub scale: f64,
    /// What is then taken away, by channel.
    pub mean: [f32; 3],
    /// What it is then divided by.
    pub std: [f32; 3],
    /// Blue comes first.
    pub is_bgr: bool,
}

/// A picture as a graph reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// `[1, 3, H, W]`.
    pub pixels: ArrayD<f32>,
    /// Width and height without what was filled up.
    pub content: (u32, u32),
}

impl Preprocessor {
    /// That of a repository, which must have one.
    pub fn load(repository: &Repository) -> Result<Self, EngineError> {
        let file =
            repository.json(FILE)?.ok_or_else(|| invalid_model(format!("the repository has no {FILE}")))?;
        Self::of(&file)
    }

    /// That of a settings file.
    pub fn of(file: &Value) -> Result<Self, EngineError> {
        // Processors for text and pictures keep the pictures' part apart.
        let file = file.get("image_processor").filter(|inner| inner.is_object()).unwrap_or(file);
        let processor_defaults = ProcessorDefaults::of(file);
        let flag = |name: &str, otherwise| file.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        let rule = if flag("do_resize", true) { Some(processor_defaults.rule(file)?) } else { None };
        let filter = match file.get("resample").and_then(Value::as_u64) {
            Some(code) => Filter::of_code(code)
                .ok_or_else(|| invalid_model(format!("{FILE} names resample {code}, which is no filter")))?,
            None => processor_defaults.filter,
        };
        let crop = if flag("do_center_crop", processor_defaults.crop.is_some()) {
            Some(size::pair(file, "crop_size")?.or(processor_defaults.crop).unwrap_or((224, 224)))
        } else {
            None
        };
        let scale = file.get("rescale_factor").and_then(Value::as_f64).unwrap_or(1.0 / 255.0);
        let scale = if flag("do_rescale", true) { scale } else { 1.0 };
        let (mean, std) = if flag("do_normalize", processor_defaults.normal.is_some()) {
            let (mean, std) = processor_defaults.normal.unwrap_or(processor_defaults::IMAGENET);
            (channels(file, "image_mean")?.unwrap_or(mean), channels(file, "image_std")?.unwrap_or(std))
        } else {
            ([0.0; 3], [1.0; 3])
        };
        if !scale.is_finite() || std.contains(&0.0) {
            return Err(invalid_model(format!("{FILE} scales pixels by what is no number or 0")));
        }
        let is_bgr = flag("do_flip_channel_order", processor_defaults.is_bgr);
        let pad = if flag("do_pad", true) { size::pair(file, "pad_size")? } else { None };
        let step = file.get("size_divisibility").and_then(Value::as_f64);
        let step = step.map_or(Ok(1), |step| bounded("size_divisibility", step))?;
        Ok(Self { rule, step, filter, crop, levels: Levels { scale, mean, std, is_bgr }, pad })
    }

    /// A picture as the graph reads it.
    pub fn prepare(&self, picture: &RgbImage) -> Result<Prepared, EngineError> {
        let mut resized = None;
        if let Some(rule) = &self.rule {
            let (width, height) = rule.target(picture.dimensions());
            let whole = |side: u32| (side / self.step).max(1) * self.step;
            let (width, height) = if self.step > 1 { (whole(width), whole(height)) } else { (width, height) };
            let (width, height) = fits((width, height), picture)?;
            // A resize goes across first.
            if u64::from(width) * u64::from(picture.height()) > MAX_BETWEEN {
                return Err(thin((width, height), picture));
            }
            resized = Some(resize(picture, width, height, self.filter));
        }
        let crop = self.rule.as_ref().and_then(Rule::crop).or(self.crop);
        let whole = resized.as_ref().unwrap_or(picture);
        let cropped = crop.map(|(width, height)| middle(whole, width, height));
        let whole = cropped.as_ref().unwrap_or(whole);
        fits(whole.dimensions(), picture)?;
        let pixels = self.levels.tensor(whole);
        let content = whole.dimensions();
        Ok(Prepared { pixels: filled_up(pixels, self.pad).into_dyn(), content })
    }
}

impl Levels {
    /// 0 to 1.
    pub const UNIT: Self = Self { scale: 1.0 / 255.0, mean: [0.0; 3], std: [1.0; 3], is_bgr: false };

    /// `[1, 3, H, W]` of a picture.
    pub fn tensor(&self, picture: &RgbImage) -> Array4<f32> {
        let of_channel = |channel: usize| {
            let level =
                |byte: u8| ((f64::from(byte) * self.scale) as f32 - self.mean[channel]) / self.std[channel];
            std::array::from_fn::<f32, 256, _>(|byte| level(byte as u8))
        };
        let tables = [of_channel(0), of_channel(1), of_channel(2)];
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let bytes = picture.as_raw();
        Array4::from_shape_fn((1, 3, height, width), |(_, channel, y, x)| {
            let source = if self.is_bgr { 2 - channel } else { channel };
            tables[channel][usize::from(bytes[(y * width + x) * 3 + source])]
        })
    }
}

impl Prepared {
    /// What the graph is fed: the pixels, and which of them are the picture where some are not.
    pub fn feeds(&self, graph: &Graph) -> Feeds<'static> {
        let feeds = Feeds::new().floats(input(graph), self.pixels.clone());
        let [height, width] = [self.pixels.shape()[2], self.pixels.shape()[3]];
        if self.content == (width as u32, height as u32) {
            return feeds;
        }
        let mut mask = filled(&[1, height, width], 0);
        let inside = ndarray::s![.., ..self.content.1 as usize, ..self.content.0 as usize];
        mask.view_mut()
            .into_dimensionality::<ndarray::Ix3>()
            .map(|mut mask| mask.slice_mut(inside).fill(1))
            .ok();
        feeds.ints("pixel_mask", mask)
    }
}

/// The name under which a graph takes its picture.
pub fn input(graph: &Graph) -> &str {
    let is_picture =
        |input: &&island_runtimes_graph::Input| input.shape.len() == 4 && input.name != "pixel_mask";
    let known = graph.inputs().iter().find(|input| input.name == "pixel_values");
    known.or_else(|| graph.inputs().iter().find(is_picture)).map_or("pixel_values", |input| &input.name)
}

/// The height and width that a graph insists on.
pub fn fixed(graph: &Graph) -> Option<(u32, u32)> {
    let name = input(graph);
    let shape = &graph.inputs().iter().find(|input| input.name == name)?.shape;
    let side =
        |place: usize| u32::try_from(*shape.get(place)?).ok().filter(|side| (1..=MAX_SIDE).contains(side));
    Some((side(3)?, side(2)?))
}

/// Refuses what would be nothing, or far too large.
fn fits((width, height): (u32, u32), picture: &RgbImage) -> Result<(u32, u32), EngineError> {
    let is_small =
        width <= MAX_SIDE && height <= MAX_SIDE && u64::from(width) * u64::from(height) <= MAX_PIXELS;
    if width > 0 && height > 0 && is_small {
        return Ok((width, height));
    }
    Err(thin((width, height), picture))
}

fn thin((width, height): (u32, u32), picture: &RgbImage) -> EngineError {
    let (from_width, from_height) = picture.dimensions();
    invalid_input(format!(
        "the image has {from_width} × {from_height} pixels, which the model's settings make {width} × {height}: \
         it is too long and thin, or too large"
    ))
}

/// The middle of a picture, black around it where it is too small.
fn middle(picture: &RgbImage, width: u32, height: u32) -> RgbImage {
    let (w, h) = picture.dimensions();
    if w >= width && h >= height {
        return imageops::crop_imm(picture, (w - width) / 2, (h - height) / 2, width, height).to_image();
    }
    // The reference centres the picture on a canvas that holds both, then crops that; it rounds differently in the two steps.
    let place = |side: u32, wanted: u32| -> i64 {
        let before = (i64::from(side) - i64::from(wanted)).div_euclid(2);
        let around = i64::from(wanted.max(side) - side);
        (around + 1) / 2 - (before + (around + 1) / 2)
    };
    let mut canvas = RgbImage::new(width, height);
    imageops::replace(&mut canvas, picture, place(w, width), place(h, height));
    canvas
}

fn filled_up(pixels: Array4<f32>, pad: Option<(u32, u32)>) -> Array4<f32> {
    let (_, channels, height, width) = pixels.dim();
    let Some((to_width, to_height)) = pad else { return pixels };
    let (to_width, to_height) = (width.max(to_width as usize), height.max(to_height as usize));
    if (to_width, to_height) == (width, height) {
        return pixels;
    }
    let mut whole = Array4::zeros((1, channels, to_height, to_width));
    whole.slice_mut(ndarray::s![.., .., ..height, ..width]).assign(&pixels);
    whole
}

fn channels(file: &Value, name: &str) -> Result<Option<[f32; 3]>, EngineError> {
    let Some(value) = file.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let numbers: Vec<f32> = match value {
        Value::Array(numbers) => {
            numbers.iter().filter_map(Value::as_f64).map(|number| number as f32).collect()
        }
        one => one.as_f64().map(|number| number as f32).into_iter().collect(),
    };
    match numbers[..] {
        [one] => Ok(Some([one; 3])),
        [red, green, blue] if numbers.iter().all(|number| number.is_finite()) => Ok(Some([red, green, blue])),
        _ => Err(invalid_model(format!("{FILE}: {name} is not three numbers"))),
    }
}

/// A side within what a graph may be given.
fn bounded(name: &str, side: f64) -> Result<Side, EngineError> {
    if side >= 1.0 && side <= f64::from(MAX_SIDE) {
        return Ok(side as Side);
    }
    Err(invalid_model(format!("{FILE}: {name} is {side}, not 1 to {MAX_SIDE} pixels")))
}
