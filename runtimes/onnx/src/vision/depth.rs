//! Depth estimation.

use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::{Answer, Job, parse_input},
    media::{
        gray, picture,
        plane::{Kind, interpolate},
        segment::small_enough,
    },
    pipeline::{Pipeline, example_picture},
};
use ndarray::{Array2, Axis, Ix2};
use serde::Deserialize;
use serde_json::{Value, json};

use super::preprocess::Preprocessor;
use crate::task::Loader;

#[derive(Debug, Deserialize)]
struct Input {
    image: String,
}

struct Depth {
    graph: Graph,
    preprocessor: Preprocessor,
}

/// Loads a depth estimator.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let graph = loader.image_graph(&["model"])?;
    graph.require("predicted_depth").or_else(|error| graph.require("depth").map_err(|_| error))?;
    Ok(Box::new(Depth { graph, preprocessor: Preprocessor::load(&loader.repository)? }))
}

impl Pipeline for Depth {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { image } = parse_input(input)?;
        let picture = small_enough(picture::read(&image, "the image")?)?;
        job.step()?;
        let prepared = self.preprocessor.prepare(&picture)?;
        let mut plane =
            self.graph.run(prepared.feeds(&self.graph))?.first_floats(&["predicted_depth", "depth"])?;
        job.step()?;
        while plane.ndim() > 2 && plane.shape()[0] == 1 {
            plane.index_axis_inplace(Axis(0), 0);
        }
        let plane = plane.into_dimensionality::<Ix2>();
        let plane =
            plane.map_err(|_| invalid_model("predicted_depth of the graph is not [1, height, width]"))?;
        let plane =
            interpolate(plane.view(), picture.height() as usize, picture.width() as usize, Kind::Cubic);
        let depth = gray::png(&levels(&plane))?;
        let output = json!({ "depth": depth, "width": picture.width(), "height": picture.height() });
        Ok(Answer::of(output, 0))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "image": example_picture() }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.name().to_owned()]
    }
}

/// The minimum is black and the maximum white; a constant plane is black.
fn levels(plane: &Array2<f32>) -> Array2<u8> {
    let least = plane.iter().copied().fold(f32::INFINITY, f32::min);
    let most = plane.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    plane.mapv(|depth| if most > least { ((depth - least) / (most - least) * 255.0) as u8 } else { 0 })
}
