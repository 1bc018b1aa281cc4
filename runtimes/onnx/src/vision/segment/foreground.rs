//! One soft mask of the foreground.

use image::RgbImage;
use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::Job,
    media::{
        gray,
        resize::{Filter, resize_gray},
        segment::Segment,
    },
    text::scores,
};
use ndarray::{Array2, Ix2};

use super::{Head, Input};
use crate::{
    task::Loader,
    vision::preprocess::{Levels, Preprocessor, fixed, processor_defaults, size::Rule},
};

/// Default size, if neither the graph nor a settings file defines it.
const USUAL_SIDE: u32 = 320;

/// A model of one mask.
pub(super) struct Foreground {
    graph: Graph,
    preprocessor: Preprocessor,
}

impl Foreground {
    pub(super) fn load(loader: &Loader<'_>, graph: Graph) -> Result<Self, EngineError> {
        let preprocessor = match loader.repository.json("preprocessor_config.json")? {
            Some(file) => Preprocessor::of(&file)?,
            None => usual(&graph),
        };
        Ok(Self { graph, preprocessor })
    }
}

/// Normalization of U²-Net and similar models.
fn usual(graph: &Graph) -> Preprocessor {
    let (width, height) = fixed(graph).unwrap_or((USUAL_SIDE, USUAL_SIDE));
    let (mean, std) = processor_defaults::IMAGENET;
    Preprocessor {
        rule: Some(Rule::Exact { width, height }),
        step: 1,
        filter: Filter::Lanczos,
        crop: None,
        levels: Levels { mean, std, ..Levels::UNIT },
        pad: None,
        page: None,
    }
}

impl Head for Foreground {
    fn segments(&self, picture: &RgbImage, _input: &Input, _job: &Job) -> Result<Vec<Segment>, EngineError> {
        let prepared = self.preprocessor.prepare(picture)?;
        let results = self.graph.run(prepared.feeds(&self.graph))?;
        // Models trained at several depths have the finest mask first.
        let name = self.graph.first_output()?;
        let mut plane = results.floats(name)?;
        while plane.ndim() > 2 && plane.shape()[0] == 1 {
            plane.index_axis_inplace(ndarray::Axis(0), 0);
        }
        let plane = plane.into_dimensionality::<Ix2>();
        let plane = plane.map_err(|_| invalid_model(format!("{name} of the graph is not one mask")))?;
        let mask = resize_gray(
            &levels(plane),
            picture.width() as usize,
            picture.height() as usize,
            Filter::Bilinear,
        );
        Ok(vec![Segment { label: "foreground".to_owned(), score: None, mask: gray::png(&mask)? }])
    }

    fn graphs(&self) -> Vec<String> {
        super::name(&self.graph)
    }
}

/// Probabilities as bytes. Graphs without a final sigmoid have numbers outside 0 to 1.
fn levels(mut plane: Array2<f32>) -> Array2<u8> {
    if plane.iter().any(|number| !(-0.01..=1.01).contains(number)) {
        plane.mapv_inplace(scores::sigmoid);
    }
    plane.mapv(|probability| (probability * 255.0) as u8)
}
