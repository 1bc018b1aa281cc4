//! Weights that several sessions of one graph share.
//!
//! The library keeps weights once for each session, and again in the layout of its matrix products. Weights that it receives as tensors
//! remain with the caller, and their second layout is shared through a container.

use std::{collections::BTreeSet, sync::Arc};

use crate::fields::{self, Field};
use half::f16;
use ort::{
    session::builder::{PrepackedWeights, SessionBuilder},
    value::{DynValue, PrimitiveTensorElementType, Tensor},
};

/// Smaller tensors stay in the graph: shapes and constants, which the library folds.
const SMALLEST: usize = 1024;

/// An external file, by the name that the graph uses.
pub(crate) type File = (String, Arc<[u8]>);

/// Weights of a graph that its sessions share.
#[derive(Debug)]
pub(crate) struct Weights {
    tensors: Vec<(String, Arc<DynValue>)>,
    packed: PrepackedWeights,
    /// Bytes of weights that cannot be shared.
    pub(crate) left: usize,
}

/// Location and type of a tensor's elements, from the graph.
#[derive(Debug, Default)]
struct Described<'b> {
    name: String,
    shape: Vec<i64>,
    kind: u64,
    bytes: Option<&'b [u8]>,
    location: String,
    offset: usize,
    length: Option<usize>,
}

impl Weights {
    /// The large weights of a graph, with external ones. Returns `None` for a graph with nested graphs, in which a name can have another
    /// meaning.
    pub(crate) fn of(graph: &[u8], files: &[File]) -> Option<Self> {
        let (mut tensors, mut left, mut names) = (Vec::new(), 0, BTreeSet::new());
        for (field, content) in messages(graph)? {
            if field != 7 {
                continue;
            }
            for (field, content) in messages(content)? {
                match field {
                    1 if has_graphs(content)? => return None,
                    5 => {
                        let described = Described::of(content)?;
                        let bytes = described.bytes(files).unwrap_or_default();
                        if bytes.len() < SMALLEST {
                            continue;
                        }
                        match described.tensor(bytes).filter(|_| names.insert(described.name.clone())) {
                            Some(tensor) => tensors.push((described.name, Arc::new(tensor))),
                            None => left += bytes.len(),
                        }
                    }
                    _ => {}
                }
            }
        }
        Some(Self { tensors, packed: PrepackedWeights::new(), left })
    }

    /// Adds them to a session builder.
    pub(crate) fn lend(&self, builder: SessionBuilder) -> ort::Result<SessionBuilder> {
        let mut builder = builder.with_prepacked_weights(&self.packed)?;
        for (name, tensor) in &self.tensors {
            builder = builder.with_initializer(name, Arc::clone(tensor))?;
        }
        Ok(builder)
    }
}

impl<'b> Described<'b> {
    /// From the numbers of its fields in `onnx.proto`.
    fn of(message: &'b [u8]) -> Option<Self> {
        let mut described = Self::default();
        for (number, field) in fields::all(message)? {
            match (number, field) {
                (1, Field::Number(size)) => described.shape.push(i64::try_from(size).ok()?),
                (1, Field::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        described.shape.push(i64::try_from(fields::varint(&mut packed)?).ok()?);
                    }
                }
                (2, Field::Number(kind)) => described.kind = kind,
                (8, Field::Bytes(name)) => described.name = String::from_utf8_lossy(name).into_owned(),
                (9, Field::Bytes(bytes)) => described.bytes = Some(bytes),
                (13, Field::Bytes(entry)) => described.elsewhere(entry)?,
                _ => {}
            }
        }
        Some(described)
    }

    fn elsewhere(&mut self, entry: &[u8]) -> Option<()> {
        let (mut key, mut value) = (&b""[..], String::new());
        for (number, content) in messages(entry)? {
            match number {
                1 => key = content,
                _ => value = String::from_utf8_lossy(content).into_owned(),
            }
        }
        match key {
            b"location" => self.location = value,
            b"offset" => self.offset = value.parse().ok()?,
            b"length" => self.length = Some(value.parse().ok()?),
            _ => {}
        }
        Some(())
    }

    /// Its elements, wherever they lie.
    fn bytes<'f: 'b>(&self, files: &'f [File]) -> Option<&'b [u8]> {
        if self.location.is_empty() {
            return self.bytes;
        }
        let location = self.location.trim_start_matches("./");
        let (_, file) = files.iter().find(|(name, _)| name == location)?;
        let rest = file.get(self.offset..)?;
        self.length.map_or(Some(rest), |length| rest.get(..length))
    }

    /// A tensor of them, if the type is supported and the length matches the shape.
    fn tensor(&self, bytes: &[u8]) -> Option<DynValue> {
        match self.kind {
            1 => self.of_kind(bytes, f32::from_le_bytes),
            2 => self.of_kind(bytes, u8::from_le_bytes),
            3 => self.of_kind(bytes, i8::from_le_bytes),
            10 => self.of_kind(bytes, f16::from_le_bytes),
            _ => None,
        }
    }

    fn of_kind<T, const N: usize>(&self, bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Option<DynValue>
    where
        T: PrimitiveTensorElementType + Clone + std::fmt::Debug + 'static,
    {
        let count = self
            .shape
            .iter()
            .try_fold(1_usize, |count, &size| count.checked_mul(usize::try_from(size).ok()?))?;
        let (elements, rest) = bytes.as_chunks::<N>();
        if elements.len() != count || !rest.is_empty() {
            return None;
        }
        let elements: Vec<T> = elements.iter().map(|&element| read(element)).collect();
        Tensor::from_array((self.shape.clone(), elements)).ok().map(Tensor::into_dyn)
    }
}

/// The fields of a message that contain bytes.
fn messages(message: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let of_bytes = |(number, field)| match field {
        Field::Bytes(content) => Some((number, content)),
        _ => None,
    };
    Some(fields::all(message)?.into_iter().filter_map(of_bytes).collect())
}

/// Whether a node has branches or a loop.
fn has_graphs(node: &[u8]) -> Option<bool> {
    for (_, attribute) in messages(node)?.into_iter().filter(|(field, _)| *field == 5) {
        if messages(attribute)?.iter().any(|(field, _)| matches!(field, 6 | 11)) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::prelude::*;

    use super::*;
    use crate::library;

    fn fixture(path: &str) -> Vec<u8> {
        let fixtures = Path::new("../onnx/tests/fixtures");
        fs::read(fixtures.join(path)).expect("a fixture")
    }

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("a small message");
        [&[number << 3 | 2, length as u8 | 0x80, (length >> 7) as u8][..], content].concat()
    }

    /// A graph of one `f32` tensor with this shape and number of bytes.
    fn graph(shape: u8, length: usize, inside: &[u8]) -> Vec<u8> {
        let tensor = [&[1 << 3, shape, 2 << 3, 1][..], &bytes(8, b"w"), &bytes(9, &vec![0; length])].concat();
        bytes(7, &[bytes(5, &tensor), inside.to_vec()].concat())
    }

    #[test]
    fn weights_of_a_model_are_shared() {
        library::open().expect("the library");
        for (path, least) in [
            ("minilm/model/onnx/model.onnx", 40_000),
            ("minilm-quantized/model/onnx/model_quantized.onnx", 5_000),
        ] {
            let weights = Weights::of(&fixture(path), &[]).expect("a graph");
            let sizes = weights
                .tensors
                .iter()
                .map(|(_, tensor)| tensor.dtype().tensor_shape().expect("a tensor").iter().product::<i64>());
            let elements: i64 = sizes.sum();
            assert!(elements * 4 > least, "{path}: {elements}");
            assert_eq!(weights.left, 0, "{path}");
        }
    }

    #[test]
    fn invalid_tensors_are_left_to_the_library() {
        library::open().expect("the library");
        let shared =
            |graph: &[u8]| Weights::of(graph, &[]).map(|weights| (weights.tensors.len(), weights.left));
        assert_eq!(shared(&graph(100, 400, &[])), Some((0, 0)), "too small to matter");
        assert_eq!(shared(&graph(100, 2000, &[])), Some((0, 2000)));
        let twice = |length| [graph(100, length, &[]), graph(100, length, &[])].concat();
        assert_eq!(shared(&twice(2000)), Some((0, 4000)));
        let branch = bytes(1, &bytes(5, &bytes(6, &[])));
        assert_eq!(shared(&graph(100, 2000, &branch)), None);
    }

    #[test]
    fn external_weights_are_found() {
        library::open().expect("the library");
        let entry = |key: &[u8], value: &[u8]| bytes(13, &[bytes(1, key), bytes(2, value)].concat());
        let elsewhere = [entry(b"location", b"data"), entry(b"offset", b"8"), entry(b"length", b"1600")];
        // 100 × 4 numbers of 4 bytes.
        let tensor =
            [&[1 << 3, 100, 1 << 3, 4, 2 << 3, 1][..], &bytes(8, b"w"), &elsewhere.concat()].concat();
        let graph = bytes(7, &bytes(5, &tensor));
        let shared = |length: usize| {
            let files = [("data".to_owned(), Arc::from(vec![0_u8; length]))];
            Weights::of(&graph, &files).map(|weights| weights.tensors.len())
        };
        assert_eq!(shared(1608), Some(1));
        assert_eq!(shared(1607), Some(0), "truncated");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            library::open().expect("the library");
            let _ = Weights::of(&bytes, &[]);
        }
    }
}
