//! A graph of one node, to find out whether a device computes.

use ort::value::TensorElementType;

/// Elements of its input and output.
pub(crate) const LENGTH: usize = 4;

/// A graph that adds its input to itself. Numbers of fields and types as in `onnx.proto`.
pub(crate) fn doubling(kind: TensorElementType) -> Vec<u8> {
    let kind = if kind == TensorElementType::Float16 { 10 } else { 1 };
    let shape = field(1, &number(1, LENGTH as u8));
    let tensor = [number(1, kind), field(2, &shape)].concat();
    let named = |name: &[u8]| [field(1, name), field(2, &field(1, &tensor))].concat();
    let node = [field(1, b"x"), field(1, b"x"), field(2, b"y"), field(4, b"Add")].concat();
    let graph =
        [field(1, &node), field(2, b"trial"), field(11, &named(b"x")), field(12, &named(b"y"))].concat();
    let opset = number(2, 17);
    [number(1, 8), field(7, &graph), field(8, &opset)].concat()
}

fn number(field: u8, number: u8) -> Vec<u8> {
    vec![field << 3, number]
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).ok().filter(|length| *length < 0x80);
    [&[number << 3 | 2, length.expect("a short message")], content].concat()
}
