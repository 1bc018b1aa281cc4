//! Changes of shape.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand, single, text},
};

pub(super) const OPERATIONS: Table = &[
    ("batch_to_space", batch_to_space),
    ("depth_to_space", |call| spread(call, "block_size", "DCR")),
    ("expand_dims", expand_dims),
    ("flatten2d", flatten2d),
    ("pixel_shuffle", |call| spread(call, "upscale_factor", "CRD")),
    ("pixel_unshuffle", pixel_unshuffle),
    ("reshape", reshape),
    ("reshape_like", reshape_like),
    ("reverse", reverse),
    ("reverse_sequence", reverse_sequence),
    ("shape", |call| {
        let x = call.tensor("x")?;
        single(call.node("Shape", &[&x.name], []))
    }),
    ("space_to_batch", space_to_batch),
    ("space_to_depth", space_to_depth),
    ("squeeze", squeeze),
    ("transpose", transpose),
];

fn transpose(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, order) = (call.tensor("x")?, call.ints("perm")?.unwrap_or_default());
    let order =
        order.into_iter().map(|axis| x.axis(axis).map(|place| place as i64)).collect::<Result<_, _>>()?;
    single(call.transpose(&x.name, order))
}

fn expand_dims(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, axes) = (call.tensor("x")?, call.ints("axes")?.unwrap_or_default());
    single(call.unsqueeze(&x.name, &axes)?)
}

fn squeeze(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    match call.ints("axes")? {
        // Axes longer than one are unchanged.
        Some(axes) => {
            let places =
                axes.iter().map(|&axis| x.axis(axis)).collect::<Result<Vec<usize>, EngineError>>()?;
            let squeezed = places.into_iter().filter(|&place| x.ty.shape[place].is_none_or(|size| size == 1));
            let axes: Vec<i64> = squeezed.map(|place| place as i64).collect();
            single(call.squeeze(&x.name, &axes)?)
        }
        None => single(call.node("Squeeze", &[&x.name], [])),
    }
}

fn flatten2d(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, axis) = (call.tensor("x")?, call.int("axis", 1)?);
    single(call.node("Flatten", &[&x.name], [Attr::Int("axis", axis)]))
}

/// A zero stands for the existing size, counted from the last axis.
fn reshape(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let Some(sizes) = call.ints_if_known("shape")? else {
        let shape = call.tensor("shape")?;
        return single(call.node("Reshape", &[&x.name, &shape.name], []));
    };
    if sizes.len() == x.rank() || !sizes.contains(&0) {
        return single(call.reshape(&x.name, &sizes)?);
    }
    let there = call.node("Shape", &[&x.name], []);
    let mut parts = Vec::with_capacity(sizes.len());
    for (index, &size) in sizes.iter().enumerate() {
        let from = (x.rank() + index).checked_sub(sizes.len());
        parts.push(match (size, from) {
            (0, Some(from)) => {
                let place = call.list(&[from as i64])?;
                call.node("Gather", &[&there, &place], [])
            }
            (0, None) => call.list(&[1])?,
            _ => call.list(&[size])?,
        });
    }
    let shape = joined(call, &parts);
    single(call.node("Reshape", &[&x.name, &shape], []))
}

fn joined(call: &mut Call<'_, '_>, parts: &[String]) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    call.node("Concat", &parts, [Attr::Int("axis", 0)])
}

fn reshape_like(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, models) = (call.tensor("x")?, call.tensors("ref_tensors")?);
    let all = |call: &Call<'_, '_>, name: &str| call.each_int(name);
    let (begins, ends) = (all(call, "begins")?, all(call, "ends")?);
    let open = call.each_flag("end_masks")?;
    let mut parts = Vec::with_capacity(models.len());
    for (index, model) in models.iter().enumerate() {
        let missing = || invalid_model("the range of its shapes is missing");
        let begin = *begins.get(index).ok_or_else(missing)?;
        let end = if open.get(index).copied().unwrap_or(false) {
            i64::MAX
        } else {
            *ends.get(index).ok_or_else(missing)?
        };
        let shape = call.node("Shape", &[&model.name], []);
        let (begin, end) = (call.list(&[begin])?, call.list(&[end])?);
        parts.push(call.node("Slice", &[&shape, &begin, &end], []));
    }
    let shape = joined(call, &parts);
    single(call.node("Reshape", &[&x.name, &shape], []))
}

fn reverse(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let axes = call.ints("axes")?.unwrap_or_else(|| (0..x.rank() as i64).collect());
    single(backwards(call, &x.name, &axes)?)
}

/// Reverses the order along these axes.
pub(super) fn backwards(call: &mut Call<'_, '_>, name: &str, axes: &[i64]) -> Result<String, EngineError> {
    let same = |number: i64| vec![number; axes.len()];
    let (begins, ends) = (call.list(&same(-1))?, call.list(&same(i64::MIN + 1))?);
    let (steps, axes) = (call.list(&same(-1))?, call.list(axes)?);
    Ok(call.node("Slice", &[name, &begins, &ends, &axes, &steps], []))
}

fn reverse_sequence(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, lengths) = (call.tensor("x")?, call.tensor("lengths")?);
    let (time, batch) = (x.axis(call.int("seq_axis", 0)?)?, x.axis(call.int("batch_axis", 0)?)?);
    if time + batch != 1 {
        return Err(invalid_model("sequences lie along other axes than the first two"));
    }
    let set = [Attr::Int("time_axis", time as i64), Attr::Int("batch_axis", batch as i64)];
    single(call.node("ReverseSequence", &[&x.name, &lengths.name], set))
}

fn spread(call: &mut Call<'_, '_>, parameter: &str, mode: &str) -> Result<Vec<String>, EngineError> {
    let (x, size) = (call.tensor("x")?, call.step(parameter, 1)?);
    single(call.node("DepthToSpace", &[&x.name], [Attr::Int("blocksize", size), text("mode", mode)]))
}

fn space_to_depth(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, size) = (call.tensor("x")?, call.step("block_size", 1)?);
    single(call.node("SpaceToDepth", &[&x.name], [Attr::Int("blocksize", size)]))
}

/// The product of sizes.
fn product(sizes: &[i64]) -> Result<i64, EngineError> {
    let product = sizes.iter().try_fold(1_i64, |product, &size| product.checked_mul(size));
    product.ok_or_else(|| invalid_model(format!("{sizes:?} multiplied are too large for a tensor")))
}

/// Sizes of a tensor of four axes. An error if one is unknown.
fn four(x: &Operand) -> Result<[i64; 4], EngineError> {
    if x.rank() != 4 {
        return Err(invalid_model(format!("it works on {} axes, not four", x.rank())));
    }
    Ok([x.size(0)?, x.size(1)?, x.size(2)?, x.size(3)?])
}

fn pixel_unshuffle(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, by) = (call.tensor("x")?, call.step("downscale_factor", 1)?.max(1));
    let [batch, channels, height, width] = four(&x)?;
    let apart = call.reshape(&x.name, &[batch, channels, height / by, by, width / by, by])?;
    let turned = call.transpose(&apart, vec![0, 1, 3, 5, 2, 4]);
    let channels = product(&[channels, by, by])?;
    single(call.reshape(&turned, &[batch, channels, height / by, width / by])?)
}

fn blocks(call: &Call<'_, '_>, edges: &str) -> Result<([i64; 2], [i64; 4]), EngineError> {
    let pair = call.steps("block_shape")?.and_then(|sizes| <[i64; 2]>::try_from(sizes).ok());
    let sides = call.steps(edges)?.and_then(|sizes| <[i64; 4]>::try_from(sizes).ok());
    let pair = pair.filter(|pair| pair.iter().all(|&size| size > 0));
    pair.zip(sides).ok_or_else(|| invalid_model("its blocks are not of two axes"))
}

fn space_to_batch(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let ([down, across], [top, bottom, left, right]) = blocks(call, "paddings")?;
    let [batch, channels, height, width] = four(&x)?;
    let pads = call.list(&[0, 0, top, left, 0, 0, bottom, right])?;
    let wide = call.node("Pad", &[&x.name, &pads], []);
    let (height, width) = ((height + top + bottom) / down, (width + left + right) / across);
    let apart = call.reshape(&wide, &[batch, channels, height, down, width, across])?;
    let turned = call.transpose(&apart, vec![3, 5, 0, 1, 2, 4]);
    let batch = product(&[batch, down, across])?;
    single(call.reshape(&turned, &[batch, channels, height, width])?)
}

fn batch_to_space(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let ([down, across], [top, bottom, left, right]) = blocks(call, "crops")?;
    let [batch, channels, height, width] = four(&x)?;
    let batch = batch / (down * across);
    let apart = call.reshape(&x.name, &[down, across, batch, channels, height, width])?;
    let turned = call.transpose(&apart, vec![2, 3, 4, 0, 5, 1]);
    let whole = call.reshape(&turned, &[batch, channels, height * down, width * across])?;
    let begins = call.list(&[top, left])?;
    let ends = call.list(&[height * down - bottom, width * across - right])?;
    let axes = call.list(&[2, 3])?;
    single(call.node("Slice", &[&whole, &begins, &ends, &axes], []))
}
