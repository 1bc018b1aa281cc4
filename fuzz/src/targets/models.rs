//! Files of models.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Cursor,
    path::PathBuf,
};

use island_runtimes_coreml::{lower::graph, package::Package};
use island_runtimes_diffusers::weights::{Element, Weights};
use island_runtimes_graph::inspect;
use island_runtimes_llmcpp::gguf::Header;

use super::file;
use crate::corpus::parts;

/// A GGUF file, before llama.cpp reads it. Its tensors lie in it.
pub(super) fn gguf(input: &[u8]) -> bool {
    let Ok(header) = Header::read(Cursor::new(input), input.len() as u64) else { return false };
    let layers = header.layer_bytes().iter().sum::<u64>();
    assert!(layers + header.other_bytes() <= input.len() as u64, "tensors are larger than their file");
    let _ = header.entry("general.architecture");
    true
}

/// A safetensors file. Its tensors lie in it and are read.
pub(super) fn safetensors(input: &[u8]) -> bool {
    let path = file("model.safetensors", input);
    let Ok(weights) = Weights::open("unet", &[("model.safetensors".to_owned(), path)]) else { return false };
    for name in weights.names() {
        let _ = weights.shape(name).expect("a tensor has a shape");
        for element in [Element::F16, Element::F32] {
            let place = weights.place(name, element);
            let end = place.map_or(0, |place| place.offset + place.length as u64);
            assert!(end <= input.len() as u64, "{name} lies outside of its file");
        }
        let _ = weights.tensor(name);
    }
    let _ = weights.numbers();
    true
}

/// An ONNX graph, before ONNX Runtime reads it.
pub(super) fn onnx(input: &[u8]) -> bool {
    let checked = inspect::check(input, &BTreeSet::from(["model.onnx_data", "weights.bin"]));
    let needs = inspect::needs(input);
    assert_eq!(inspect::scales_by_run(input), needs.is_none_or(|needs| needs.scales_by_run));
    checked.is_ok()
}

/// A WebAssembly program, before it is compiled.
pub(super) fn program(input: &[u8]) -> bool {
    island_runtimes_wasm::inspect::inspect(input).is_ok()
}

/// A Core ML package: the model, and its file of weights. Every function is lowered to a graph.
pub(super) fn coreml_package(input: &[u8]) -> bool {
    let [model, weights] = parts(input);
    lower_all(BTreeMap::from([
        ("model.mlmodel".to_owned(), file("model.mlmodel", model)),
        ("weights/weight.bin".to_owned(), file("weight.bin", weights)),
    ]))
}

/// A compiled Core ML model: its program as text, weights and metadata. Every function is lowered to a graph.
pub(super) fn coreml_compiled(input: &[u8]) -> bool {
    let [program, weights, metadata] = parts(input);
    let mut files = BTreeMap::from([
        ("model.mil".to_owned(), file("model.mil", program)),
        ("weights/weight.bin".to_owned(), file("weight.bin", weights)),
    ]);
    if !metadata.is_empty() {
        files.insert("metadata.json".to_owned(), file("metadata.json", metadata));
    }
    lower_all(files)
}

fn lower_all(files: BTreeMap<String, PathBuf>) -> bool {
    let Ok(package) = Package::open(&files, None) else { return false };
    let _ = package.interface(&package.default_function);
    for (name, function) in &package.program.functions {
        let _ = package.interface(name);
        let _ = graph::lower(function, &package.weights);
    }
    true
}
