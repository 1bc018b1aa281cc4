//! Depth maps, segments and images: an output for every pixel.

use image::{ExtendedColorType, ImageEncoder as _, RgbImage, codecs::png::PngEncoder};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::{Answer, Job, parse_input},
    media::{
        base64, gray, picture,
        plane::{Kind as Way, interpolate},
        segment::{Segment, small_enough},
    },
    pipeline::{Pipeline, example_picture},
    stop,
};
use ndarray::{Array2, Array3, Axis, Ix3};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Parts,
    picture::{Fit, ImageInput},
};
use crate::{
    model::{Tensor, take},
    package::interface::Kind,
};

/// Maximum number of classes of a map: each is scaled to the size of the image.
const MAX_CLASSES: usize = 1024;

#[derive(Debug, Deserialize)]
struct Input {
    image: String,
}

/// The meaning of the planes.
enum Meaning {
    Depth,
    Segments(Option<Vec<String>>),
    /// Colors, and their factor to the range 0 to 255.
    Picture(f32),
}

struct Planes {
    parts: Parts,
    image_input: ImageInput,
    output: String,
    meaning: Meaning,
}

/// Loads a depth estimator.
pub fn load_depth(parts: Parts) -> Result<Box<dyn Pipeline>, EngineError> {
    load(parts, |_| Meaning::Depth)
}

/// Loads a segmentation model.
pub fn load_segments(parts: Parts) -> Result<Box<dyn Pipeline>, EngineError> {
    load(parts, |parts| Meaning::Segments(parts.labels()))
}

/// Loads an image-to-image model.
pub fn load_picture(parts: Parts) -> Result<Box<dyn Pipeline>, EngineError> {
    load(parts, |parts| {
        let outputs = &parts.model.interface().outputs;
        let is_picture = outputs.first().is_some_and(|output| matches!(output.kind, Kind::Image { .. }));
        Meaning::Picture(parts.number("output_scale").unwrap_or(if is_picture { 1.0 } else { 255.0 }))
    })
}

fn load(parts: Parts, meaning: fn(&Parts) -> Meaning) -> Result<Box<dyn Pipeline>, EngineError> {
    let image_input = ImageInput::of(&parts, Fit::Fill)?;
    let outputs = &parts.model.interface().outputs;
    let named = parts.output()?.map(str::to_owned);
    let output = named.or_else(|| outputs.first().map(|output| output.name.clone()));
    let output = output.ok_or_else(|| invalid_model(format!("{} has no output", parts.model.name())))?;
    Ok(Box::new(Planes { meaning: meaning(&parts), image_input, output, parts }))
}

impl Planes {
    /// The output without the batch dimension: `[channels, height, width]`.
    fn planes(&self, picture: &RgbImage) -> Result<(Array3<f32>, bool), EngineError> {
        let model = &self.parts.model;
        let mut given = model.run(vec![self.image_input.convert(picture)], &mut model.start()?)?;
        let output = take(&mut given, &self.output)
            .ok_or_else(|| invalid_model(format!("{} gives no {}", model.name(), self.output)))?;
        let is_whole = matches!(output, Tensor::Ints(_));
        let mut array = output.into_floats();
        while array.ndim() > 3 && array.shape()[0] == 1 {
            array.index_axis_inplace(Axis(0), 0);
        }
        while array.ndim() < 3 {
            array.insert_axis_inplace(Axis(0));
        }
        if array.iter().any(|number| number.is_nan()) {
            return Err(invalid_model(format!("{} gives NaN: its weights are broken", model.name())));
        }
        let shape = array.shape().to_vec();
        let planes = array.into_dimensionality::<Ix3>();
        let planes = planes.map_err(|_| {
            invalid_model(format!("{} of {} is {shape:?}, not planes", self.output, model.name()))
        })?;
        if planes.is_empty() {
            return Err(invalid_model(format!("{} of {} is empty", self.output, model.name())));
        }
        Ok((planes, is_whole))
    }
}

impl Pipeline for Planes {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { image } = parse_input(input)?;
        let picture = small_enough(picture::read(&image, "the image")?)?;
        job.step()?;
        let (planes, is_whole) = self.planes(&picture)?;
        job.step()?;
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let output = match &self.meaning {
            Meaning::Depth => {
                let plane = interpolate(planes.index_axis(Axis(0), 0), height, width, Way::Cubic);
                json!({ "depth": gray::png(&levels(&plane))?, "width": width, "height": height })
            }
            Meaning::Segments(labels) => {
                let map = if is_whole || planes.len_of(Axis(0)) == 1 {
                    nearest(&planes.index_axis(Axis(0), 0).to_owned(), height, width)
                } else {
                    self.classes(&planes, height, width, job)?
                };
                let segments = segments(&map, labels.as_deref())?;
                json!({ "segments": segments, "width": width, "height": height })
            }
            Meaning::Picture(scale) => {
                let (channels, height, width) = planes.dim();
                if channels != 1 && channels != 3 {
                    return Err(invalid_model(format!(
                        "{} of {channels} channels is not an image",
                        self.output
                    )));
                }
                let level = |channel: usize, y: usize, x: usize| {
                    (planes[[channel.min(channels - 1), y, x]] * scale).round().clamp(0.0, 255.0) as u8
                };
                let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
                let pixels: Vec<u8> =
                    pixels.flat_map(|(y, x)| [level(0, y, x), level(1, y, x), level(2, y, x)]).collect();
                json!({ "image": png(&pixels, width, height)?, "width": width, "height": height })
            }
        };
        Ok(Answer::of(output, 0))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "image": example_picture() }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.parts.model.name().to_owned()]
    }
}

impl Planes {
    /// The most likely class of every pixel, at the size of the image.
    fn classes(
        &self,
        planes: &Array3<f32>,
        height: usize,
        width: usize,
        job: &Job,
    ) -> Result<Array2<u32>, EngineError> {
        if planes.len_of(Axis(0)) > MAX_CLASSES {
            return Err(invalid_model(format!("{} has more than {MAX_CLASSES} classes", self.output)));
        }
        let (mut best, mut map) =
            (Array2::from_elem((height, width), f32::NEG_INFINITY), Array2::zeros((height, width)));
        for (class, plane) in planes.outer_iter().enumerate() {
            job.step()?;
            let drawn = interpolate(plane, height, width, Way::Linear);
            ndarray::Zip::from(&mut best).and(&mut map).and(&drawn).for_each(|best, place, &logit| {
                if logit > *best {
                    (*best, *place) = (logit, class as u32);
                }
            });
        }
        Ok(map)
    }
}

/// The minimum is black and the maximum white; a constant plane is black.
fn levels(plane: &Array2<f32>) -> Array2<u8> {
    let least = plane.iter().copied().fold(f32::INFINITY, f32::min);
    let most = plane.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    plane.mapv(|depth| if most > least { ((depth - least) / (most - least) * 255.0) as u8 } else { 0 })
}

/// A map of classes in another size, by nearest neighbors.
fn nearest(plane: &Array2<f32>, height: usize, width: usize) -> Array2<u32> {
    let (rows, columns) = plane.dim();
    Array2::from_shape_fn((height, width), |(y, x)| {
        plane[[y * rows / height, x * columns / width]].max(0.0) as u32
    })
}

fn segments(map: &Array2<u32>, labels: Option<&[String]>) -> Result<Vec<Segment>, EngineError> {
    let mut present: Vec<u32> =
        map.iter().copied().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    present.truncate(MAX_CLASSES);
    let label = |class: u32| {
        let named = labels.and_then(|labels| labels.get(class as usize)).cloned();
        named.unwrap_or_else(|| format!("LABEL_{class}"))
    };
    let segment = |class: u32| {
        stop::check()?;
        Ok(Segment { label: label(class), score: None, mask: gray::mask(&map.mapv(|other| other == class))? })
    };
    present.into_iter().map(segment).collect()
}

fn png(pixels: &[u8], width: usize, height: usize) -> Result<String, EngineError> {
    let mut bytes = Vec::new();
    let written =
        PngEncoder::new(&mut bytes).write_image(pixels, width as u32, height as u32, ExtendedColorType::Rgb8);
    written.map_err(|error| EngineError::host("write a PNG").because(error))?;
    Ok(base64::encode(&bytes))
}

#[cfg(test)]
mod tests {
    use island_runtimes_kit::{error::ErrorKind, stop::Stop};
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn no_more_masks_are_made_for_a_cancelled_job() {
        let map = Array2::from_shape_fn((4, 4), |(y, x)| (4 * y + x) as u32);
        let token = CancellationToken::new();
        let job = Stop::new(token.clone());
        assert_eq!(job.within(|| segments(&map, None)).expect("masks").len(), 16);
        token.cancel();
        let ended = job.within(|| segments(&map, None)).expect_err("cancelled");
        assert_eq!(ended.kind(), ErrorKind::Interrupted);
    }
}
