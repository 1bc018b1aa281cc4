//! Comparison of arrays: inputs and outputs of graphs.

use std::{fs, path::Path};

use island_runtimes_graph::tensor_trace::TracedTensor;
use serde_json::Value;

use super::{Case, Fixture};

/// Maximum difference of a number, divided by one plus its magnitude.
const TOLERANCE: f32 = 1e-3;

/// An array in numpy's format.
pub(super) struct Array {
    shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

/// Where the recorded tensors differ from the reference's.
pub(crate) fn tensors_differ(fixture: &Fixture, case: &Case, seen: &[TracedTensor]) -> Vec<String> {
    let mut wrong = Vec::new();
    // Several texts are batched differently from the reference.
    if case.input.get("input").is_some_and(Value::is_array) {
        return wrong;
    }
    for (name, file) in case.tensors.iter().chain(&case.raw) {
        // Spans that a mask removes may have any position.
        if name == "span_idx" {
            continue;
        }
        let wanted = read(&fixture.folder.join(file));
        match seen.iter().find(|seen| seen.name == *name) {
            None => wrong.push(format!("no graph has {name}")),
            Some(got) => wrong.extend(differs(&wanted, got).map(|why| format!("{name} {why}"))),
        }
    }
    wrong
}

/// Of a smaller reference, only the leading corner of an array is compared.
fn differs(wanted: &Array, got: &TracedTensor) -> Option<String> {
    let sides = || wanted.shape.iter().zip(&got.shape);
    if wanted.shape.len() != got.shape.len() || sides().any(|(wanted, got)| wanted > got) {
        return Some(format!("has the shape {:?}, not {:?}", got.shape, wanted.shape));
    }
    let mut most = (0.0, 0.0, 0.0);
    for (index, &number) in wanted.values.iter().enumerate() {
        let (mut rest, mut place, mut step) = (index, 0, 1);
        for (&wanted, &got) in sides().rev() {
            place += rest % wanted * step;
            rest /= wanted;
            step *= got;
        }
        let apart = (number - got.values[place]).abs() / (1.0 + number.abs());
        if !(apart <= most.0) {
            most = (apart, number, got.values[place]);
        }
    }
    (most.0 > TOLERANCE || most.0.is_nan()).then(|| format!("has {} for {}", most.2, most.1))
}

/// The array of a file.
pub(super) fn read(path: &Path) -> Array {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(bytes.starts_with(b"\x93NUMPY\x01"), "{} is not an array", path.display());
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let (header, data) = (String::from_utf8_lossy(&bytes[10..end]).into_owned(), &bytes[end..]);
    let between = |from: &str, to: char| {
        let rest = header.split(from).nth(1).unwrap_or_default();
        rest.split(to).next().unwrap_or_default().to_owned()
    };
    let sides = between("'shape': (", ')');
    let shape = sides.split(',').filter_map(|side| side.trim().parse().ok()).collect();
    let values = match between("'descr': '", '\'').as_str() {
        "<f4" => numbers(data, f32::from_le_bytes),
        "<f8" => numbers(data, |word| f64::from_le_bytes(word) as f32),
        "<i8" => numbers(data, |word| i64::from_le_bytes(word) as f32),
        "<i4" => numbers(data, |word| i32::from_le_bytes(word) as f32),
        "|b1" | "|u1" => data.iter().map(|&byte| f32::from(byte)).collect(),
        other => panic!("{} holds {other}", path.display()),
    };
    Array { shape, values }
}

fn numbers<const N: usize>(data: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    data.chunks_exact(N).map(|word| number(word.try_into().expect("as many bytes"))).collect()
}
