//! Slices: extracted or replaced.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand, single},
};

pub(super) const OPERATIONS: Table = &[
    ("crop", crop),
    ("slice_by_index", slice_by_index),
    ("slice_by_size", slice_by_size),
    ("slice_update", slice_update),
    ("sliding_windows", sliding_windows),
];

/// Maximum number of positions of windows.
const MAX_PLACES: i64 = 1 << 24;
/// After every end.
const END: i64 = i64::MAX;
/// Before every start, for negative steps.
const BEGIN: i64 = i64::MIN + 1;

/// Starts and ends by axis, as names of vectors in the graph.
struct Range {
    begins: String,
    ends: String,
    strides: Vec<i64>,
    squeezed: Vec<i64>,
    /// Axes that are sliced.
    cut: Vec<usize>,
}

fn range(call: &mut Call<'_, '_>, x: &Operand) -> Result<Range, EngineError> {
    let rank = x.rank();
    let flags = |call: &Call<'_, '_>, name: &str| {
        let flags = call.flags(name)?.unwrap_or_else(|| vec![false; rank]);
        if flags.len() == rank {
            Ok(flags)
        } else {
            Err(invalid_model(format!("its parameter {name} is not of {rank} axes")))
        }
    };
    let (open_begin, open_end) = (flags(call, "begin_mask")?, flags(call, "end_mask")?);
    let squeeze = flags(call, "squeeze_mask")?;
    let strides = call.ints("stride")?.unwrap_or_else(|| vec![1; rank]);
    if strides.len() != rank || strides.contains(&0) {
        return Err(invalid_model(format!("its steps are not of {rank} axes")));
    }
    let goes_back: Vec<bool> = strides.iter().map(|&stride| stride < 0).collect();
    let first: Vec<i64> = goes_back.iter().map(|&back| if back { END } else { 0 }).collect();
    let last: Vec<i64> = goes_back.iter().map(|&back| if back { BEGIN } else { END }).collect();
    let known = (call.ints_if_known("begin")?, call.ints_if_known("end")?);
    let (begins, ends) = if let (Some(begin), Some(end)) = &known {
        if begin.len() != rank || end.len() != rank {
            return Err(invalid_model(format!("its ends are not of {rank} axes")));
        }
        let begins: Vec<i64> = (0..rank)
            .map(|axis| if open_begin[axis] && !squeeze[axis] { first[axis] } else { begin[axis] })
            .collect();
        let end = |axis: usize| match (squeeze[axis], begins[axis]) {
            (true, -1) => END,
            (true, begin) => begin.saturating_add(1),
            _ if open_end[axis] => last[axis],
            _ => end[axis],
        };
        let ends: Vec<i64> = (0..rank).map(end).collect();
        (call.list(&begins)?, call.list(&ends)?)
    } else {
        let (begin, end) = (call.tensor("begin")?, call.tensor("end")?);
        let (first, last) = (call.list(&first)?, call.list(&last)?);
        let opens: Vec<bool> = (0..rank).map(|axis| open_begin[axis] && !squeeze[axis]).collect();
        let (opens, closes) = (call.mask(&opens)?, call.mask(&open_end)?);
        let begins = call.node("Where", &[&opens, &first, &begin.name], []);
        let mut ends = call.node("Where", &[&closes, &last, &end.name], []);
        if squeeze.contains(&true) {
            let (one, minus, never) = (call.whole(1)?, call.whole(-1)?, call.whole(END)?);
            let next = call.node("Add", &[&begins, &one], []);
            let is_last = call.node("Equal", &[&begins, &minus], []);
            let next = call.node("Where", &[&is_last, &never, &next], []);
            let squeezed = call.mask(&squeeze)?;
            ends = call.node("Where", &[&squeezed, &next, &ends], []);
        }
        (begins, ends)
    };
    let whole = |axis: usize| open_begin[axis] && open_end[axis] && !squeeze[axis] && strides[axis] == 1;
    let is_all = |axis: usize| {
        let (Some(begin), Some(end)) = (&known.0, &known.1) else { return false };
        let size = x.ty.shape[axis].map(|size| size as i64);
        let begins = open_begin[axis] || begin[axis] == 0;
        begins && (open_end[axis] || Some(end[axis]) == size) && !squeeze[axis] && strides[axis] == 1
    };
    Ok(Range {
        begins,
        ends,
        squeezed: (0..rank).filter(|&axis| squeeze[axis]).map(|axis| axis as i64).collect(),
        cut: (0..rank).filter(|&axis| !whole(axis) && !is_all(axis)).collect(),
        strides,
    })
}

fn all_axes(rank: usize) -> Vec<i64> {
    (0..rank as i64).collect()
}

fn slice_by_index(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let range = range(call, &x)?;
    let (axes, strides) = (call.list(&all_axes(x.rank()))?, call.list(&range.strides)?);
    let part = call.node("Slice", &[&x.name, &range.begins, &range.ends, &axes, &strides], []);
    single(if range.squeezed.is_empty() { part } else { call.squeeze(&part, &range.squeezed)? })
}

fn slice_by_size(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, begin, size) = (call.tensor("x")?, call.tensor("begin")?, call.tensor("size")?);
    let (minus, never) = (call.whole(-1)?, call.whole(END)?);
    let is_rest = call.node("Equal", &[&size.name, &minus], []);
    let end = call.node("Add", &[&begin.name, &size.name], []);
    let end = call.node("Where", &[&is_rest, &never, &end], []);
    let axes = call.list(&all_axes(x.rank()))?;
    single(call.node("Slice", &[&x.name, &begin.name, &end, &axes], []))
}

/// Elements before and after the slice stay: along each sliced axis, the new part is concatenated with both.
fn slice_update(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, update) = (call.tensor("x")?, call.tensor("update")?);
    let range = range(call, &x)?;
    let mut part = update.name.clone();
    if !range.squeezed.is_empty() && update.rank() < x.rank() {
        part = call.unsqueeze(&part, &range.squeezed)?;
    }
    if range.strides.iter().any(|&stride| stride != 1) {
        return scattered(call, &x, &part, &range);
    }
    let mut around = vec![x.name.clone()];
    let mut ends = Vec::new();
    for &axis in &range.cut {
        let place = call.list(&[axis as i64])?;
        let begin = call.node("Gather", &[&range.begins, &place], []);
        let end = call.node("Gather", &[&range.ends, &place], []);
        let whole = around.last().cloned().unwrap_or_default();
        let inner = call.node("Slice", &[&whole, &begin, &end, &place], []);
        ends.push((place, begin, end));
        around.push(inner);
    }
    for (index, (axis, (place, begin, end))) in range.cut.iter().zip(&ends).enumerate().rev() {
        let whole = around[index].clone();
        let (zero, never) = (call.list(&[0])?, call.list(&[END])?);
        let before = call.node("Slice", &[&whole, &zero, begin, place], []);
        let behind = call.node("Slice", &[&whole, end, &never, place], []);
        part = call.node("Concat", &[&before, &part, &behind], [Attr::Int("axis", *axis as i64)]);
    }
    single(part)
}

/// With steps, elements are replaced individually.
fn scattered(
    call: &mut Call<'_, '_>,
    x: &Operand,
    part: &str,
    range: &Range,
) -> Result<Vec<String>, EngineError> {
    let shape = call.node("Shape", &[&x.name], []);
    let count = call.node("Size", &[&x.name], []);
    let (zero, step) = (call.whole(0)?, call.whole(1)?);
    let places = call.node("Range", &[&zero, &count, &step], []);
    let places = call.node("Reshape", &[&places, &shape], []);
    let (axes, strides) = (call.list(&all_axes(x.rank()))?, call.list(&range.strides)?);
    let places = call.node("Slice", &[&places, &range.begins, &range.ends, &axes, &strides], []);
    let places = call.reshape(&places, &[-1])?;
    let (flat, part) = (call.reshape(&x.name, &[-1])?, call.reshape(part, &[-1])?);
    let whole = call.node("ScatterElements", &[&flat, &places, &part], [Attr::Int("axis", 0)]);
    single(call.node("Reshape", &[&whole, &shape], []))
}

fn crop(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let pair = |call: &Call<'_, '_>, name: &str| {
        let sides = call.steps(name)?.and_then(|sides| <[i64; 2]>::try_from(sides).ok());
        sides.ok_or_else(|| invalid_model(format!("its parameter {name} is not of two sides")))
    };
    let ([top, bottom], [left, right]) = (pair(call, "crop_height")?, pair(call, "crop_width")?);
    let end = |side: i64| if side == 0 { END } else { -side };
    let (begins, ends) = (call.list(&[top, left])?, call.list(&[end(bottom), end(right)])?);
    let axes = call.list(&[-2, -1])?;
    single(call.node("Slice", &[&x.name, &begins, &ends, &axes], []))
}

fn sliding_windows(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let (axis, size, stride) = (x.axis(call.int("axis", 0)?)?, call.int("size", 1)?, call.int("stride", 1)?);
    let length = x.size(axis)?;
    if size < 1 || stride < 1 || size > length {
        return Err(invalid_model(format!("windows of {size} with steps of {stride} do not fit {length}")));
    }
    let count = (length - size) / stride + 1;
    if count.saturating_mul(size) > MAX_PLACES {
        return Err(invalid_model(format!("{count} windows of {size} are more than {MAX_PLACES} places")));
    }
    let places: Vec<i64> =
        (0..count).flat_map(|window| (0..size).map(move |at| window * stride + at)).collect();
    let flat = call.list(&places)?;
    let places = call.reshape(&flat, &[count, size])?;
    single(call.node("Gather", &[&x.name, &places], [Attr::Int("axis", axis as i64)]))
}
