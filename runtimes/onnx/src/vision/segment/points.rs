//! The object at given points: an image is encoded once, then a small graph is run with the points.

use image::RgbImage;
use island_runtimes_graph::{Feeds, Graph, Results};
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::Job,
    media::{
        gray,
        plane::{Kind, interpolate},
        segment::Segment,
    },
    text::scores::argmax,
};
use ndarray::{Array2, Array3, ArrayD, Axis, IxDyn, s};
use serde::Deserialize;

use super::{Head, Input};
use crate::{
    task::Loader,
    vision::preprocess::{Prepared, Preprocessor},
};

/// The encoder's input.
pub(super) const PIXELS: &str = "pixel_values";
/// Inputs of the decoder beside the encoder's outputs.
const PROMPTS: [&str; 3] = ["input_points", "input_labels", "input_boxes"];
/// Maximum number of points of a job.
const MAX_POINTS: usize = 64;
/// Maximum number of pixels of a graph's mask.
const MAX_MASK: usize = 1 << 20;

/// A position in the image in pixels from its upper left.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Point {
    x: f32,
    y: f32,
    /// Whether it is on the object.
    #[serde(default = "yes")]
    positive: bool,
}

/// A box in the image in pixels from its upper left.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Frame {
    xmin: f32,
    ymin: f32,
    xmax: f32,
    ymax: f32,
}

fn yes() -> bool {
    true
}

/// An image encoder and a mask decoder.
pub(super) struct Points {
    encoder: Graph,
    decoder: Graph,
    preprocessor: Preprocessor,
}

impl Points {
    pub(super) fn load(loader: &Loader<'_>, encoder: Graph) -> Result<Self, EngineError> {
        let of_encoder = encoder.outputs().iter().map(String::as_str);
        let fed: Vec<&str> = PROMPTS.into_iter().chain(of_encoder).collect();
        let decoder = loader.graph(&["prompt_encoder_mask_decoder"], &fed)?;
        let mut preprocessor = Preprocessor::load(&loader.repository)?;
        // The encoder reads whole squares.
        preprocessor.pad =
            preprocessor.pad.or(crate::vision::preprocess::fixed(&encoder)).or(Some((1024, 1024)));
        Ok(Self { encoder, decoder, preprocessor })
    }

    /// The decoder's inputs, with positions scaled as the image.
    fn question(
        &self,
        input: &Input,
        picture: &RgbImage,
        prepared: &Prepared,
    ) -> Result<Feeds<'static>, EngineError> {
        let points = input.points.as_deref().unwrap_or_default();
        let frames = input.boxes.as_deref().unwrap_or_default();
        if points.is_empty() && frames.is_empty() {
            return Err(invalid_input("points are missing: this model segments the object at given points"));
        }
        if points.len() > MAX_POINTS || frames.len() > 1 {
            return Err(invalid_input(format!("at most {MAX_POINTS} points and one box are allowed")));
        }
        let (width, height) = (picture.width() as f32, picture.height() as f32);
        let scale = [prepared.content.0 as f32 / width, prepared.content.1 as f32 / height];
        let places = points.iter().flat_map(|point| [point.x, point.y]);
        let corners = frames.iter().flat_map(|frame| [frame.xmin, frame.ymin, frame.xmax, frame.ymax]);
        let is_inside = |(index, side): (usize, f32)| (0.0..=[width, height][index % 2]).contains(&side);
        if !places.clone().enumerate().all(is_inside) || !corners.clone().enumerate().all(is_inside) {
            return Err(invalid_input(format!(
                "points and boxes must lie in the image, {width} × {height} pixels"
            )));
        }
        let scaled = |sides: Vec<f32>| -> Vec<f32> {
            sides.into_iter().enumerate().map(|(index, side)| side * scale[index % 2]).collect()
        };
        let mut feeds = Feeds::new();
        if !frames.is_empty() {
            if !self.decoder.takes("input_boxes") {
                return Err(invalid_input("this model takes points only, no boxes"));
            }
            feeds = feeds.floats("input_boxes", shaped(&[1, 1, 4], scaled(corners.collect()))?);
        }
        // A padding point, which the graph needs if there is only a box.
        let labels: Vec<i64> = match points {
            [] => vec![-10],
            points => points.iter().map(|point| i64::from(point.positive)).collect(),
        };
        let places = if points.is_empty() { vec![0.0, 0.0] } else { scaled(places.collect()) };
        let feeds = feeds.floats("input_points", shaped(&[1, 1, labels.len(), 2], places)?);
        Ok(feeds.ints("input_labels", shaped(&[1, 1, labels.len()], labels)?))
    }

    /// The best mask, in the size of the image.
    fn best(
        &self,
        results: &Results,
        picture: &RgbImage,
        prepared: &Prepared,
    ) -> Result<(f32, Array2<bool>), EngineError> {
        let scores = results.floats("iou_scores")?;
        let masks = results.floats("pred_masks")?;
        let sides: Vec<usize> = masks.shape().iter().rev().take(2).copied().collect();
        let [width, height] = sides[..] else {
            return Err(invalid_model("pred_masks of the graph have no sides"));
        };
        if width * height == 0 || width * height > MAX_MASK || masks.len() / (width * height) != scores.len()
        {
            return Err(invalid_model("the graph does not have one score per mask"));
        }
        let masks: Array3<f32> = shaped(&[scores.len(), height, width], masks.iter().copied().collect())?
            .into_dimensionality()
            .map_err(|_| invalid_model("pred_masks of the graph have no sides"))?;
        let best = argmax(scores.iter().copied());
        let mask = masks.index_axis(Axis(0), best);
        let square = prepared.pixels.shape();
        let whole = interpolate(mask, square[2], square[3], Kind::Linear);
        let (wide, high) = (prepared.content.0 as usize, prepared.content.1 as usize);
        let content = whole.slice(s![..high, ..wide]);
        let fitted = interpolate(content, picture.height() as usize, picture.width() as usize, Kind::Linear);
        Ok((scores.iter().nth(best).copied().unwrap_or_default(), fitted.mapv(|logit| logit > 0.0)))
    }
}

impl Head for Points {
    fn segments(&self, picture: &RgbImage, input: &Input, job: &Job) -> Result<Vec<Segment>, EngineError> {
        let prepared = self.preprocessor.prepare(picture)?;
        let mut question = self.question(input, picture, &prepared)?;
        // The square is padded after its content, which needs no mask.
        let pixels = Feeds::new().floats(PIXELS, prepared.pixels.clone());
        let encoded = self.encoder.run(pixels)?.into_values();
        job.step()?;
        for (name, value) in &encoded {
            question = question.held(name, value);
        }
        let results = self.decoder.run(question)?;
        let (score, mask) = self.best(&results, picture, &prepared)?;
        Ok(vec![Segment { label: "object".to_owned(), score: Some(score), mask: gray::mask(&mask)? }])
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.encoder.name().to_owned(), self.decoder.name().to_owned()]
    }

    fn takes_points(&self) -> bool {
        true
    }
}

fn shaped<T>(shape: &[usize], values: Vec<T>) -> Result<ArrayD<T>, EngineError> {
    ArrayD::from_shape_vec(IxDyn(shape), values)
        .map_err(|error| invalid_model("the masks of the graph").because(error))
}
