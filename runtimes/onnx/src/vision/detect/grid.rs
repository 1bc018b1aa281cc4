//! Grids of boxes: `[1, 4 + C, N]`, or `[1, N, 6]` if the graph has filtered them.
//!
//! Other networks of the same family have other numbers in a grid of the same form: those of YOLOv5 have a score of their own beside those of the
//! classes, those that find poses or segments more numbers behind them. They are refused.

use image::{Rgb, RgbImage};
use island_runtimes_graph::{Feeds, Graph};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::unsupported,
    media::resize::interpolated,
};
use ndarray::{ArrayView1, ArrayView2, Axis, Ix3, s};
use serde_json::Value;

use super::{Found, overlap};
use crate::{
    task::Loader,
    vision::preprocess::{Levels, fixed, input},
};

/// Default score threshold.
pub const THRESHOLD: f32 = 0.25;
/// Boxes of one class that overlap more than this are one.
const OVERLAP: f32 = 0.7;
/// Maximum number of detections.
const MOST: usize = 300;
/// Maximum number of boxes that are compared with each other.
const MAX_GUESSES: usize = 30_000;
/// Default size, if neither the graph nor its entry defines it.
const USUAL_SIDE: u32 = 640;
/// Gray padding.
const AROUND: Rgb<u8> = Rgb([114; 3]);

/// Input and output of a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Width and height of the input.
    size: (u32, u32),
    overlap: f32,
    /// Number of classes, if they have names.
    classes: Option<usize>,
}

/// Position of the image in the input.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fit {
    scale: f32,
    left: u32,
    top: u32,
    width: u32,
    height: u32,
}

impl Grid {
    /// The grid of a graph, with this number of classes if they have names.
    pub fn of(graph: &Graph, loader: &Loader<'_>, classes: Option<usize>) -> Result<Self, EngineError> {
        const TASK: &str = "task";
        if let Some(task) = graph.metadata(TASK).filter(|task| task != "detect") {
            return Err(unsupported(graph.name(), TASK, &task.into()));
        }
        let configured =
            graph.metadata("imgsz").and_then(|size| serde_json::from_str::<[u32; 2]>(&size).ok());
        let configured = configured.map(|[height, width]| (width, height));
        let size = fixed(graph).or(configured).unwrap_or((USUAL_SIDE, USUAL_SIDE));
        if !(32..=2048).contains(&size.0) || !(32..=2048).contains(&size.1) {
            return Err(invalid_model(format!(
                "the graph reads images of {} × {} pixels, not 32 to 2048",
                size.0, size.1
            )));
        }
        let overlap =
            loader.settings.get("overlap").and_then(Value::as_f64).map_or(OVERLAP, |share| share as f32);
        Ok(Self { size, overlap, classes })
    }

    /// Detections in an image.
    pub fn find(&self, graph: &Graph, picture: &RgbImage, threshold: f32) -> Result<Vec<Found>, EngineError> {
        let fit = Fit::of(picture.dimensions(), self.size);
        let pixels = Levels::UNIT.tensor(&fit.place(picture, self.size));
        let results = graph.run(Feeds::new().floats(input(graph), pixels.into_dyn()))?;
        let name = graph.first_output()?;
        let boxes =
            results.floats(name)?.into_dimensionality::<Ix3>().ok().filter(|array| array.shape()[0] == 1);
        let boxes = boxes.ok_or_else(|| invalid_model(format!("{name} of the graph is not [1, …, …]")))?;
        let boxes = boxes.index_axis(Axis(0), 0);
        let bounds = (picture.width() as f32, picture.height() as f32);
        if boxes.ncols() == 6 && boxes.nrows() > 6 {
            let mut whole = filtered(boxes, threshold)?;
            whole.truncate(MOST);
            whole.iter_mut().for_each(|found| found.corners = fit.back(found.corners, bounds));
            return Ok(whole);
        }
        let mut found = raw(boxes, threshold, self.classes)?;
        if found.len() > MAX_GUESSES {
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            found.truncate(MAX_GUESSES);
        }
        let mut kept = overlap::suppress(found, self.overlap, MOST);
        kept.iter_mut().for_each(|found| found.corners = fit.back(found.corners, bounds));
        Ok(kept)
    }
}

/// Boxes above a score: each row is two corners, a score and a class.
fn filtered(boxes: ArrayView2<'_, f32>, threshold: f32) -> Result<Vec<Found>, EngineError> {
    let rows = boxes.rows();
    let whole = rows.into_iter().filter(|row| row[4] > threshold).take(MAX_GUESSES);
    let found = |row: ArrayView1<'_, f32>| {
        // The score of the only class of a network whose boxes are not filtered.
        if row[5].fract() != 0.0 {
            return Err(invalid_model(format!("the graph gives the class {} of a box", row[5])));
        }
        let corners = [row[0], row[1], row[2], row[3]];
        Ok(Found { class: row[5].max(0.0) as usize, score: row[4], corners })
    };
    whole.map(found).collect()
}

/// Boxes above a score: each column is a center, a size, and a score per class.
fn raw(boxes: ArrayView2<'_, f32>, threshold: f32, named: Option<usize>) -> Result<Vec<Found>, EngineError> {
    if boxes.nrows() < 5 {
        return Err(invalid_model(format!("the graph has {} numbers per box, fewer than 5", boxes.nrows())));
    }
    let given = boxes.nrows() - 4;
    // Without names, a grid with more classes than boxes is taken for one with boxes in rows.
    if named.is_some_and(|named| named != given) || (named.is_none() && given > boxes.ncols()) {
        let names = named.map_or_else(|| "none".to_owned(), |named| named.to_string());
        return Err(invalid_model(format!(
            "the graph gives {} numbers for each of {} boxes, a place of 4 and {given} classes, of which {names} have names",
            boxes.nrows(),
            boxes.ncols()
        )));
    }
    let mut found = Vec::new();
    let classes = boxes.slice(s![4.., ..]);
    let mut best = vec![(0, f32::NEG_INFINITY); boxes.ncols()];
    for (class, scores) in classes.rows().into_iter().enumerate() {
        for (best, &score) in best.iter_mut().zip(scores) {
            if score > best.1 {
                *best = (class, score);
            }
        }
    }
    for (candidate, &(class, score)) in best.iter().enumerate().filter(|(_, best)| best.1 > threshold) {
        let [x, y, w, h] = [0, 1, 2, 3].map(|side| boxes[[side, candidate]]);
        found.push(Found { class, score, corners: [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0] });
    }
    Ok(found)
}

impl Fit {
    fn of((width, height): (u32, u32), size: (u32, u32)) -> Self {
        let (across, down) = (size.0 as f32 / width as f32, size.1 as f32 / height as f32);
        let scale = across.min(down);
        let side = |side: u32, most: u32| ((side as f32 * scale).round_ties_even() as u32).clamp(1, most);
        let (wide, high) = (side(width, size.0), side(height, size.1));
        // With an odd remainder, the smaller half is first.
        let before = |side: u32, whole: u32| (whole - side) / 2;
        Self { scale, left: before(wide, size.0), top: before(high, size.1), width: wide, height: high }
    }

    fn place(self, picture: &RgbImage, size: (u32, u32)) -> RgbImage {
        let mut canvas = RgbImage::from_pixel(size.0, size.1, AROUND);
        let fitted = interpolated(picture, self.width, self.height);
        image::imageops::replace(&mut canvas, &fitted, i64::from(self.left), i64::from(self.top));
        canvas
    }

    /// Corners clipped to the image.
    fn back(self, corners: [f32; 4], (width, height): (f32, f32)) -> [f32; 4] {
        let x = |side: f32| ((side - self.left as f32) / self.scale).clamp(0.0, width);
        let y = |side: f32| ((side - self.top as f32) / self.scale).clamp(0.0, height);
        [x(corners[0]), y(corners[1]), x(corners[2]), y(corners[3])]
    }
}

/// Names of classes in a graph's metadata, `{0: 'person', 1: "driver's licence"}`: a Python dictionary.
pub fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(colon) = rest.find(':') {
        let after = rest[colon + 1..].trim_start();
        let Some(quote) = after.chars().next().filter(|quote| matches!(quote, '\'' | '"')) else { break };
        let Some(end) = after[1..].find(quote) else { break };
        names.push(after[1..=end].to_owned());
        rest = &after[end + 2..];
    }
    names
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn grids_with_other_numbers_than_scores_of_classes_are_refused() {
        let found = |rows: usize, columns: usize, named| {
            let boxes = Array2::from_elem((rows, columns), 0.9);
            let found = raw(boxes.view(), 0.5, named).map(|found| found.len());
            found.map_err(|error| error.message())
        };
        assert_eq!(found(7, 20, Some(3)), Ok(20));
        assert_eq!(found(7, 20, None), Ok(20));
        for (rows, columns, named) in [
            // YOLOv5: boxes in rows, with a score of their own.
            (20, 8, Some(3)),
            (20, 8, None),
            // Segments and poses: more numbers behind the scores.
            (7 + 32, 20, Some(3)),
            (5 + 51, 80, Some(1)),
        ] {
            let refused = found(rows, columns, named).expect_err("other numbers");
            assert!(refused.contains(&format!("{rows} numbers for each of {columns} boxes")), "{refused}");
        }
    }

    #[test]
    fn a_class_that_is_not_a_whole_number_is_refused() {
        let of = |class: f32| {
            let rows = Array2::from_shape_fn((8, 6), |(_, place)| if place == 5 { class } else { 0.9 });
            let found = filtered(rows.view(), 0.5).map_err(|error| error.message())?;
            Ok::<_, String>(found.iter().map(|one| one.class).collect::<Vec<_>>())
        };
        assert_eq!(of(2.0), Ok(vec![2; 8]));
        assert!(of(0.75).expect_err("a score").contains("the class 0.75"));
    }

    #[test]
    fn class_names_are_read_from_a_python_dictionary() {
        assert_eq!(
            names("{0: 'person', 1: \"driver's licence\", 2: 'a: b'}"),
            ["person", "driver's licence", "a: b"]
        );
        assert!(names("nothing").is_empty());
        assert!(names("{0: 'cut").is_empty());
    }

    #[test]
    fn image_is_centered_and_boxes_are_mapped_back() {
        let fit = Fit::of((200, 100), (64, 64));
        assert_eq!((fit.width, fit.height, fit.left, fit.top), (64, 32, 0, 16));
        assert_eq!(fit.back([0.0, 16.0, 64.0, 48.0], (200.0, 100.0)), [0.0, 0.0, 200.0, 100.0]);
    }
}
