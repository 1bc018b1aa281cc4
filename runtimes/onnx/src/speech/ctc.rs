//! Models that label every frame of audio, as ONNX graphs.

use island_runtimes_graph::{Feeds, Graph};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    speech::ctc::{AcousticModel, Ctc},
};
use ndarray::{Array2, Axis, Ix3};

use crate::task::Loader;

/// A graph that labels frames.
#[derive(Debug)]
struct CtcGraph(Graph);

/// Loads a repository.
pub fn load(loader: &Loader<'_>) -> Result<Ctc, EngineError> {
    let graph = loader.graph(&["model"], &["input_values", "attention_mask"])?;
    graph.require("logits")?;
    Ctc::of(&loader.repository, Box::new(CtcGraph(graph)))
}

impl AcousticModel for CtcGraph {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn longest(&self) -> Option<usize> {
        None
    }

    fn of_features(&self) -> Option<usize> {
        None
    }

    fn logits(&self, samples: &[f32]) -> Result<Array2<f32>, EngineError> {
        let samples = Array2::from_shape_fn((1, samples.len()), |(_, place)| samples[place]);
        let mask = Array2::from_elem(samples.dim(), 1_i64);
        let feeds =
            Feeds::new().floats("input_values", samples.into_dyn()).ints("attention_mask", mask.into_dyn());
        let logits = self.0.run(feeds)?.floats("logits")?.into_dimensionality::<Ix3>();
        let logits = logits.ok().filter(|logits| logits.shape()[0] == 1);
        let logits = logits.ok_or_else(|| invalid_model("the graph's logits are not one row per frame"))?;
        Ok(logits.index_axis_move(Axis(0), 0))
    }
}
