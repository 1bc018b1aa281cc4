//! Queries that each have a class and a mask; every pixel belongs to the query with the highest probability.

use image::RgbImage;
use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::Job,
    media::{
        plane::{Kind, interpolate},
        segment::Segment,
    },
    text::scores,
};
use ndarray::{Array2, Axis, Ix3, Ix4, Zip};

use super::{Head, Input, part};
use crate::vision::preprocess::Preprocessor;

/// Default score threshold of a query.
const THRESHOLD: f32 = 0.9;
/// Default minimum probability of a pixel of a query.
const MASK_THRESHOLD: f32 = 0.5;
/// Default minimum share of a query's pixels that no other query takes.
const OVERLAP: f32 = 0.5;

/// A model whose queries have masks.
pub(super) struct Panoptic {
    pub(super) graph: Graph,
    pub(super) preprocessor: Preprocessor,
    pub(super) labels: Vec<String>,
}

/// The maximum of the other queries is irrelevant once a pixel is assigned.
struct Claims {
    /// The query of each pixel, and its probability.
    best: Array2<(u32, f32)>,
    /// Number of pixels of each query above the threshold.
    areas: Vec<usize>,
}

impl Head for Panoptic {
    fn segments(&self, picture: &RgbImage, input: &Input, job: &Job) -> Result<Vec<Segment>, EngineError> {
        let prepared = self.preprocessor.prepare(picture)?;
        let results = self.graph.run(prepared.feeds(&self.graph))?;
        let logits = results.floats("logits")?.into_dimensionality::<Ix3>().ok();
        let masks = results.floats("pred_masks")?.into_dimensionality::<Ix4>().ok();
        let (Some(logits), Some(masks)) = (logits, masks) else {
            return Err(invalid_model(
                "the graph gives no [1, queries, classes] with [1, queries, height, width]",
            ));
        };
        if logits.shape()[0] != 1 || logits.shape()[..2] != masks.shape()[..2] || logits.shape()[2] == 0 {
            return Err(invalid_model("the graph does not have one mask per query"));
        }
        let least = input.threshold.unwrap_or(THRESHOLD);
        let (logits, masks) = (logits.index_axis(Axis(0), 0), masks.index_axis(Axis(0), 0));
        let nothing = logits.ncols() - 1;
        let mut kept = Vec::new();
        for (query, logits) in logits.rows().into_iter().enumerate() {
            let probabilities = scores::softmax(&logits.to_vec());
            let class = scores::argmax(probabilities.iter().copied());
            if class != nothing && probabilities[class] > least {
                kept.push((query, class, probabilities[class]));
            }
        }
        let size = (picture.height() as usize, picture.width() as usize);
        let own = input.mask_threshold.unwrap_or(MASK_THRESHOLD);
        let mut claims = Claims { best: Array2::from_elem(size, (0, f32::NEG_INFINITY)), areas: Vec::new() };
        for (rank, &(query, _, score)) in kept.iter().enumerate() {
            job.step()?;
            let mask = masks.index_axis(Axis(0), query).mapv(scores::sigmoid);
            let mask = interpolate(mask.view(), size.0, size.1, Kind::Linear);
            claims.add(rank as u32, &mask, score, own);
        }
        claims.segments(self, &kept, input.overlap_mask_area_threshold.unwrap_or(OVERLAP), job)
    }

    fn graphs(&self) -> Vec<String> {
        super::name(&self.graph)
    }
}

impl Claims {
    fn add(&mut self, rank: u32, mask: &Array2<f32>, score: f32, own: f32) {
        let mut area = 0;
        Zip::from(&mut self.best).and(mask).for_each(|best, &probability| {
            let claim = probability * score;
            area += usize::from(claim >= own);
            if claim > best.1 {
                *best = (rank, claim);
            }
        });
        self.areas.push(area);
    }

    fn segments(
        self,
        model: &Panoptic,
        kept: &[(usize, usize, f32)],
        overlap: f32,
        job: &Job,
    ) -> Result<Vec<Segment>, EngineError> {
        let owners = self.best.mapv(|(rank, _)| rank);
        let mut taken = vec![0_usize; kept.len()];
        owners
            .iter()
            .for_each(|&rank| taken.get_mut(rank as usize).into_iter().for_each(|count| *count += 1));
        let mut segments = Vec::new();
        for (rank, &(_, class, score)) in kept.iter().enumerate() {
            let (taken, area) = (taken[rank], self.areas[rank]);
            if taken > 0 && area > 0 && taken as f32 / area as f32 > overlap {
                job.step()?;
                let label = model.labels.get(class).cloned().unwrap_or_else(|| format!("LABEL_{class}"));
                segments.push(part(&owners, rank as u32, label, Some(score))?);
            }
        }
        Ok(segments)
    }
}
