//! Non-maximum suppression.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand},
};
use crate::program::types::Class;

pub(super) const OPERATIONS: Table = &[("non_maximum_suppression", non_maximum_suppression)];

/// Maximum number of boxes.
const MAX_BOXES: i64 = 1 << 16;
/// Below every score, and above the value for no score.
const LEAST: f32 = -1e38;
const NEVER: f32 = -2e38;

/// Keeps boxes in descending order of score without large overlap, up to a number. Only the best class of a box counts; one box is always kept.
fn non_maximum_suppression(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (boxes, scores) = (call.tensor("boxes")?, call.tensor("scores")?);
    if boxes.rank() != 3 || scores.rank() != 3 || boxes.size(0)? != 1 {
        return Err(invalid_model("it reads boxes of several images at once"));
    }
    let most = call.int("max_boxes", 1)?;
    if !(1..=MAX_BOXES).contains(&most) {
        return Err(invalid_model(format!("it keeps {most} boxes, not 1 to {MAX_BOXES}")));
    }
    // Since iOS 17 boxes lie along the last axis, and no score is too small.
    let least = call.known("score_threshold")?.is_some().then(|| call.float("score_threshold", LEAST));
    let least = least.transpose()?;
    let rows = |call: &mut Call<'_, '_>, operand: &Operand| {
        if least.is_some() { operand.name.clone() } else { call.transpose(&operand.name, vec![0, 2, 1]) }
    };
    let (by_box, classes) = (rows(call, &boxes), rows(call, &scores));
    let best = {
        let axes = call.list(&[2])?;
        call.node("ReduceMax", &[&classes, &axes], [Attr::Int("keepdims", 1)])
    };
    let apart = if call.flag("per_class_suppression", false)? {
        of_class(call, &scores, &classes, &best, least.is_some())?
    } else {
        best.clone()
    };
    let ranked = call.transpose(&apart, vec![0, 2, 1]);
    let limits = [call.list(&[most])?, {
        let share = call.float("iou_threshold", 0.0)?;
        call.array(&[1], vec![share])?
    }];
    let least_score = call.array(&[1], vec![least.unwrap_or(LEAST).max(LEAST)])?;
    let kept = call.node(
        "NonMaxSuppression",
        &[&by_box, &ranked, &limits[0], &limits[1], &least_score],
        [Attr::Int("center_point_box", 1)],
    );
    let (chosen, count) = chosen(call, &kept, &best, &limits[0])?;
    let filler = call.list(&vec![-1; most as usize])?;
    let wide = call.node("Concat", &[&chosen, &filler], [Attr::Int("axis", 0)]);
    let (begin, end) = (call.list(&[0])?, call.list(&[most])?);
    let places = call.node("Slice", &[&wide, &begin, &end], []);
    let mut given = Vec::with_capacity(4);
    for all in [by_box, classes] {
        let part = taken(call, &all, &places)?;
        given.push(if least.is_some() { part } else { call.transpose(&part, vec![0, 2, 1]) });
    }
    given.push(call.unsqueeze(&places, &[0])?);
    if least.is_some() {
        given.push(count);
    }
    Ok(given)
}

/// Scores by class, of which only the best of each box remains.
fn of_class(
    call: &mut Call<'_, '_>,
    scores: &Operand,
    classes: &str,
    best: &str,
    is_older: bool,
) -> Result<String, EngineError> {
    let count = scores.size(if is_older { 2 } else { 1 })?;
    if count > MAX_BOXES {
        return Err(invalid_model(format!("it has {count} classes, more than {MAX_BOXES}")));
    }
    let class = call.node("ArgMax", &[classes], [Attr::Int("axis", 2), Attr::Int("keepdims", 1)]);
    let numbers = call.list(&(0..count).collect::<Vec<i64>>())?;
    let is_best = call.node("Equal", &[&class, &numbers], []);
    let never = call.real(NEVER)?;
    Ok(call.node("Where", &[&is_best, best, &never], []))
}

/// Indices of the kept boxes in descending order of score, and their number.
fn chosen(
    call: &mut Call<'_, '_>,
    kept: &str,
    best: &str,
    most: &str,
) -> Result<(String, String), EngineError> {
    let column = call.whole(2)?;
    let places = call.node("Gather", &[kept, &column], [Attr::Int("axis", 1)]);
    let flat = call.reshape(best, &[-1])?;
    let top = call.node("ArgMax", &[&flat], [Attr::Int("axis", 0), Attr::Int("keepdims", 1)]);
    let (none, one) = (call.list(&[0])?, call.list(&[1])?);
    let found = call.node("Shape", &[&places], []);
    let count = call.node("Max", &[&found, &one], []);
    let all = call.node("Concat", &[&places, &top], [Attr::Int("axis", 0)]);
    let all = call.node("Slice", &[&all, &none, &count], []);
    let count = call.node("Min", &[&count, most], []);
    let scores = call.node("Gather", &[&flat, &all], []);
    let order = call.nodes("TopK", &[&scores, &count], [Attr::Int("axis", 0)], 2);
    Ok((call.node("Gather", &[&all, &order[1]], []), count))
}

/// Rows with these indices; zeros for negative ones.
fn taken(call: &mut Call<'_, '_>, all: &str, places: &str) -> Result<String, EngineError> {
    let rows = call.squeeze(all, &[0])?;
    let (zero, nothing) = (call.whole(0)?, call.number(Class::Float, 0.0)?);
    let safe = call.node("Max", &[places, &zero], []);
    let found = call.node("Gather", &[&rows, &safe], []);
    let is_there = call.node("GreaterOrEqual", &[places, &zero], []);
    let is_there = call.unsqueeze(&is_there, &[1])?;
    let part = call.node("Where", &[&is_there, &found, &nothing], []);
    call.unsqueeze(&part, &[0])
}
