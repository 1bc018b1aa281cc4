//! A class for every pixel.

use image::RgbImage;
use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::Job,
    media::{
        plane::{Kind, interpolate},
        segment::Segment,
    },
};
use ndarray::{Array2, Axis, Ix4, Zip};

use super::{Head, Input, MAX_SEGMENTS, part};
use crate::vision::preprocess::Preprocessor;

/// A model with class probabilities for each pixel.
pub(super) struct Semantic {
    pub(super) graph: Graph,
    pub(super) preprocessor: Preprocessor,
    pub(super) labels: Vec<String>,
}

impl Head for Semantic {
    fn segments(&self, picture: &RgbImage, _input: &Input, job: &Job) -> Result<Vec<Segment>, EngineError> {
        let prepared = self.preprocessor.prepare(picture)?;
        let logits = self.graph.run(prepared.feeds(&self.graph))?.floats("logits")?;
        let logits = logits.into_dimensionality::<Ix4>().ok();
        let logits = logits.filter(|logits| logits.shape()[0] == 1 && !logits.is_empty());
        let logits =
            logits.ok_or_else(|| invalid_model("logits of the graph are not [1, classes, height, width]"))?;
        if logits.shape()[1] > MAX_SEGMENTS {
            return Err(invalid_model(format!(
                "the graph gives {} classes, more than {MAX_SEGMENTS}",
                logits.shape()[1]
            )));
        }
        let size = (picture.height() as usize, picture.width() as usize);
        let mut best = Array2::from_elem(size, (0_u32, f32::NEG_INFINITY));
        for (class, plane) in logits.index_axis(Axis(0), 0).axis_iter(Axis(0)).enumerate() {
            job.step()?;
            let plane = interpolate(plane, size.0, size.1, Kind::Linear);
            Zip::from(&mut best).and(&plane).for_each(|best, &logit| {
                if logit > best.1 {
                    *best = (class as u32, logit);
                }
            });
        }
        let classes = best.mapv(|(class, _)| class);
        let mut there = vec![false; logits.shape()[1]];
        classes.iter().for_each(|&class| there[class as usize] = true);
        let there = there.into_iter().enumerate().filter(|(_, is_there)| *is_there);
        let label =
            |class: usize| self.labels.get(class).cloned().unwrap_or_else(|| format!("LABEL_{class}"));
        there
            .map(|(class, _)| {
                job.step()?;
                part(&classes, class as u32, label(class), None)
            })
            .collect()
    }

    fn graphs(&self) -> Vec<String> {
        super::name(&self.graph)
    }
}
