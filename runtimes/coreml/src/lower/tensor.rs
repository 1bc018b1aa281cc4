//! Creating, joining, splitting and sorting tensors.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    Table,
    call::{Attr, Call, Operand, single, text},
};
use crate::program::types::Class;

pub(super) const OPERATIONS: Table = &[
    ("argsort", argsort),
    ("band_part", band_part),
    ("concat", concat),
    ("cumsum", cumsum),
    ("fill", fill),
    ("fill_like", fill_like),
    ("non_zero", non_zero),
    ("one_hot", one_hot),
    ("pad", pad),
    ("range_1d", range_1d),
    ("select", select),
    ("split", split),
    ("stack", stack),
    ("tile", tile),
    ("topk", topk),
];

/// Operands with elements of one class: the first output's.
fn alike(call: &mut Call<'_, '_>, operands: &[Operand]) -> Result<Vec<String>, EngineError> {
    let class = call.output(0)?.element.class();
    Ok(operands.iter().map(|operand| call.cast(operand, class)).collect())
}

fn concat(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let values = call.tensors("values")?;
    let axis = call.int("axis", 0)?;
    let mut names = alike(call, &values)?;
    if values[0].rank() == 0 {
        names = names.iter().map(|name| call.unsqueeze(name, &[0])).collect::<Result<_, _>>()?;
    }
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    if !call.flag("interleave", false)? {
        return single(call.node("Concat", &refs, [Attr::Int("axis", axis)]));
    }
    let place = values[0].axis(axis)?;
    let stacked = stacked(call, &names, place as i64 + 1)?;
    let mut shape: Vec<i64> = (0..values[0].rank()).map(|_| 0).collect();
    shape[place] = -1;
    // Behind the axis, sizes are shifted by one: they are taken from the program.
    for (other, size) in shape.iter_mut().enumerate().skip(place + 1) {
        *size = values[0].size(other)?;
    }
    single(call.reshape(&stacked, &shape)?)
}

fn stacked(call: &mut Call<'_, '_>, names: &[String], axis: i64) -> Result<String, EngineError> {
    let wide = names
        .iter()
        .map(|name| call.unsqueeze(name, &[axis]))
        .collect::<Result<Vec<String>, EngineError>>()?;
    let refs: Vec<&str> = wide.iter().map(String::as_str).collect();
    Ok(call.node("Concat", &refs, [Attr::Int("axis", axis)]))
}

fn stack(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (values, axis) = (call.tensors("values")?, call.int("axis", 0)?);
    let names = alike(call, &values)?;
    single(stacked(call, &names, axis)?)
}

fn split(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, axis, sizes) = (call.tensor("x")?, call.int("axis", 0)?, call.ints("split_sizes")?);
    let count = call.operation.outputs.len();
    match sizes {
        Some(sizes) if sizes.len() == count => {
            let sizes = call.list(&sizes)?;
            Ok(call.nodes("Split", &[&x.name, &sizes], [Attr::Int("axis", axis)], count))
        }
        Some(_) => Err(invalid_model("its number of parts differs from its results")),
        None => {
            let set = [Attr::Int("axis", axis), Attr::Int("num_outputs", count as i64)];
            Ok(call.nodes("Split", &[&x.name], set, count))
        }
    }
}

fn select(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (which, a, b) = (call.tensor("cond")?, call.tensor("a")?, call.tensor("b")?);
    let which = call.cast(&which, Class::Bool);
    let class = call.output(0)?.element.class();
    if class == Class::Bool {
        let (a, b) = (call.cast(&a, Class::Int), call.cast(&b, Class::Int));
        let chosen = call.node("Where", &[&which, &a, &b], []);
        return single(call.cast_name(&chosen, Class::Bool));
    }
    let (a, b) = (call.cast(&a, class), call.cast(&b, class));
    single(call.node("Where", &[&which, &a, &b], []))
}

fn tile(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, times) = (call.tensor("x")?, call.tensor("reps")?);
    single(call.node("Tile", &[&x.name, &times.name], []))
}

fn cumsum(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, axis) = (call.tensor("x")?, call.int("axis", 0)?);
    let axis = call.whole(axis)?;
    let set = [
        Attr::Int("exclusive", i64::from(call.flag("exclusive", false)?)),
        Attr::Int("reverse", i64::from(call.flag("reverse", false)?)),
    ];
    single(call.node("CumSum", &[&x.name, &axis], set))
}

fn fill(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let shape = call.tensor("shape")?;
    let value = value(call)?;
    single(call.node("Expand", &[&value, &shape.name], []))
}

fn fill_like(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let model = call.tensor("ref_tensor")?;
    let shape = call.node("Shape", &[&model.name], []);
    let value = value(call)?;
    single(call.node("Expand", &[&value, &shape], []))
}

fn value(call: &mut Call<'_, '_>) -> Result<String, EngineError> {
    match call.optional("value")? {
        Some(value) => Ok(value.name),
        None => call.real(0.0),
    }
}

fn range_1d(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (start, end, step) = (call.tensor("start")?, call.tensor("end")?, call.tensor("step")?);
    let names = alike(call, &[start, end, step])?;
    single(call.node("Range", &[&names[0], &names[1], &names[2]], []))
}

fn non_zero(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let places = call.node("NonZero", &[&x.name], []);
    single(call.transpose(&places, vec![1, 0]))
}

fn one_hot(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (indices, size) = (call.tensor("indices")?, call.tensor("one_hot_vector_size")?);
    let axis = call.int("axis", -1)?;
    let class = call.output(0)?.element.class();
    let (off, on) = (call.float("off_value", 0.0)?, call.float("on_value", 1.0)?);
    let (off, on) = (call.number(class, off)?, call.number(class, on)?);
    let values = [call.unsqueeze(&off, &[0])?, call.unsqueeze(&on, &[0])?];
    let values = call.node("Concat", &[&values[0], &values[1]], [Attr::Int("axis", 0)]);
    single(call.node("OneHot", &[&indices.name, &size.name, &values], [Attr::Int("axis", axis)]))
}

fn band_part(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, lower, upper) = (call.tensor("x")?, call.int("lower", -1)?, call.int("upper", -1)?);
    let mut name = x.name;
    if lower >= 0 {
        let diagonal = call.whole(-lower)?;
        name = call.node("Trilu", &[&name, &diagonal], [Attr::Int("upper", 1)]);
    }
    if upper >= 0 {
        let diagonal = call.whole(upper)?;
        name = call.node("Trilu", &[&name, &diagonal], [Attr::Int("upper", 0)]);
    }
    single(name)
}

/// Padding is given for the last axes only, each with its start and its end.
fn pad(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let mode = match call.choice("mode", &["constant", "reflect", "replicate"])? {
        "replicate" => "edge",
        "reflect" => "reflect",
        _ => "constant",
    };
    let pads = if let Some(pads) = call.ints_if_known("pad")? {
        let count = pads.len() / 2;
        let first = x.rank().checked_sub(count).filter(|_| pads.len() % 2 == 0);
        let first = first
            .ok_or_else(|| invalid_model(format!("it has {} paddings for {} axes", pads.len(), x.rank())))?;
        let mut all = vec![0; 2 * x.rank()];
        for (axis, [begin, end]) in pads.as_chunks::<2>().0.iter().enumerate() {
            (all[first + axis], all[first + axis + x.rank()]) = (*begin, *end);
        }
        call.list(&all)?
    } else {
        let pads = call.tensor("pad")?;
        let pairs = call.reshape(&pads.name, &[-1, 2])?;
        let turned = call.transpose(&pairs, vec![1, 0]);
        call.reshape(&turned, &[-1])?
    };
    if mode != "constant" {
        return single(call.node("Pad", &[&x.name, &pads], [text("mode", mode)]));
    }
    let value = call.float("constant_val", 0.0)?;
    let value = call.number(x.class(), value)?;
    single(call.node("Pad", &[&x.name, &pads, &value], []))
}

fn argsort(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, axis, ascending) = (call.tensor("x")?, call.int("axis", -1)?, call.flag("ascending", false)?);
    let count = length(call, &x, axis)?;
    let set = [Attr::Int("axis", axis), Attr::Int("largest", i64::from(!ascending))];
    Ok(call.nodes("TopK", &[&x.name, &count], set, 2).split_off(1))
}

/// The size of an axis, as a list of one number.
fn length(call: &mut Call<'_, '_>, x: &Operand, axis: i64) -> Result<String, EngineError> {
    let shape = call.node("Shape", &[&x.name], []);
    let place = call.list(&[x.axis(axis)? as i64])?;
    Ok(call.node("Gather", &[&shape, &place], []))
}

fn topk(call: &mut Call<'_, '_>) -> Result<Vec<String>, EngineError> {
    let (x, axis, ascending) = (call.tensor("x")?, call.int("axis", -1)?, call.flag("ascending", false)?);
    let count = match call.ints_if_known("k")? {
        Some(count) if count.first() == Some(&-1) => length(call, &x, axis)?,
        Some(count) => call.list(&[count.first().copied().unwrap_or(1)])?,
        None => match call.optional("k")? {
            Some(count) => call.reshape(&count.name, &[1])?,
            None => call.list(&[1])?,
        },
    };
    let set = [Attr::Int("axis", axis), Attr::Int("largest", i64::from(!ascending))];
    Ok(call.nodes("TopK", &[&x.name, &count], set, 2))
}
