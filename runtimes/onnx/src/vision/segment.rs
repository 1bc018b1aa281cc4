//! Image segmentation.
//!
//! | module | models |
//! | --- | --- |
//! | [`semantic`] | a class for every pixel |
//! | [`panoptic`] | queries that each have a mask |
//! | [`foreground`] | one soft mask of the foreground |
//! | [`points`] | the object at given points |

use image::RgbImage;
use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::{Answer, Job, parse_input},
    keys::unsupported,
    media::{
        gray, picture,
        segment::{Segment, small_enough},
    },
    pipeline::{Pipeline, example_picture},
};
use ndarray::Array2;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{task::Loader, vision::preprocess::Preprocessor};

pub mod foreground;
pub mod panoptic;
pub mod points;
pub mod semantic;

/// Maximum number of segments of an answer.
const MAX_SEGMENTS: usize = 256;

/// The input of a job.
#[derive(Debug, Deserialize)]
pub struct Input {
    image: String,
    /// Score threshold of a segment.
    threshold: Option<f32>,
    /// Minimum probability of a pixel of a segment.
    mask_threshold: Option<f32>,
    /// Minimum share of a segment that no other covers.
    overlap_mask_area_threshold: Option<f32>,
    /// Points on the object.
    points: Option<Vec<points::Point>>,
    /// Boxes around the object.
    boxes: Option<Vec<points::Frame>>,
}

/// A kind of model.
trait Head: Send + Sync + 'static {
    fn segments(&self, picture: &RgbImage, input: &Input, job: &Job) -> Result<Vec<Segment>, EngineError>;

    fn graphs(&self) -> Vec<String>;

    /// Whether it segments what a job points at.
    fn takes_points(&self) -> bool {
        false
    }
}

struct Segmenter(Box<dyn Head>);

/// Loads a segmentation model.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    if let Some(encoder) = loader.graph_if_there("vision_encoder")? {
        encoder.require_fed(&[points::PIXELS])?;
        return Ok(Box::new(Segmenter(Box::new(points::Points::load(loader, encoder)?))));
    }
    let graph = loader.image_graph(&["model"])?;
    let gives = |name: &str| graph.outputs().iter().any(|output| output == name);
    let head: Box<dyn Head> = if gives("pred_masks") && gives("logits") {
        let preprocessor = Preprocessor::load(&loader.repository)?;
        Box::new(panoptic::Panoptic { graph, preprocessor, labels: super::labels(&loader.repository) })
    } else if gives("logits") {
        let classes = graph.stated_size("logits", 3).filter(|&classes| classes > MAX_SEGMENTS);
        if let Some(classes) = classes {
            let refused = unsupported(graph.name(), "logits", &classes.into());
            return Err(refused.followed_by(format!("at most {MAX_SEGMENTS} classes are read")));
        }
        let preprocessor = Preprocessor::load(&loader.repository)?;
        Box::new(semantic::Semantic { graph, preprocessor, labels: super::labels(&loader.repository) })
    } else {
        check_masks(graph.outputs(), &loader.repository.config)?;
        Box::new(foreground::Foreground::load(loader, graph)?)
    };
    Ok(Box::new(Segmenter(head)))
}

/// Refuses queries of other names than DETR's: the first of their outputs is not a mask.
fn check_masks(outputs: &[String], config: &Value) -> Result<(), EngineError> {
    const KEY: &str = "model_type";
    let has_queries = outputs.iter().any(|output| output.ends_with("queries_logits"));
    if has_queries { Err(unsupported("config.json", KEY, &config[KEY])) } else { Ok(()) }
}

impl Pipeline for Segmenter {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let input: Input = parse_input(input)?;
        let picture = small_enough(picture::read(&input.image, "the image")?)?;
        job.step()?;
        let segments = self.0.segments(&picture, &input, job)?;
        if segments.len() > MAX_SEGMENTS {
            let message = format!("the model finds {} segments, more than {MAX_SEGMENTS}", segments.len());
            return Err(invalid_model(message));
        }
        let output = json!({ "segments": segments, "width": picture.width(), "height": picture.height() });
        Ok(Answer::of(output, 0))
    }

    fn example(&self) -> Option<Value> {
        let mut example = json!({ "image": example_picture() });
        if self.0.takes_points() {
            example["points"] = json!([{ "x": 8, "y": 8 }]);
        }
        Some(example)
    }

    fn graphs(&self) -> Vec<String> {
        self.0.graphs()
    }
}

/// The pixels where `plane` is `value`, as a segment.
fn part(plane: &Array2<u32>, value: u32, label: String, score: Option<f32>) -> Result<Segment, EngineError> {
    Ok(Segment { label, score, mask: gray::mask(&plane.mapv(|other| other == value))? })
}

fn name(graph: &Graph) -> Vec<String> {
    vec![graph.name().to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_other_names_are_refused() {
        let names = ["class_queries_logits", "masks_queries_logits"].map(str::to_owned);
        let refused =
            check_masks(&names, &json!({"model_type": "maskformer"})).expect_err("queries").message();
        assert_eq!(refused, "config.json: model_type = \"maskformer\" is not supported");
        check_masks(&["d0".to_owned()], &Value::Null).expect("one mask");
    }
}
