//! Finding the lines of a page and reading each, with the graphs of PP-OCR: detection, recognition, and optionally classification of lines
//! that are upside down.

use image::{RgbImage, imageops};
use island_runtimes_graph::{Feeds, Graph, files::GraphFiles};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::{Answer, Job, parse_input},
    media::{picture, resize::interpolated},
    pipeline::{Pipeline, example_picture},
};
use ndarray::{ArrayD, Axis, Ix2, Ix3, s};
use serde_json::{Value, json};

use super::{
    Input,
    letters::Alphabet,
    regions::{self, Corners, Spot},
};
use crate::{
    task::Loader,
    vision::{
        preprocess::{Levels, fixed, input, processor_defaults, stated},
        require_image,
    },
};

/// Maximum side of the detector's input in pixels.
const LONGEST: f32 = 960.0;
/// Its sides are multiples of this.
const STEP: f32 = 32.0;
/// Height of the recognizer's input in pixels, if its graph states none.
const LINE_HEIGHT: u32 = 48;
/// Minimum width of the input, if the graph states none.
const LEAST_WIDTH: f32 = 320.0;
/// Its maximum width; longer lines are squeezed.
const MAX_WIDTH: f32 = 4096.0;
/// Width and height of the classifier's input, if its graph states none.
const TURN: (u32, u32) = (192, LINE_HEIGHT);
/// Its score threshold.
const TURNED: f32 = 0.9;
/// Minimum mean probability of a line's characters.
const LEAST_SCORE: f32 = 0.5;
/// A region this many times higher than wide is a rotated line.
const ON_ITS_SIDE: f32 = 1.5;

/// Blue first, means in that order.
const FINDING: Levels = Levels {
    scale: 1.0 / 255.0,
    mean: processor_defaults::IMAGENET.0,
    std: processor_defaults::IMAGENET.1,
    is_bgr: true,
    ..Levels::UNIT
};
const READING: Levels =
    Levels { scale: 1.0 / 255.0, mean: [0.5; 3], std: [0.5; 3], is_bgr: true, ..Levels::UNIT };

/// The graphs.
#[derive(Debug)]
pub struct Page {
    finder: Graph,
    reader: Graph,
    turner: Option<Graph>,
    alphabet: Alphabet,
}

impl Page {
    /// From a repository: files with `det`, `rec` and `cls` in their names.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let load = |files: &GraphFiles| {
            let graph = loader.load(files)?;
            require_image(&graph)?;
            Ok::<_, EngineError>(graph)
        };
        let named = |word: &str| GraphFiles::with_word(&loader.repository, word);
        let needed = |word: &str| {
            named(word)
                .ok_or_else(|| invalid_model(format!("none of its graphs has {word} in its name")))
                .and_then(|files| load(&files))
        };
        let reader = needed("rec")?;
        Ok(Self {
            finder: needed("det")?,
            turner: named("cls").map(|files| load(&files)).transpose()?,
            alphabet: Alphabet::load(&loader.repository, &reader)?,
            reader,
        })
    }

    /// The lines of a page in reading order, in pixels of the image.
    fn lines(&self, picture: &RgbImage) -> Result<Vec<Corners>, EngineError> {
        let (width, height) = (picture.width() as f32, picture.height() as f32);
        let scale = (LONGEST / width.max(height)).min(1.0);
        let side = |side: f32| (((side * scale).floor() / STEP).round_ties_even() * STEP).max(STEP) as u32;
        let (across, down) = stated(&self.finder);
        let sides = (across.unwrap_or_else(|| side(width)), down.unwrap_or_else(|| side(height)));
        let pixels = FINDING.tensor(&interpolated(picture, sides.0, sides.1));
        let mut map = first(&self.finder, pixels.into_dyn())?;
        while map.ndim() > 2 && map.shape()[0] == 1 {
            map.index_axis_inplace(Axis(0), 0);
        }
        let map = map.into_dimensionality::<Ix2>();
        let map =
            map.map_err(|_| invalid_model(format!("{} gives no map of the page", self.finder.name())))?;
        let (across, down) = (width / map.ncols() as f32, height / map.nrows() as f32);
        let mut lines = regions::find(map.view());
        for corner in lines.iter_mut().flatten() {
            let fit =
                |side: f32, scale: f32, most: f32| (side * scale).round_ties_even().clamp(0.0, most - 1.0);
            *corner = [fit(corner[0], across, width), fit(corner[1], down, height)];
        }
        lines.retain(|line| far(line[0], line[1]) > 3.0 && far(line[0], line[3]) > 3.0);
        regions::in_reading_order(&mut lines);
        Ok(lines)
    }

    fn read(&self, line: RgbImage) -> Result<(String, f32), EngineError> {
        let line = self.upright(line)?;
        let ratio = line.width() as f32 / line.height() as f32;
        let (width, height) = stated(&self.reader);
        let height = height.unwrap_or(LINE_HEIGHT);
        let usual = || (height as f32 * ratio).clamp(LEAST_WIDTH, MAX_WIDTH).floor() as u32;
        let probabilities = first(&self.reader, strip(&line, (width.unwrap_or_else(usual), height)))?;
        let probabilities = probabilities
            .into_dimensionality::<Ix3>()
            .ok()
            .filter(|probabilities| probabilities.shape()[0] == 1);
        let probabilities = probabilities
            .ok_or_else(|| invalid_model(format!("{} gives no [1, columns, letters]", self.reader.name())))?;
        self.alphabet.read(probabilities.index_axis(Axis(0), 0))
    }

    /// Rotates a line that is upside down.
    fn upright(&self, line: RgbImage) -> Result<RgbImage, EngineError> {
        let Some(turner) = &self.turner else { return Ok(line) };
        let probabilities = first(turner, strip(&line, fixed(turner).unwrap_or(TURN)))?;
        let is_turned = probabilities.len() == 2
            && probabilities.iter().nth(1).is_some_and(|&probability| probability > TURNED);
        Ok(if is_turned { imageops::rotate180(&line) } else { line })
    }
}

impl Pipeline for Page {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { image } = parse_input(input)?;
        let picture = picture::read(&image, "the image")?;
        job.step()?;
        let found = self.lines(&picture)?;
        let total = found.len() as u64;
        let mut lines = Vec::new();
        let mut whole = Vec::new();
        for (done, corners) in found.into_iter().enumerate() {
            job.step()?;
            let (text, score) = self.read(cut_out(&picture, &corners))?;
            job.progress("line", done as u64 + 1, total);
            if score >= LEAST_SCORE {
                let corners = corners.map(|corner| corner.map(|side| side as i64));
                lines.push(json!({ "text": text, "score": score, "box": corners }));
                whole.push(text);
            }
        }
        Ok(Answer::of(json!({ "text": whole.join("\n"), "lines": lines }), 0))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "image": example_picture() }))
    }

    /// The example may have no line.
    fn try_rest(&self) -> Result<(), EngineError> {
        self.read(RgbImage::new(2 * LINE_HEIGHT, LINE_HEIGHT)).map(drop)
    }

    fn graphs(&self) -> Vec<String> {
        let all = [Some(&self.finder), Some(&self.reader), self.turner.as_ref()];
        all.into_iter().flatten().map(|graph| graph.name().to_owned()).collect()
    }
}

/// The first output of a graph for an image.
fn first(graph: &Graph, pixels: ArrayD<f32>) -> Result<ArrayD<f32>, EngineError> {
    graph.run(Feeds::new().floats(input(graph), pixels))?.floats(graph.first_output()?)
}

/// A line scaled to the height of an input of this width and height, padded with gray on the right.
fn strip(line: &RgbImage, (full, height): (u32, u32)) -> ArrayD<f32> {
    let ratio = line.width() as f32 / line.height() as f32;
    let width = ((height as f32 * ratio).ceil() as u32).clamp(1, full);
    let pixels = READING.tensor(&interpolated(line, width, height));
    let mut whole = ndarray::Array4::zeros((1, 3, height as usize, full as usize));
    whole.slice_mut(s![.., .., .., ..width as usize]).assign(&pixels);
    whole.into_dyn()
}

/// A line cropped and deskewed; a vertical one is rotated.
fn cut_out(picture: &RgbImage, corners: &Corners) -> RgbImage {
    let [upper_left, upper_right, lower_right, lower_left] = *corners;
    let width = far(upper_left, upper_right).max(far(lower_left, lower_right)).max(1.0);
    let height = far(upper_left, lower_left).max(far(upper_right, lower_right)).max(1.0);
    let along = [(upper_right[0] - upper_left[0]) / width, (upper_right[1] - upper_left[1]) / width];
    let down = [(lower_left[0] - upper_left[0]) / height, (lower_left[1] - upper_left[1]) / height];
    let line = RgbImage::from_fn(width as u32, height as u32, |x, y| {
        let (x, y) = (x as f32, y as f32);
        let at = |axis: usize| upper_left[axis] + x * along[axis] + y * down[axis];
        sample(picture, [at(0), at(1)])
    });
    if line.height() as f32 >= line.width() as f32 * ON_ITS_SIDE { imageops::rotate270(&line) } else { line }
}

/// The interpolated color at a position.
fn sample(picture: &RgbImage, [x, y]: Spot) -> image::Rgb<u8> {
    let clamp = |side: f32, most: u32| side.clamp(0.0, most as f32 - 1.0);
    let (x, y) = (clamp(x, picture.width()), clamp(y, picture.height()));
    let (left, top) = (x.floor() as u32, y.floor() as u32);
    let (right, bottom) = ((left + 1).min(picture.width() - 1), (top + 1).min(picture.height() - 1));
    let (across, down) = (x - x.floor(), y - y.floor());
    let of = |x: u32, y: u32, channel: usize| f32::from(picture.get_pixel(x, y)[channel]);
    image::Rgb([0, 1, 2].map(|channel| {
        let upper = of(left, top, channel) * (1.0 - across) + of(right, top, channel) * across;
        let lower = of(left, bottom, channel) * (1.0 - across) + of(right, bottom, channel) * across;
        (upper * (1.0 - down) + lower * down).round() as u8
    }))
}

fn far(a: Spot, b: Spot) -> f32 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}
