//! Resizing.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand, single, text, unsupported},
};

pub(super) const OPERATIONS: Table = &[
    ("resize", resize),
    ("resize_bilinear", resize_bilinear),
    ("resize_nearest_neighbor", resize_nearest),
    ("upsample_bilinear", upsample_bilinear),
    ("upsample_nearest_neighbor", upsample_nearest),
];

/// How positions of the result correspond to positions in `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Corners,
    Edges,
    Middles,
    /// Centers of steps between corners, which ONNX lacks.
    Offset,
}

impl Match {
    fn of(mode: &str) -> Result<Self, EngineError> {
        Ok(match mode {
            "STRICT_ALIGN_CORNERS" | "ALIGN_CORNERS" => Self::Corners,
            "DEFAULT" => Self::Edges,
            "UNALIGN_CORNERS" => Self::Middles,
            "OFFSET_CORNERS" => Self::Offset,
            _ => return Err(unsupported("sampling_mode", mode)),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Corners => "align_corners",
            Self::Edges | Self::Offset => "asymmetric",
            Self::Middles => "half_pixel",
        }
    }
}

/// Resizes the last two axes: `to` is a vector of two sizes, or of two factors.
fn resized(
    call: &mut Call<'_, '_>,
    x: &Operand,
    to: &str,
    is_factor: bool,
    how: &[Attr],
) -> Result<Vec<String>, EngineError> {
    let mut name = x.name.clone();
    // The library resizes only tensors of three and four axes.
    let lifts = x.rank() == 3;
    if lifts {
        name = call.unsqueeze(&name, &[0])?;
    } else if x.rank() != 4 {
        return Err(invalid_model(format!("it resizes a tensor of {} axes", x.rank())));
    }
    let mut set = how.to_vec();
    set.push(Attr::Ints("axes", vec![2, 3]));
    let inputs = if is_factor { vec![name.as_str(), "", to] } else { vec![name.as_str(), "", "", to] };
    let resized = call.node("Resize", &inputs, set);
    single(if lifts { call.squeeze(&resized, &[0])? } else { resized })
}

fn nearest() -> [Attr; 3] {
    [
        text("mode", "nearest"),
        text("coordinate_transformation_mode", "asymmetric"),
        text("nearest_mode", "floor"),
    ]
}

fn linear(how: Match) -> [Attr; 2] {
    [text("mode", "linear"), text("coordinate_transformation_mode", how.name())]
}

fn factors(call: &mut Call<'_, '_>) -> Result<[f32; 2], EngineError> {
    Ok([call.float("scale_factor_height", 1.0)?, call.float("scale_factor_width", 1.0)?])
}

fn upsample_nearest(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, factors) = (call.tensor("x")?, factors(call)?);
    let to = call.array(&[2], factors.to_vec())?;
    resized(call, &x, &to, true, &nearest())
}

fn upsample_bilinear(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, [height, width]) = (call.tensor("x")?, factors(call)?);
    let corners = call.flag("align_corners", true)?;
    let how = match (corners, call.flag("half_pixel_centers", !corners)?) {
        (true, _) => Match::Corners,
        (_, true) => Match::Middles,
        _ => Match::Edges,
    };
    let rank = x.rank();
    let sizes = rank.checked_sub(2).and_then(|first| x.size(first).ok().zip(x.size(first + 1).ok()));
    // The factors are computed from the sizes, as where the model was created.
    if let Some((rows, columns)) = sizes {
        let whole = |size: i64, factor: f32| (size as f32 * factor).floor() as i64;
        let to = call.list(&[whole(rows, height), whole(columns, width)])?;
        resized(call, &x, &to, false, &linear(how))
    } else {
        let to = call.array(&[2], vec![height, width])?;
        resized(call, &x, &to, true, &linear(how))
    }
}

fn target(call: &mut Call<'_, '_>) -> Result<[i64; 2], EngineError> {
    Ok([call.int("target_size_height", 1)?, call.int("target_size_width", 1)?])
}

fn resize_nearest(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, sizes) = (call.tensor("x")?, target(call)?);
    let to = call.list(&sizes)?;
    resized(call, &x, &to, false, &nearest())
}

fn resize_bilinear(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, sizes) = (call.tensor("x")?, target(call)?);
    let mode = call.str_param("sampling_mode", "DEFAULT")?;
    let how = Match::of(&mode)?;
    if how == Match::Offset || (mode == "ALIGN_CORNERS" && sizes.contains(&1)) {
        return by_matrices(call, &x, how, sizes);
    }
    let to = call.list(&sizes)?;
    resized(call, &x, &to, false, &linear(how))
}

/// A matrix on each side, for positions that ONNX cannot describe.
fn by_matrices(
    call: &mut Call<'_, '_>,
    x: &Operand,
    how: Match,
    [height, width]: [i64; 2],
) -> Result<Vec<String>, EngineError> {
    let first = x.rank().checked_sub(2).ok_or_else(|| invalid_model("it resizes a tensor of one axis"))?;
    let (rows, columns) = (x.size(first)?, x.size(first + 1)?);
    let left = shares(how, rows, height)?;
    let right = shares(how, columns, width)?;
    let left = call.array(&[height as u64, rows as u64], left)?;
    let right = call.array(&[width as u64, columns as u64], right)?;
    let right = call.transpose(&right, vec![1, 0]);
    let down = call.node("MatMul", &[&left, &x.name], []);
    single(call.node("MatMul", &[&down, &right], []))
}

/// The weight of each position in `x` for each position of the result.
fn shares(how: Match, from: i64, to: i64) -> Result<Vec<f32>, EngineError> {
    if from < 1 || to < 1 || from.saturating_mul(to) > 1 << 26 {
        return Err(invalid_model(format!("it resizes {from} to {to}")));
    }
    let (step, begin) = match how {
        Match::Corners if to == 1 => (0.0, (from - 1) as f32 / 2.0),
        Match::Corners => ((from - 1) as f32 / (to - 1) as f32, 0.0),
        _ => {
            let step = (from - 1).max(1) as f32 / to as f32;
            (step, 0.5 * step)
        }
    };
    let mut weights = vec![0.0; (from * to) as usize];
    for at in 0..to {
        let place = (begin + at as f32 * step).clamp(0.0, (from - 1) as f32);
        let (low, share) = (place.floor() as i64, place - place.floor());
        weights[(at * from + low) as usize] += 1.0 - share;
        weights[(at * from + (low + 1).min(from - 1)) as usize] += share;
    }
    Ok(weights)
}

fn resize(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    if call.int("resized_dims", 2)? != 2 {
        return Err(invalid_model("it resizes more or fewer than the last two axes"));
    }
    let mode = call.str_param("sampling_mode", "DEFAULT")?;
    let how = Match::of(&mode)?;
    let is_nearest =
        call.choice("interpolation_mode", &["LINEAR", "NEAREST_NEIGHBOR"])? == "NEAREST_NEIGHBOR";
    let first = x.rank().checked_sub(2).ok_or_else(|| invalid_model("it resizes a tensor of one axis"))?;
    let to = if let Some(sizes) = call.ints_if_known("shape")? {
        let last = sizes.last_chunk::<2>().copied().ok_or_else(|| invalid_model("its shape is too short"))?;
        let size = |axis: usize| if last[axis] == 0 { x.size(first + axis) } else { Ok(last[axis]) };
        let sizes = [size(0)?, size(1)?];
        if !is_nearest && (how == Match::Offset || (mode == "ALIGN_CORNERS" && sizes.contains(&1))) {
            return by_matrices(call, &x, how, sizes);
        }
        call.list(&sizes)?
    } else {
        let shape = call.tensor("shape")?;
        let (begin, end) = (call.list(&[-2])?, call.list(&[i64::MAX])?);
        call.node("Slice", &[&shape.name, &begin, &end], [])
    };
    if is_nearest {
        return resized(call, &x, &to, false, &nearest());
    }
    resized(call, &x, &to, false, &linear(how))
}
