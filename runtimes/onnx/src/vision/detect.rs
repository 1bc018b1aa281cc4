//! Object detection.
//!
//! Three kinds of heads: queries that are one object or none (DETR, YOLOS), queries with independent classes
//! (RT-DETR, D-FINE), and grids of overlapping boxes (YOLOv8 and similar), which [`grid`] reads and [`overlap`] filters.

use image::RgbImage;
use island_runtimes_graph::{Graph, Results};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::{Answer, Job, parse_input},
    keys::unsupported,
    media::picture,
    pipeline::{Pipeline, example_picture},
    repository::Repository,
    text::scores,
};
use ndarray::{Array2, ArrayD, Ix3};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::preprocess::{self, Preprocessor};
use crate::task::Loader;

pub mod grid;
pub mod overlap;

use grid::Grid;

/// Maximum number of detections of an answer.
const MAX_DETECTIONS: usize = 1000;
/// Number of pairs that the processors of Conditional and Deformable DETR keep.
const MAX_PAIRS: usize = 100;
/// Default score threshold of queries.
const THRESHOLD: f32 = 0.5;

#[derive(Debug, Deserialize)]
struct Input {
    image: String,
    threshold: Option<f32>,
}

/// A detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Its class.
    pub class: usize,
    /// Score from 0 to 1.
    pub score: f32,
    /// Left, top, right and bottom in pixels of the image.
    pub corners: [f32; 4],
}

#[derive(Debug, Serialize)]
struct Detection<'l> {
    label: &'l str,
    score: f32,
    #[serde(rename = "box")]
    place: BoundingBox,
}

/// Integer pixels of the image; a part may be outside.
#[derive(Debug, Serialize)]
struct BoundingBox {
    xmin: i64,
    ymin: i64,
    xmax: i64,
    ymax: i64,
}

enum Head {
    /// Each query is one object, or none: the last class.
    OneOf(Preprocessor),
    /// Each query has independent classes; this number of the most likely pairs counts, as many as there are queries if absent.
    AnyOf(Preprocessor, Option<usize>),
    Grid(Grid),
}

/// How queries are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queries {
    /// Each is one object, or none.
    OneOf,
    /// Their classes are independent, and this number of pairs counts, as many as there are queries if absent.
    AnyOf(Option<usize>),
}

impl Queries {
    /// As the reference reads them: by the class of the processor, whatever the model is; by the model only if the repository names no class.
    fn of(class: &str, model: &str) -> Result<Self, EngineError> {
        Ok(match (class, model) {
            ("RTDetr" | "RfDetr", _) | ("", "rt_detr" | "rt_detr_v2" | "d_fine" | "rf_detr") => {
                Self::AnyOf(None)
            }
            ("ConditionalDetr" | "DeformableDetr", _)
            | ("", "deformable_detr" | "conditional_detr" | "dab-detr") => Self::AnyOf(Some(MAX_PAIRS)),
            ("Detr" | "Yolos", _) | ("", "detr" | "yolos" | "table-transformer") => Self::OneOf,
            ("", _) => return Err(unsupported("config.json", "model_type", &model.into())),
            _ => return Err(unsupported("preprocessor_config.json", "image_processor_type", &class.into())),
        })
    }
}

struct Detector {
    graph: Graph,
    head: Head,
    labels: Vec<String>,
}

/// Loads a detector.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let graph = loader.image_graph(&["model"])?;
    let kind = loader.repository.config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let has_queries = graph.outputs().iter().any(|name| name == "pred_boxes");
    let labels = super::labels(&loader.repository);
    let detector = if has_queries {
        graph.require("logits")?;
        graph.require_size("pred_boxes", 1, 4, "a box has four numbers")?;
        let preprocessor = Preprocessor::load(&loader.repository)?;
        let class = preprocess::class(&loader.repository)?;
        let has_mask = graph.inputs().iter().any(|input| input.name == "pixel_mask");
        check_padding(class.as_deref().unwrap_or_default(), preprocessor.pad, has_mask)?;
        let head = match Queries::of(class.as_deref().unwrap_or_default(), kind)? {
            Queries::OneOf => Head::OneOf(preprocessor),
            Queries::AnyOf(most) => Head::AnyOf(preprocessor, most),
        };
        Detector { graph, head, labels }
    } else {
        let names = grid_names(&graph, &loader.repository);
        let grid = Grid::of(&graph, loader, names.as_ref().map(Vec::len))?;
        let labels = names.unwrap_or(labels);
        Detector { graph, head: Head::Grid(grid), labels }
    };
    Ok(Box::new(detector))
}

/// Rejects padding that the network of the reference would ignore by a mask, and the graph would not.
fn check_padding(class: &str, pad: Option<(u32, u32)>, has_mask: bool) -> Result<(), EngineError> {
    let masks = matches!(class, "Detr" | "ConditionalDetr" | "DeformableDetr");
    match pad.filter(|_| masks && !has_mask) {
        Some((width, height)) => {
            let size = json!({ "height": height, "width": width });
            Err(unsupported("preprocessor_config.json", "pad_size", &size))
        }
        None => Ok(()),
    }
}

/// The names of a grid's classes: those of the settings, or else of the graph's metadata.
fn grid_names(graph: &Graph, repository: &Repository) -> Option<Vec<String>> {
    if repository.config.get("id2label").is_some_and(|names| !names.is_null()) {
        return Some(super::labels(repository));
    }
    graph.metadata("names").map(|names| grid::names(&names)).filter(|names| !names.is_empty())
}

impl Detector {
    fn found(&self, picture: &RgbImage, threshold: Option<f32>) -> Result<Vec<Found>, EngineError> {
        let threshold_or = |usual: f32| threshold.unwrap_or(usual);
        match &self.head {
            Head::OneOf(preprocessor) | Head::AnyOf(preprocessor, _) => {
                let prepared = preprocessor.prepare(picture)?;
                let (logits, boxes) = queries(&self.graph.run(prepared.feeds(&self.graph))?)?;
                let candidates = match &self.head {
                    Head::OneOf(_) => one_of(&logits),
                    Head::AnyOf(_, most) => any_of(&logits, most.unwrap_or(logits.nrows())),
                    Head::Grid(_) => Vec::new(),
                };
                let least = threshold_or(THRESHOLD);
                let kept = candidates.into_iter().filter(|(_, _, score)| *score > least);
                let place = |(query, class, score)| Found {
                    class,
                    score,
                    corners: corners(boxes.row(query).as_slice(), picture),
                };
                Ok(kept.map(place).collect())
            }
            Head::Grid(grid) => grid.find(&self.graph, picture, threshold_or(grid::THRESHOLD)),
        }
    }

    fn label(&self, class: usize) -> String {
        self.labels.get(class).cloned().unwrap_or_else(|| format!("LABEL_{class}"))
    }
}

impl Pipeline for Detector {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { image, threshold } = parse_input(input)?;
        let picture = picture::read(&image, "the image")?;
        job.step()?;
        let mut found = self.found(&picture, threshold)?;
        if found.len() > MAX_DETECTIONS {
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            found.truncate(MAX_DETECTIONS);
        }
        let named: Vec<(String, &Found)> =
            found.iter().map(|found| (self.label(found.class), found)).collect();
        let detections: Vec<Detection<'_>> =
            named.iter().map(|(label, found)| Detection::of(label, found)).collect();
        let output =
            json!({ "detections": detections, "width": picture.width(), "height": picture.height() });
        Ok(Answer::of(output, 0))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "image": example_picture() }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.name().to_owned()]
    }
}

impl<'l> Detection<'l> {
    fn of(label: &'l str, found: &Found) -> Self {
        // The reference truncates fractions.
        let [xmin, ymin, xmax, ymax] = found.corners.map(|side| side as i64);
        Self { label, score: found.score, place: BoundingBox { xmin, ymin, xmax, ymax } }
    }
}

/// Logits and boxes of queries: `[Q, C]` and `[Q, 4]`.
fn queries(results: &Results) -> Result<(Array2<f32>, Array2<f32>), EngineError> {
    let of_one = |array: ArrayD<f32>, name: &str| {
        let array = array.into_dimensionality::<Ix3>().ok().filter(|array| array.shape()[0] == 1);
        let array =
            array.ok_or_else(|| invalid_model(format!("{name} of the graph are not [1, queries, …]")))?;
        Ok::<_, EngineError>(array.index_axis_move(ndarray::Axis(0), 0).as_standard_layout().into_owned())
    };
    let logits = of_one(results.floats("logits")?, "logits")?;
    let boxes = of_one(results.floats("pred_boxes")?, "pred_boxes")?;
    if boxes.ncols() != 4 || boxes.nrows() != logits.nrows() || logits.ncols() == 0 {
        return Err(invalid_model("the graph's boxes are not [1, queries, 4]"));
    }
    Ok((logits, boxes))
}

/// The most likely class of each query with its probability: query, class, score.
fn one_of(logits: &Array2<f32>) -> Vec<(usize, usize, f32)> {
    let best = |(query, logits): (usize, ndarray::ArrayView1<'_, f32>)| {
        let probabilities = scores::softmax(&logits.to_vec());
        let things = &probabilities[..probabilities.len() - 1];
        let class = scores::argmax(things.iter().copied());
        (query, class, things.get(class).copied().unwrap_or(0.0))
    };
    logits.rows().into_iter().enumerate().map(best).collect()
}

/// The `most` most likely pairs of query and class.
fn any_of(logits: &Array2<f32>, most: usize) -> Vec<(usize, usize, f32)> {
    let mut pairs: Vec<(usize, usize, f32)> = logits
        .indexed_iter()
        .map(|((query, class), &logit)| (query, class, scores::sigmoid(logit)))
        .collect();
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2));
    pairs.truncate(most);
    pairs
}

/// Converts a relative center and size to corners in pixels.
fn corners(sides: Option<&[f32]>, picture: &RgbImage) -> [f32; 4] {
    let Some(&[x, y, w, h]) = sides.and_then(|sides| sides.first_chunk::<4>()) else { return [0.0; 4] };
    let (width, height) = (picture.width() as f32, picture.height() as f32);
    [(x - 0.5 * w) * width, (y - 0.5 * h) * height, (x + 0.5 * w) * width, (y + 0.5 * h) * height]
}

#[cfg(test)]
mod tests {
    use ndarray::arr2;

    use super::*;

    #[test]
    fn padding_without_a_mask_is_refused() {
        let refused = check_padding("Detr", Some((128, 96)), false).expect_err("refused").message();
        assert!(refused.contains("pad_size = {\"height\":96,\"width\":128}"), "{refused}");
        assert!(check_padding("Detr", Some((128, 96)), true).is_ok());
        assert!(check_padding("Yolos", Some((128, 96)), false).is_ok(), "this one has no mask");
        assert!(check_padding("Detr", None, false).is_ok());
    }

    #[test]
    fn queries_are_read_as_the_processor_reads_them() {
        let of = |class: &str, model: &str| Queries::of(class, model).expect("known");
        // The processor of DAB-DETR is that of Conditional DETR.
        assert_eq!(of("ConditionalDetr", "dab-detr"), Queries::AnyOf(Some(100)));
        assert_eq!(of("", "dab-detr"), Queries::AnyOf(Some(100)));
        assert_eq!(of("RTDetr", "d_fine"), Queries::AnyOf(None));
        assert_eq!(of("Detr", "table-transformer"), Queries::OneOf);
        let refused = |class: &str, model: &str| Queries::of(class, model).expect_err("unknown").message();
        assert_eq!(refused("", "owlvit"), "config.json: model_type = \"owlvit\" is not supported");
        assert!(refused("OwlViT", "detr").contains("image_processor_type = \"OwlViT\""));
    }

    #[test]
    fn pairs_of_queries_and_classes_are_limited_in_number() {
        let logits = arr2(&[[3.0, 1.0], [2.0, -1.0]]);
        let pairs = |most| {
            any_of(&logits, most).into_iter().map(|(query, class, _)| (query, class)).collect::<Vec<_>>()
        };
        assert_eq!(pairs(2), [(0, 0), (1, 0)], "as many as there are queries");
        assert_eq!(pairs(MAX_PAIRS), [(0, 0), (1, 0), (0, 1), (1, 1)]);
    }
}
