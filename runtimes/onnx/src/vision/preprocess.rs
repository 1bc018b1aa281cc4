//! Images to the inputs of graphs, as `preprocessor_config.json` defines.
//!
//! Settings have changed their names over the years, and defaults depend on the class that wrote them: [`processor_defaults`]
//! contains those, [`size`] the ways to choose a size.

use image::{RgbImage, imageops};
use island_runtimes_graph::{Feeds, Graph, filled};
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    keys::{IMAGE_PROCESSOR, PROCESSOR, unsupported},
    media::resize::{Filter, resize},
    repository::Repository,
    values::read,
};
use ndarray::{Array4, ArrayD};
use serde_json::Value;

pub mod processor_defaults;
pub mod size;

use processor_defaults::ProcessorDefaults;
use size::{Rule, Side};

/// Maximum side of an input in pixels.
const MAX_SIDE: u32 = 8192;
/// Maximum number of its pixels.
const MAX_PIXELS: u64 = 16 << 20;
/// Maximum number of pixels between the two steps of a resize.
const MAX_BETWEEN: u64 = 64 << 20;
const FILE: &str = "preprocessor_config.json";
/// Settings that are one number.
const NUMBERS: [&str; 6] =
    ["rescale_factor", "max_size", "size_divisor", "size_divisibility", "ensure_multiple_of", "crop_pct"];

/// Preprocessing of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessor {
    /// The size it is resized to; absent, it is not resized.
    pub rule: Option<Rule>,
    /// Sides are rounded down to multiples of this, at least one.
    pub step: u32,
    /// Resampling filter.
    pub filter: Filter,
    /// The center crop, width and height.
    pub crop: Option<(u32, u32)>,
    /// Bytes to numbers.
    pub levels: Levels,
    /// Padding on the right and below up to this width and height.
    pub pad: Option<(u32, u32)>,
    /// How pages of documents fill their size.
    pub page: Option<Page>,
}

/// A page of a document: turned like its size, reduced to it, and padded around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Whether it is turned so that its longer side is that of the size.
    pub turns: bool,
    /// Whether it is reduced to fit.
    pub reduces: bool,
    /// Whether it is padded to the size.
    pub pads: bool,
}

/// Bytes to numbers by channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// Factor of a byte.
    pub scale: f64,
    /// Mean by channel, subtracted after.
    pub mean: [f32; 3],
    /// Subtracted after scaling.
    pub offset: f64,
    /// Standard deviation by channel, divided by after.
    pub std: [f32; 3],
    /// Divided by last.
    pub last: [f32; 3],
    /// Blue is the first channel.
    pub is_bgr: bool,
}

/// An image as the input of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// `[1, 3, H, W]`.
    pub pixels: ArrayD<f32>,
    /// Width and height without padding.
    pub content: (u32, u32),
}

impl Preprocessor {
    /// From a repository, which must have settings.
    pub fn load(repository: &Repository) -> Result<Self, EngineError> {
        PROCESSOR.check(&repository.json(PROCESSOR.file)?.unwrap_or_default())?;
        let file =
            repository.json(FILE)?.ok_or_else(|| invalid_model(format!("the repository has no {FILE}")))?;
        Self::of(&file)
    }

    /// From a settings file.
    pub fn of(file: &Value) -> Result<Self, EngineError> {
        // Processors for text and images keep the settings for images separately.
        let file = file.get("image_processor").filter(|inner| inner.is_object()).unwrap_or(file);
        for name in processor_defaults::NAMES {
            read(FILE, file, name, Value::as_str)?;
        }
        let processor_defaults = ProcessorDefaults::of(file)?;
        IMAGE_PROCESSOR.check(file)?;
        for name in NUMBERS {
            read(FILE, file, name, |value| value.as_f64().filter(|number| (*number as f32).is_finite()))?;
        }
        let flag = |name: &str, otherwise| file.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        let rule = if flag("do_resize", true) { Some(processor_defaults.rule(file)?) } else { None };
        let filter = match file.get("resample").and_then(Value::as_u64) {
            Some(code) => Filter::of_code(code)
                .ok_or_else(|| invalid_model(format!("{FILE}: unknown filter resample = {code}")))?,
            None => processor_defaults.filter,
        };
        let crop = if flag("do_center_crop", processor_defaults.crop.is_some()) {
            Some(size::pair_only(file, "crop_size")?.or(processor_defaults.crop).unwrap_or((224, 224)))
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
        let is_bgr = flag("do_flip_channel_order", processor_defaults.is_bgr);
        // Pages are padded to their size, whatever this is.
        let pads = flag("do_pad", true) && !processor_defaults.is_page;
        let pad = if pads { size::pair_only(file, "pad_size")? } else { None };
        let offset = if flag("do_rescale", true) && flag("rescale_offset", false) { 1.0 } else { 0.0 };
        let divides_twice = processor_defaults.divides_twice && flag("include_top", true);
        // The second division happens whether pixels are normalized or not.
        let last = if divides_twice {
            channels(file, "image_std")?.or(processor_defaults.normal.map(|(_, std)| std)).unwrap_or([1.0; 3])
        } else {
            [1.0; 3]
        };
        if std.contains(&0.0) || last.contains(&0.0) {
            return Err(unsupported(FILE, "image_std", file.get("image_std").unwrap_or(&Value::Null)));
        }
        let page = processor_defaults.page(file)?.map(|size| Page {
            size,
            turns: flag("do_align_long_axis", false),
            reduces: flag("do_thumbnail", true),
            pads: flag("do_pad", true),
        });
        let step = file.get("size_divisibility").and_then(Value::as_f64);
        let step = step.map_or(Ok(1), |step| bounded("size_divisibility", step))?;
        let levels = Levels { scale, mean, offset, std, last, is_bgr };
        Ok(Self { rule, step, filter, crop, levels, pad, page })
    }

    /// Converts an image to the input of the graph.
    pub fn prepare(&self, picture: &RgbImage) -> Result<Prepared, EngineError> {
        let turned = self
            .page
            .filter(|page| page.turns_image(picture.dimensions()))
            .map(|_| imageops::rotate90(picture));
        let picture = turned.as_ref().unwrap_or(picture);
        let mut resized = None;
        if let Some(rule) = &self.rule {
            let (width, height) = rule.target(picture.dimensions());
            let whole = |side: u32| (side / self.step).max(1) * self.step;
            let (width, height) = if self.step > 1 { (whole(width), whole(height)) } else { (width, height) };
            let (width, height) = fits((width, height), picture)?;
            // What lies between the two passes of a resize, at most.
            if u64::from(width) * u64::from(picture.height()) > MAX_BETWEEN {
                return Err(thin((width, height), picture));
            }
            resized = Some(resize(picture, width, height, self.filter));
        }
        let crop = self.rule.as_ref().and_then(Rule::crop).or(self.crop);
        let whole = resized.as_ref().unwrap_or(picture);
        let cropped = crop.map(|(width, height)| middle(whole, width, height));
        let whole = cropped.as_ref().unwrap_or(whole);
        let paged = self.page.map(|page| page.fill(whole)).transpose()?;
        let whole = paged.as_ref().unwrap_or(whole);
        fits(whole.dimensions(), picture)?;
        let pixels = self.levels.tensor(whole);
        let content = whole.dimensions();
        Ok(Prepared { pixels: filled_up(pixels, self.pad).into_dyn(), content })
    }
}

impl Levels {
    /// Between 0 and 1.
    pub const UNIT: Self = Self {
        scale: 1.0 / 255.0,
        offset: 0.0,
        mean: [0.0; 3],
        std: [1.0; 3],
        last: [1.0; 3],
        is_bgr: false,
    };

    /// `[1, 3, H, W]` of an image.
    pub fn tensor(&self, picture: &RgbImage) -> Array4<f32> {
        let of_channel = |channel: usize| {
            let level = |byte: u8| {
                let scaled = (f64::from(byte) * self.scale - self.offset) as f32;
                (scaled - self.mean[channel]) / self.std[channel] / self.last[channel]
            };
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

impl Page {
    fn turns_image(&self, (width, height): (u32, u32)) -> bool {
        let (to_width, to_height) = self.size;
        self.turns && ((to_width < to_height && width > height) || (to_width > to_height && width < height))
    }

    /// A page that fills its size. An error if the image is so thin that the reference would reduce it in another way.
    fn fill(&self, image: &RgbImage) -> Result<RgbImage, EngineError> {
        let (to_width, to_height) = self.size;
        let (from_width, from_height) = image.dimensions();
        let (mut width, mut height) = (from_width.min(to_width), from_height.min(to_height));
        let mut reduced = None;
        if self.reduces && (width, height) != (from_width, from_height) {
            let scaled =
                |side: u32, to: u32, from: u32| (u64::from(side) * u64::from(to) / u64::from(from)) as u32;
            if from_height > from_width {
                width = scaled(from_width, height, from_height);
            } else if from_width > from_height {
                height = scaled(from_height, width, from_width);
            }
            // Pillow first averages whole pixels if it reduces a side to a quarter or less.
            let (width, height) = fits((width, height), image)?;
            if from_width / width >= 4 || from_height / height >= 4 {
                return Err(thin((width, height), image));
            }
            reduced = Some(resize(image, width, height, Filter::Bicubic));
        }
        let image = reduced.as_ref().unwrap_or(image);
        if !self.pads {
            return Ok(image.clone());
        }
        let (Some(left), Some(above)) =
            (to_width.checked_sub(image.width()), to_height.checked_sub(image.height()))
        else {
            return Err(thin((image.width(), image.height()), image));
        };
        let mut page = RgbImage::new(to_width, to_height);
        imageops::replace(&mut page, image, i64::from(left / 2), i64::from(above / 2));
        Ok(page)
    }
}

/// The class of a repository's image processor, without `ImageProcessor` at its end. `None` if it has no settings or names none.
pub fn class(repository: &Repository) -> Result<Option<String>, EngineError> {
    let file = repository.json(FILE)?.unwrap_or_default();
    let file = file.get("image_processor").filter(|inner| inner.is_object()).unwrap_or(&file);
    Ok(Some(processor_defaults::class(file))
        .filter(|class| !class.is_empty() && *class != "Image")
        .map(str::to_owned))
}

impl Prepared {
    /// The inputs of the graph: the pixels, and a mask where there is padding.
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

/// The name of the graph's image input.
pub fn input(graph: &Graph) -> &str {
    let is_picture =
        |input: &&island_runtimes_graph::Input| input.shape.len() == 4 && input.name != "pixel_mask";
    let known = graph.inputs().iter().find(|input| input.name == "pixel_values");
    known.or_else(|| graph.inputs().iter().find(is_picture)).map_or("pixel_values", |input| &input.name)
}

/// The fixed width and height of the graph's input.
pub fn fixed(graph: &Graph) -> Option<(u32, u32)> {
    let (width, height) = stated(graph);
    width.zip(height)
}

/// The width and the height of the graph's input, each if it is fixed.
pub fn stated(graph: &Graph) -> (Option<u32>, Option<u32>) {
    let name = input(graph);
    let shape = graph.inputs().iter().find(|input| input.name == name).map(|input| &*input.shape);
    let side = |place: usize| {
        let side = u32::try_from(*shape?.get(place)?).ok();
        side.filter(|side| (1..=MAX_SIDE).contains(side))
    };
    (side(3), side(2))
}

/// Rejects sizes that are 0 or too large.
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

/// The center of an image, with black borders if it is too small.
fn middle(picture: &RgbImage, width: u32, height: u32) -> RgbImage {
    let (w, h) = picture.dimensions();
    if w >= width && h >= height {
        return imageops::crop_imm(picture, (w - width) / 2, (h - height) / 2, width, height).to_image();
    }
    // The reference centers the image on a canvas that contains both, then crops that; it rounds differently in the two steps.
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
    let number = |value: &Value| value.as_f64().map(|number| number as f32).filter(|n| n.is_finite());
    let of_channels = |value: &Value| match value.as_array().map(Vec::as_slice) {
        None => number(value).map(|one| [one; 3]),
        Some([one]) => number(one).map(|one| [one; 3]),
        Some([red, green, blue]) => Some([number(red)?, number(green)?, number(blue)?]),
        Some(_) => None,
    };
    read(FILE, file, name, of_channels)
}

/// A side within the limits of an input.
fn bounded(name: &str, side: f64) -> Result<Side, EngineError> {
    if side >= 1.0 && side <= f64::from(MAX_SIDE) {
        return Ok(side as Side);
    }
    Err(invalid_model(format!("{FILE}: {name} is {side}, not 1 to {MAX_SIDE} pixels")))
}
