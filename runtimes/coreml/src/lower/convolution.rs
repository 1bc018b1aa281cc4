//! Convolutions and pooling.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand, single, text},
};

pub(super) const OPERATIONS: Table = &[
    ("avg_pool", avg_pool),
    ("conv", conv),
    ("conv_transpose", conv_transpose),
    ("l2_pool", l2_pool),
    ("max_pool", |call| one_pool(call, "MaxPool", Vec::new())),
];

/// Sizes along each spatial axis: as given, or ones.
fn along(call: &Call<'_, '_>, name: &str, count: usize) -> Result<Vec<i64>, EngineError> {
    let sizes = call.steps(name)?.unwrap_or_else(|| vec![1; count]);
    if sizes.len() != count {
        return Err(invalid_model(format!(
            "its parameter {name} has {} sizes for {count} axes",
            sizes.len()
        )));
    }
    Ok(sizes)
}

/// Number of spatial axes.
fn space(x: &Operand) -> Result<usize, EngineError> {
    x.rank()
        .checked_sub(2)
        .filter(|&count| count > 0)
        .ok_or_else(|| invalid_model("its input has no spatial axes"))
}

/// The kind of padding.
fn pad_type(call: &Call<'_, '_>) -> Result<&'static str, EngineError> {
    call.choice("pad_type", &["valid", "custom", "same", "same_lower"])
}

/// Padding: ONNX has all starts before all ends.
fn edges(call: &Call<'_, '_>, count: usize) -> Result<Vec<Attr>, EngineError> {
    Ok(match pad_type(call)? {
        "same" => vec![text("auto_pad", "SAME_UPPER")],
        "same_lower" => vec![text("auto_pad", "SAME_LOWER")],
        "custom" => vec![Attr::Ints("pads", custom(call, count)?)],
        _ => Vec::new(),
    })
}

/// Padding that keeps the size with dilation, which the library does not compute.
fn spread(
    call: &Call<'_, '_>,
    x: &Operand,
    weight: &Operand,
    count: usize,
) -> Result<Option<Vec<i64>>, EngineError> {
    let (strides, dilations) = (along(call, "strides", count)?, along(call, "dilations", count)?);
    let mode = pad_type(call)?;
    if !mode.starts_with("same") || dilations.iter().all(|&dilation| dilation == 1) {
        return Ok(None);
    }
    let mut pads = vec![0; 2 * count];
    for axis in 0..count {
        let (stride, reach) = (strides[axis].max(1), (weight.size(axis + 2)? - 1) * dilations[axis]);
        // The remainder of the last step is irrelevant with a stride of 1.
        let left = if stride == 1 { 0 } else { (x.size(axis + 2)? - 1) % stride };
        let surplus = (reach - left).max(0);
        let less = surplus / 2;
        let (begin, end) = if mode == "same_lower" { (surplus - less, less) } else { (less, surplus - less) };
        (pads[axis], pads[axis + count]) = (begin, end);
    }
    Ok(Some(pads))
}

fn custom(call: &Call<'_, '_>, count: usize) -> Result<Vec<i64>, EngineError> {
    let pads = call.steps("pad")?.unwrap_or_else(|| vec![0; 2 * count]);
    if pads.len() != 2 * count {
        return Err(invalid_model(format!("it has {} paddings for {count} axes", pads.len())));
    }
    let (begins, ends): (Vec<i64>, Vec<i64>) =
        pads.as_chunks::<2>().0.iter().map(|[begin, end]| (*begin, *end)).unzip();
    Ok(begins.into_iter().chain(ends).collect())
}

fn conv(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, weight, bias) = (call.tensor("x")?, call.tensor("weight")?, call.optional("bias")?);
    let count = space(&x)?;
    let mut set = vec![
        Attr::Ints("strides", along(call, "strides", count)?),
        Attr::Ints("dilations", along(call, "dilations", count)?),
        Attr::Int("group", call.step("groups", 1)?),
    ];
    set.extend(match spread(call, &x, &weight, count)? {
        Some(pads) => vec![Attr::Ints("pads", pads)],
        None => edges(call, count)?,
    });
    let inputs: Vec<&str> =
        [&x, &weight].into_iter().chain(&bias).map(|operand| operand.name.as_str()).collect();
    single(call.node("Conv", &inputs, set))
}

fn conv_transpose(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, weight, bias) = (call.tensor("x")?, call.tensor("weight")?, call.optional("bias")?);
    let count = space(&x)?;
    let (strides, dilations) = (along(call, "strides", count)?, along(call, "dilations", count)?);
    let pad_type = pad_type(call)?;
    let mut pads = match pad_type {
        "custom" => custom(call, count)?,
        _ => vec![0; 2 * count],
    };
    let mut more = vec![0; count];
    let is_same = pad_type.starts_with("same");
    let wanted = call.steps("output_shape")?;
    for axis in 0..count {
        let kernel = (weight.size(axis + 2)? - 1) * dilations[axis] + 1;
        let natural = |size: i64| (size - 1) * strides[axis] + kernel - pads[axis] - pads[axis + count];
        let surplus = match &wanted {
            Some(sizes) => {
                let size = sizes.len().checked_sub(count - axis).and_then(|place| sizes.get(place)).copied();
                natural(x.size(axis + 2)?)
                    - size.ok_or_else(|| invalid_model("its output_shape is too short"))?
            }
            None if is_same => kernel - strides[axis],
            None => 0,
        };
        if surplus > 0 {
            pads[axis] += surplus / 2;
            pads[axis + count] += surplus - surplus / 2;
        } else {
            more[axis] = -surplus;
        }
    }
    let set = [
        Attr::Ints("strides", strides),
        Attr::Ints("dilations", dilations),
        Attr::Int("group", call.step("groups", 1)?),
        Attr::Ints("pads", pads),
        Attr::Ints("output_padding", more),
    ];
    let inputs: Vec<&str> =
        [&x, &weight].into_iter().chain(&bias).map(|operand| operand.name.as_str()).collect();
    single(call.node("ConvTranspose", &inputs, set))
}

fn one_pool(call: &mut Call<'_, '_>, kind: &str, mut set: Vec<Attr>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let count = space(&x)?;
    set.push(Attr::Ints("kernel_shape", along(call, "kernel_sizes", count)?));
    set.push(Attr::Ints("strides", along(call, "strides", count)?));
    set.push(Attr::Int("ceil_mode", i64::from(call.flag("ceil_mode", false)?)));
    set.extend(edges(call, count)?);
    single(call.node(kind, &[&x.name], set))
}

fn avg_pool(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let counts_edges = !call.flag("exclude_padding_from_average", false)?;
    one_pool(call, "AveragePool", vec![Attr::Int("count_include_pad", i64::from(counts_edges))])
}

fn l2_pool(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    one_pool(call, "LpPool", vec![Attr::Int("p", 2)])
}
