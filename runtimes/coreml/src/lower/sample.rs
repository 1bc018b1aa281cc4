//! Sampling of planes at given positions.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand, single, text, unsupported},
};
use crate::program::types::Class;

pub(super) const OPERATIONS: Table =
    &[("affine", affine), ("crop_resize", crop_resize), ("resample", resample)];

/// Positions from -1 to 1.
const CENTERED: &str = "normalized_minus_one_to_one";
/// Maximum number of positions of a generated plane.
const MAX_PLACES: i64 = 1 << 24;
/// Maximum number of boxes without an image index.
const MAX_BOXES: i64 = 1 << 16;

/// The values at the positions of `grid`, -1 to 1 from corner to corner or from edge to edge; `fill` applies outside.
fn sampled(
    call: &mut Call<'_, '_>,
    x: &str,
    grid: &str,
    how: [&str; 2],
    corners: bool,
    fill: f32,
) -> Result<String, EngineError> {
    let [mode, edge] = how;
    let set =
        [text("mode", mode), text("padding_mode", edge), Attr::Int("align_corners", i64::from(corners))];
    if fill == 0.0 || edge != "zeros" {
        return Ok(call.node("GridSample", &[x, grid], set));
    }
    // Outside are only zeros, so values are shifted by `fill` before and after.
    let fill = call.real(fill)?;
    let moved = call.node("Sub", &[x, &fill], []);
    let found = call.node("GridSample", &[&moved, grid], set);
    Ok(call.node("Add", &[&found, &fill], []))
}

/// Height and width of the input.
fn plane(x: &Operand) -> Result<(f32, f32), EngineError> {
    if x.rank() != 4 {
        return Err(invalid_model(format!("it samples a tensor of {} axes, not four", x.rank())));
    }
    Ok((x.size(2)? as f32, x.size(3)? as f32))
}

fn resample(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, places) = (call.tensor("x")?, call.tensor("coordinates")?);
    let mut grid = call.cast(&places, Class::Float);
    let corners = call.flag("align_corners", true)?;
    let coordinates =
        call.choice("coordinates_mode", &[CENTERED, "normalized_zero_to_one", "unnormalized"])?;
    let sampling = call.choice("sampling_mode", &["bilinear", "nearest"])?;
    let edge = match call.str_param("padding_mode", "constant")?.as_str() {
        "border" => "border",
        "constant" => "zeros",
        // ONNX reflects at corners or at edges depending on corner alignment; only these two are equal.
        "reflection" if corners => "reflection",
        "symmetric" if !corners => "reflection",
        other => {
            let refused = unsupported("padding_mode", other);
            return Err(refused.followed_by(format!("align_corners = {corners}")));
        }
    };
    let (rows, columns) = plane(&x)?;
    let (scale, shift) = match coordinates {
        "unnormalized" if corners => (vec![2.0 / (columns - 1.0), 2.0 / (rows - 1.0)], vec![-1.0, -1.0]),
        "unnormalized" => (vec![2.0 / columns, 2.0 / rows], vec![1.0 / columns - 1.0, 1.0 / rows - 1.0]),
        "normalized_zero_to_one" => (vec![2.0, 2.0], vec![-1.0, -1.0]),
        _ => (vec![1.0, 1.0], vec![0.0, 0.0]),
    };
    let (scale, shift) = (call.array(&[2], scale)?, call.array(&[2], shift)?);
    grid = call.node("Mul", &[&grid, &scale], []);
    grid = call.node("Add", &[&grid, &shift], []);
    let mode = if sampling == "nearest" { "nearest" } else { "linear" };
    let fill = call.float("padding_value", 0.0)?;
    single(sampled(call, &x.name, &grid, [mode, edge], corners, fill)?)
}

/// From -1 to 1 in this number of steps; a single step is in the center.
fn spread(count: i64) -> impl Iterator<Item = f32> {
    let place = move |at: i64| if count == 1 { 0.0 } else { 2.0 * at as f32 / (count - 1) as f32 - 1.0 };
    (0..count).map(place)
}

/// Height and width of the result.
fn made(call: &Call<'_, '_>, names: [&str; 2]) -> Result<[i64; 2], EngineError> {
    let [height, width] = [call.int(names[0], 1)?, call.int(names[1], 1)?];
    if height < 1 || width < 1 || height.saturating_mul(width) > MAX_PLACES {
        return Err(invalid_model(format!("it makes a plane of {height} × {width}")));
    }
    Ok([height, width])
}

fn affine(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, matrix) = (call.tensor("x")?, call.tensor("transform_matrix")?);
    plane(&x)?;
    let [height, width] = made(call, ["output_height", "output_width"])?;
    let corners = call.flag("align_corners", true)?;
    for (parameter, only) in
        [("coordinates_mode", CENTERED), ("sampling_mode", "bilinear"), ("padding_mode", "constant")]
    {
        call.choice(parameter, &[only])?;
    }
    if !corners {
        return Err(unsupported("align_corners", corners));
    }
    let places = spread(height).flat_map(|y| spread(width).flat_map(move |x| [x, y, 1.0]));
    let places = call.array(&[1, (height * width) as u64, 3], places.collect())?;
    let matrix = call.reshape(&matrix.name, &[-1, 2, 3])?;
    let matrix = call.transpose(&matrix, vec![0, 2, 1]);
    let grid = call.node("MatMul", &[&places, &matrix], []);
    let grid = call.reshape(&grid, &[-1, height, width, 2])?;
    // One matrix may apply to every image.
    let batch = x.size(0)?;
    let shape = call.list(&[batch, height, width, 2])?;
    let grid = call.node("Expand", &[&grid, &shape], []);
    let fill = call.float("padding_value", 0.0)?;
    single(sampled(call, &x.name, &grid, ["linear", "zeros"], true, fill)?)
}

/// Boxes as `[boxes, 4]`, and the image index of each, if present.
fn boxes(call: &mut Call<'_, '_>) -> Result<(String, Option<String>), EngineError> {
    if let Some(roi) = call.optional("roi")? {
        let count = if roi.rank() == 5 { roi.size(2)? } else { 0 };
        let flat = call.reshape(&roi.name, &[-1, count])?;
        return match count {
            4 => Ok((flat, None)),
            5 => {
                let sizes = call.list(&[1, 4])?;
                let parts = call.nodes("Split", &[&flat, &sizes], [Attr::Int("axis", 1)], 2);
                let index = call.cast_name(&parts[0], Class::Int);
                Ok((parts[1].clone(), Some(call.reshape(&index, &[-1])?)))
            }
            _ => Err(invalid_model("its boxes are neither of four numbers nor of five")),
        };
    }
    let boxes = call.tensor("boxes")?;
    let index = if let Some(index) = call.optional("box_indices")? {
        call.cast(&index, Class::Int)
    } else {
        let count = boxes.size(0)?;
        if count > MAX_BOXES {
            return Err(invalid_model(format!("it has {count} boxes, more than {MAX_BOXES}")));
        }
        call.list(&(0..count).collect::<Vec<i64>>())?
    };
    Ok((call.cast(&boxes, Class::Float), Some(index)))
}

/// Start and extent of each box, `[boxes, 1]` each, along one axis.
fn reach(call: &mut Call<'_, '_>, parts: &[String], axis: usize) -> Result<[String; 2], EngineError> {
    let mode = call.str_param("box_coordinate_mode", "CORNERS_HEIGHT_FIRST")?;
    let place = if mode.ends_with("HEIGHT_FIRST") { axis } else { 1 - axis };
    let (first, second) = (&parts[place], &parts[place + 2]);
    if mode.starts_with("CENTER_SIZE") {
        let half = call.real(0.5)?;
        let half = call.node("Mul", &[second, &half], []);
        return Ok([call.node("Sub", &[first, &half], []), second.clone()]);
    }
    Ok([first.clone(), call.node("Sub", &[second, first], [])])
}

fn crop_resize(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let (rows, columns) = plane(&x)?;
    let [height, width] = made(call, ["target_height", "target_width"])?;
    let mode = call.str_param("sampling_mode", "DEFAULT")?;
    if mode != "ALIGN_CORNERS" && mode != "STRICT_ALIGN_CORNERS" {
        return Err(unsupported("sampling_mode", &mode));
    }
    let (boxes, index) = boxes(call)?;
    let parts = call.nodes("Split", &[&boxes], [Attr::Int("axis", 1), Attr::Int("num_outputs", 4)], 4);
    let (scale, is_share) = (call.float("spatial_scale", 1.0)?, call.flag("normalized_coordinates", false)?);
    let mut grid = Vec::with_capacity(2);
    // The width first, which is the order of a position.
    for (axis, size, count) in [(1, columns, width), (0, rows, height)] {
        let [begin, length] = reach(call, &parts, axis)?;
        let last = (size - 1.0).max(1.0);
        let within = spread(count).map(|place| {
            if count == 1 && mode == "STRICT_ALIGN_CORNERS" { 0.0 } else { f32::midpoint(place, 1.0) }
        });
        let within = call.array(&[1, count as u64], within.collect())?;
        let inside = call.node("Mul", &[&length, &within], []);
        let place = call.node("Add", &[&begin, &inside], []);
        let (scale, one) = (call.real(2.0 * scale / if is_share { 1.0 } else { last })?, call.real(1.0)?);
        let place = call.node("Mul", &[&place, &scale], []);
        let place = call.node("Sub", &[&place, &one], []);
        let wide = call.unsqueeze(&place, if axis == 1 { &[1, 3] } else { &[2, 3] })?;
        let shape = call.list(&[1, height, width, 1])?;
        grid.push(call.node("Expand", &[&wide, &shape], []));
    }
    let grid = call.node("Concat", &[&grid[0], &grid[1]], [Attr::Int("axis", 3)]);
    let fill = call.float("pad_value", 0.0)?;
    let how = ["linear", "zeros"];
    let is_older = call.optional("roi")?.is_some();
    if let Some(index) = index {
        let each = call.node("Gather", &[&x.name, &index], [Attr::Int("axis", 0)]);
        let found = sampled(call, &each, &grid, how, true, fill)?;
        return single(if is_older { call.unsqueeze(&found, &[1])? } else { found });
    }
    every_box(call, &x, &grid, [height, width], fill)
}

/// Every box of every image: `[boxes, images, channels, height, width]`.
fn every_box(
    call: &mut Call<'_, '_>,
    x: &Operand,
    grid: &str,
    [height, width]: [i64; 2],
    fill: f32,
) -> Result<Vec<String>, EngineError> {
    let (batch, channels, rows, columns) = (x.size(0)?, x.size(1)?, x.size(2)?, x.size(3)?);
    let shape = call.node("Shape", &[grid], []);
    let (first, second) = (call.list(&[0])?, call.list(&[1])?);
    let count = call.node("Slice", &[&shape, &first, &second], []);
    let repeated = |call: &mut Call<'_, '_>, name: &str, axis: i64, inner: &[i64]| {
        let wide = call.unsqueeze(name, &[axis])?;
        let mut sizes = vec![batch];
        sizes.extend_from_slice(inner);
        let rest = call.list(&sizes)?;
        let shape = call.node("Concat", &[&count, &rest], [Attr::Int("axis", 0)]);
        let wide = call.node("Expand", &[&wide, &shape], []);
        sizes[0] = -1;
        call.reshape(&wide, &sizes)
    };
    let each = repeated(call, &x.name, 0, &[channels, rows, columns])?;
    let grid = repeated(call, grid, 1, &[height, width, 2])?;
    let found = sampled(call, &each, &grid, ["linear", "zeros"], true, fill)?;
    single(call.reshape(&found, &[-1, batch, channels, height, width])?)
}
