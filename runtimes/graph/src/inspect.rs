//! Reads which files and operators a graph names, before the library reads it.
//!
//! External weights lie in files that the graph names. Names that are not among the Cargo's verified files are rejected: paths that leave
//! the folder, absolute paths, devices. Only the fields that can contain such names are read, by their numbers in `onnx.proto`.

use std::collections::BTreeSet;

use crate::fields::{self, Field};

/// Maximum nesting of graphs.
const MAX_DEPTH: usize = 16;

/// Why a graph is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// It is truncated or not a graph.
    #[error("not an ONNX graph, or truncated")]
    Malformed,
    /// Branches and loops are nested too deep.
    #[error("its graphs are nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// It names a file that the Cargo does not list.
    #[error("its weights lie in {0:?}, which is not among the Cargo's files")]
    Foreign(String),
}

/// Fields of a message that are read, by their content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    SparseTensor,
    Function,
    /// Key and value; the key `location` names a file.
    Entry,
}

impl Kind {
    /// The content of this field, if it can lead to the name of a file.
    fn inside(self, field: u64) -> Option<Self> {
        match (self, field) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Some(Self::Graph),
            (Self::Model, 25) => Some(Self::Function),
            (Self::Graph, 1) | (Self::Function, 7) => Some(Self::Node),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::SparseTensor, 1 | 2) => Some(Self::Tensor),
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Some(Self::SparseTensor),
            (Self::Node, 5) | (Self::Function, 11) => Some(Self::Attribute),
            (Self::Tensor, 13) => Some(Self::Entry),
            _ => None,
        }
    }
}

/// Checks that a graph names only these files.
pub fn check(graph: &[u8], listed: &BTreeSet<&str>) -> Result<(), Distrust> {
    if graph.is_empty() {
        return Err(Distrust::Malformed);
    }
    walk(graph, Kind::Model, listed, 0)
}

/// What a graph computes with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether it quantizes dynamically, so that its numbers depend on all rows of a run.
    pub scales_by_run: bool,
    /// Whether it multiplies integers of 8 bits.
    pub integer_products: bool,
    /// Whether its weights are in half precision.
    pub half: bool,
}

/// Reads what a graph computes with. Returns `None` if it cannot be read.
pub fn needs(graph: &[u8]) -> Option<Needs> {
    let mut needs = Needs::default();
    collect(graph, Kind::Model, 0, &mut needs)?;
    Some(needs)
}

/// Whether a graph quantizes dynamically. True if it cannot be read.
pub fn scales_by_run(graph: &[u8]) -> bool {
    needs(graph).is_none_or(|needs| needs.scales_by_run)
}

/// `TensorProto.DataType` of numbers of half precision.
const HALF: u64 = 10;

fn collect(mut bytes: &[u8], kind: Kind, depth: usize, needs: &mut Needs) -> Option<()> {
    if depth > MAX_DEPTH * 3 + 4 {
        return None;
    }
    while !bytes.is_empty() {
        match (kind, fields::next(&mut bytes)?) {
            (Kind::Node, (4, Field::Bytes(operator))) => {
                // DynamicQuantizeLinear, DynamicQuantizeMatMul, DynamicQuantizeLSTM.
                needs.scales_by_run |= operator.starts_with(b"DynamicQuantize");
                needs.integer_products |= multiplies_integers(operator);
            }
            (Kind::Tensor, (2, Field::Number(HALF))) => needs.half = true,
            (_, (number, Field::Bytes(content))) => match kind.inside(number) {
                None | Some(Kind::Entry) => {}
                Some(inside) => collect(content, inside, depth + 1, needs)?,
            },
            _ => {}
        }
    }
    Some(())
}

/// Whether an operator multiplies integers: MatMulInteger, ConvInteger, QLinearMatMul, QGemm, QAttention, DynamicQuantizeMatMul and others.
fn multiplies_integers(operator: &[u8]) -> bool {
    let operator = String::from_utf8_lossy(operator);
    operator.contains("Integer")
        || ["QLinear", "QGemm", "QAttention", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"]
            .iter()
            .any(|name| operator.starts_with(name))
}

fn walk(mut bytes: &[u8], kind: Kind, listed: &BTreeSet<&str>, depth: usize) -> Result<(), Distrust> {
    // A nested graph is three messages deeper.
    if depth > MAX_DEPTH * 3 + 4 {
        return Err(Distrust::TooDeep);
    }
    let (mut key, mut value) = (&b""[..], &b""[..]);
    while !bytes.is_empty() {
        let (number, field) = fields::next(&mut bytes).ok_or(Distrust::Malformed)?;
        match (kind, number, field) {
            (Kind::Entry, 1, Field::Bytes(content)) => key = content,
            (Kind::Entry, 2, Field::Bytes(content)) => value = content,
            (_, number, Field::Bytes(content)) => {
                if let Some(inside) = kind.inside(number) {
                    walk(content, inside, listed, depth + 1)?;
                }
            }
            _ => {}
        }
    }
    if kind == Kind::Entry && key == b"location" {
        let name = String::from_utf8_lossy(value);
        if !listed.contains(name.trim_start_matches("./")) {
            return Err(Distrust::Foreign(name.chars().take(200).collect()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message of one field with this content.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(content);
        bytes
    }

    fn entry(location: &str) -> Vec<u8> {
        field(13, &[field(1, b"location"), field(2, location.as_bytes())].concat())
    }

    /// A graph with weights in this file, at the top or in a branch.
    fn graph(location: &str, in_branch: bool) -> Vec<u8> {
        let weights = field(5, &entry(location));
        let inner = if in_branch { field(1, &field(5, &field(6, &weights))) } else { weights };
        field(7, &inner)
    }

    #[test]
    fn only_listed_files_may_hold_weights() {
        let listed = BTreeSet::from(["model.onnx_data"]);
        for in_branch in [false, true] {
            assert_eq!(check(&graph("model.onnx_data", in_branch), &listed), Ok(()));
            assert_eq!(check(&graph("./model.onnx_data", in_branch), &listed), Ok(()));
            for hostile in
                ["../model.onnx_data", "/etc/passwd", "x/../../y", "", "model.onnx_data/..", "other"]
            {
                let why = check(&graph(hostile, in_branch), &listed);
                assert_eq!(why, Err(Distrust::Foreign(hostile.to_owned())), "{hostile}");
            }
        }
    }

    #[test]
    fn nesting_is_limited() {
        let mut deep = entry("x");
        for _ in 0..200 {
            deep = field(1, &field(5, &field(6, &deep)));
        }
        assert_eq!(check(&field(7, &deep), &BTreeSet::new()), Err(Distrust::TooDeep));
    }

    #[test]
    fn operators_are_found_in_branches_and_functions() {
        let node = |name: &[u8]| field(1, &field(4, name));
        let model = |node: &[u8]| field(7, node);
        assert!(scales_by_run(&model(&node(b"DynamicQuantizeLinear"))));
        assert!(!scales_by_run(&model(&node(b"QuantizeLinear"))));
        assert!(!scales_by_run(&model(&field(5, &field(8, b"DynamicQuantizeLinear")))));
        let branch = field(1, &field(5, &field(6, &node(b"DynamicQuantizeMatMul"))));
        assert!(scales_by_run(&model(&branch)));
        let function = field(25, &field(7, &field(4, b"DynamicQuantizeLinear")));
        assert!(scales_by_run(&function));
        let whole = model(&node(b"MatMulNBits"));
        assert!(scales_by_run(&whole[..whole.len() - 1]), "a truncated graph counts as scaled");
    }

    #[test]
    fn operators_and_weights_show_what_a_graph_computes_with() {
        let fixtures = std::path::Path::new("../onnx/tests/fixtures");
        let of = |path: &str| needs(&std::fs::read(fixtures.join(path)).expect("a fixture"));
        let none = Needs::default();
        let quantized = Needs { scales_by_run: true, integer_products: true, half: false };
        assert_eq!(of("minilm/model/onnx/model.onnx"), Some(none));
        assert_eq!(of("distilbert-q4/model/onnx/model_q4.onnx"), Some(none), "it multiplies real numbers");
        assert_eq!(of("distilbert-fp16/model/onnx/model_fp16.onnx"), Some(Needs { half: true, ..none }));
        assert_eq!(of("minilm-quantized/model/onnx/model_quantized.onnx"), Some(quantized));
        assert_eq!(needs(&[0xff; 9]), None);
        let multiplies = ["MatMulInteger", "ConvInteger", "QLinearConv", "QGemm", "DynamicQuantizeMatMul"];
        assert!(multiplies.iter().all(|name| multiplies_integers(name.as_bytes())));
        let others =
            ["MatMul", "MatMulNBits", "DequantizeLinear", "DynamicQuantizeLinear", "GatherBlockQuantized"];
        assert!(!others.iter().any(|name| multiplies_integers(name.as_bytes())));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (check(&bytes, &BTreeSet::new()), scales_by_run(&bytes));
        }

        #[test]
        fn truncated_graphs_are_rejected(cut in 1_usize..30) {
            let whole = graph("model.onnx_data", true);
            let listed = BTreeSet::from(["model.onnx_data"]);
            prop_assume!(cut < whole.len());
            prop_assert_eq!(check(&whole[..whole.len() - cut], &listed), Err(Distrust::Malformed));
        }
    }
}
