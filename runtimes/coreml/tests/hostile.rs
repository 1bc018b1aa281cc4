//! Malicious files: each is rejected with a message, quickly, and without allocating what it only claims.
#![expect(unsafe_code, reason = "a global allocator is unsafe to implement")]

#[path = "coreml/support/mod.rs"]
mod support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use island_runtimes_coreml::{
    lower::{self, graph},
    model::{Model as _, Tensor},
    package::Package,
    portable::Portable,
    program::{
        Argument, Operation, Program,
        types::{Element, TensorType, ValueType},
        value::{Data, Value},
    },
    proto::{
        self,
        model::{ArrayType, FeatureKind},
    },
    runtime::{CoreMl, Settings},
    text,
};
use island_runtimes_graph::{Resources, library};
use island_runtimes_kit::error::EngineError;
use ndarray::{ArrayD, IxDyn};
use prost::Message as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use support::Fixture;

/// Maximum bytes of one allocation while reading a file of some kilobytes.
const MAX_AT_ONCE: usize = 80 << 20;
const PROGRAM: &str = "Data/com.apple.CoreML/model.mlmodel";
const BLOBS: &str = "Data/com.apple.CoreML/weights/weight.bin";

static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with a record of the largest allocation.
struct Watched;

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

fn within_bounds() {
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(largest <= MAX_AT_ONCE, "one allocation had {largest} bytes");
}

/// A copy of a fixture's package, for changes.
struct PackageCopy {
    folder: tempfile::TempDir,
    name: String,
}

impl PackageCopy {
    fn of(fixture: &str, name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, from) in Fixture::named(fixture).files() {
            if path.starts_with(&format!("{name}/")) {
                let to = folder.path().join(&path);
                fs::create_dir_all(to.parent().expect("a folder")).expect("made");
                fs::write(&to, fs::read(from).expect("readable")).expect("written");
            }
        }
        Self { folder, name: name.to_owned() }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(&self.name).join(inside)
    }

    fn read(&self, inside: &str) -> Vec<u8> {
        fs::read(self.path(inside)).expect("readable")
    }

    /// In a new file: some file systems wait for the disk where an old one is overwritten.
    fn write(&self, inside: &str, bytes: &[u8]) {
        let _ = fs::remove_file(self.path(inside));
        fs::write(self.path(inside), bytes).expect("written");
    }

    fn files(&self) -> BTreeMap<String, PathBuf> {
        let inside = ["Manifest.json", PROGRAM, BLOBS];
        let known = inside.into_iter().filter(|inside| self.path(inside).is_file());
        known.map(|inside| (format!("{}/{inside}", self.name), self.path(inside))).collect()
    }

    fn open(&self) -> Result<Package, EngineError> {
        Package::open(&self.files(), None)
    }

    /// Parses and lowers every function.
    fn lower(&self) -> Result<(), EngineError> {
        lowered(&self.open()?)
    }
}

fn lowered(package: &Package) -> Result<(), EngineError> {
    for (name, function) in &package.program.functions {
        package.interface(name)?;
        let lowered = graph::lower(function, &package.weights)?;
        assert!(!lowered.model.is_empty());
    }
    Ok(())
}

/// The message of an error, which must not be empty.
fn error_message<T>(result: Result<T, EngineError>) -> Option<String> {
    let failure = result.err()?;
    assert!(!failure.message().trim().is_empty());
    Some(failure.message())
}

/// Changes some bytes: usually one is replaced, so that lengths remain valid; otherwise some are removed or repeated.
fn mutated(bytes: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.random_range(1..3) {
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..12) {
            0 => {
                bytes.remove(at);
            }
            1 => bytes.insert(at, random.random()),
            2 => {
                let end = (at + random.random_range(1..16)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3..6 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)],
            _ => bytes[at] ^= 1 << random.random_range(0..8),
        }
    }
    bytes
}

#[test]
fn truncated_program_is_rejected() {
    let package = PackageCopy::of("operations", "control.mlpackage");
    let bytes = package.read(PROGRAM);
    for length in 0..bytes.len() {
        // A message may end after one of its fields: then it lacks something.
        if let Ok(model) = proto::read::model(&bytes[..length])
            && let Some(program) = model.program
        {
            let _ = proto::read::program(program);
        }
    }
    package.write(PROGRAM, &bytes[..bytes.len() / 2]);
    let why = error_message(package.lower()).expect("refused");
    assert!(why.contains("not a Core ML model") || why.contains("no ML program"), "{why}");
    within_bounds();
}

#[test]
fn changed_programs_are_rejected_or_run() {
    let mut random = StdRng::seed_from_u64(6);
    let (mut refused, mut taken) = (0, 0);
    for (fixture, name, times) in [
        ("operations", "tensors.mlpackage", 200),
        ("operations", "arrangement.mlpackage", 200),
        ("operations", "pictures.mlpackage", 100),
        ("operations", "convolutions.mlpackage", 200),
        ("operations", "control.mlpackage", 400),
        ("operations", "recurrence.mlpackage", 100),
        ("operations", "slices.mlpackage", 200),
        ("compressed", "sparse-tables.mlpackage", 200),
        ("compressed", "palette-4.mlpackage", 200),
        ("compressed", "blocks-int4.mlpackage", 200),
    ] {
        let package = PackageCopy::of(fixture, name);
        let bytes = package.read(PROGRAM);
        package.lower().expect("lowered as it is");
        for _ in 0..times {
            package.write(PROGRAM, &mutated(&bytes, &mut random));
            if error_message(package.lower()).is_some() { refused += 1 } else { taken += 1 }
        }
    }
    println!("{refused} refused, {taken} taken");
    assert!(refused > 500, "only {refused} were refused");
    within_bounds();
}

#[test]
fn changed_numbers_in_a_program_are_rejected_or_lowered() {
    const EXTREME: [i64; 10] =
        [i64::MIN, i64::MIN + 1, -(1 << 31), -1, 0, 1 << 20, 1 << 32, 1 << 62, i64::MAX - 1, i64::MAX];
    let mut random = StdRng::seed_from_u64(7);
    for name in
        ["tensors", "arrangement", "pictures", "convolutions", "pools", "slices", "places", "recurrence"]
    {
        let whole = PackageCopy::of("operations", &format!("{name}.mlpackage"));
        let package = whole.open().expect("opens");
        for _ in 0..250 {
            let mut changed = package.program.clone();
            for function in changed.functions.values_mut() {
                let constants = function.block.operations.iter_mut();
                let values = constants.flat_map(|operation| operation.attributes.values_mut());
                for value in values {
                    change(value, &EXTREME, &mut random);
                }
                let outputs =
                    function.block.operations.iter_mut().flat_map(|operation| &mut operation.outputs);
                for output in outputs {
                    if let ValueType::Tensor(tensor) = &mut output.ty
                        && random.random_range(0..40) == 0
                    {
                        stretch(tensor, &mut random);
                    }
                }
            }
            for function in changed.functions.values() {
                let _ = error_message(graph::lower(function, &package.weights));
            }
        }
    }
    within_bounds();
}

#[test]
fn operations_with_wrong_arguments_are_rejected_or_lowered() {
    let mut random = StdRng::seed_from_u64(11);
    let kinds = lower::operations();
    let (mut refused, mut taken) = (0, 0);
    for name in [
        "tensors",
        "arrangement",
        "pictures",
        "convolutions",
        "products",
        "slices",
        "places",
        "quantisation", // The name of a fixture. words: ok
        "detection",
    ] {
        let whole = PackageCopy::of("operations", &format!("{name}.mlpackage"));
        let package = whole.open().expect("opens");
        let main = &package.program.functions["main"];
        let names: Vec<String> = main
            .block
            .operations
            .iter()
            .flat_map(|operation| &operation.outputs)
            .map(|output| output.name.clone())
            .collect();
        for _ in 0..300 {
            let mut changed = main.clone();
            let steps: Vec<usize> = (0..changed.block.operations.len())
                .filter(|&at| changed.block.operations[at].kind != "const")
                .collect();
            for _ in 0..2 {
                let operation = &mut changed.block.operations[steps[random.random_range(0..steps.len())]];
                let parameters: Vec<String> = operation.inputs.keys().cloned().collect();
                let one = || parameters.first().cloned();
                match (random.random_range(0..7), one()) {
                    (0, _) => kinds[random.random_range(0..kinds.len())].clone_into(&mut operation.kind),
                    (1 | 2, Some(_)) => {
                        operation.inputs.remove(&parameters[random.random_range(0..parameters.len())]);
                    }
                    (3..6, Some(_)) => {
                        let other = Argument::Name(names[random.random_range(0..names.len())].clone());
                        operation.inputs.insert(
                            parameters[random.random_range(0..parameters.len())].clone(),
                            vec![other],
                        );
                    }
                    _ => {
                        operation.outputs.pop();
                    }
                }
            }
            if error_message(graph::lower(&changed, &package.weights)).is_some() {
                refused += 1;
            } else {
                taken += 1;
            }
        }
    }
    println!("{refused} refused, {taken} taken");
    assert!(refused > 300 && taken > 200, "{refused} refused, {taken} taken");
    within_bounds();
}

fn change(value: &mut Value, extreme: &[i64], random: &mut StdRng) {
    if random.random_range(0..20) != 0 {
        return;
    }
    match &mut value.data {
        Data::Ints(ints) => {
            for int in ints.iter_mut() {
                *int = extreme[random.random_range(0..extreme.len())];
            }
        }
        Data::Floats(floats) => floats
            .iter_mut()
            .for_each(|float| *float = [f32::NAN, f32::INFINITY, -1e38][random.random_range(0..3)]),
        Data::Bools(flags) => flags.iter_mut().for_each(|flag| *flag = random.random()),
        Data::Texts(texts) => texts.iter_mut().for_each(|text| text.push('x')),
        _ => {}
    }
}

fn stretch(tensor: &mut TensorType, random: &mut StdRng) {
    match random.random_range(0..3) {
        0 => tensor.shape = vec![Some(1 << 32); random.random_range(0..6)],
        1 => tensor.shape.iter_mut().for_each(|size| *size = None),
        _ => tensor.shape.iter_mut().for_each(|size| *size = Some(0)),
    }
}

#[test]
fn changed_texts_are_rejected_or_lowered() {
    let mut random = StdRng::seed_from_u64(8);
    let mut refused = 0;
    for (fixture, file, times) in [
        ("larger", "Model.new.mil", 900),
        ("larger", "Model.old.mil", 600),
        ("depth", "Model.new.mil", 900),
        ("whisper-encoder", "Model.new.mil", 200),
    ] {
        let fixture = Fixture::named(fixture);
        let source = fs::read(fixture.folder.join(file)).expect("readable");
        let package = Package::open(&fixture.files(), None).expect("opens");
        for _ in 0..times {
            let changed = String::from_utf8_lossy(&mutated(&source, &mut random)).into_owned();
            match text::parse(&changed) {
                Err(error) => {
                    assert!(error.line > 0 && !error.why.is_empty());
                    refused += 1;
                }
                Ok(Program { functions }) => {
                    for function in functions.values() {
                        let _ = error_message(graph::lower(function, &package.weights));
                    }
                }
            }
        }
        for length in (0..source.len()).step_by(7) {
            assert!(text::parse(&String::from_utf8_lossy(&source[..length])).is_err(), "{length} bytes");
        }
    }
    assert!(refused > 500, "only {refused} were refused");
    within_bounds();
}

#[test]
fn changed_files_of_weights_are_rejected_or_read() {
    let mut random = StdRng::seed_from_u64(9);
    let package = PackageCopy::of("compressed", "sparse-scaled.mlpackage");
    let bytes = package.read(BLOBS);
    for length in (0..bytes.len()).step_by(61) {
        package.write(BLOBS, &bytes[..length]);
        error_message(package.lower()).expect("refused");
    }
    for _ in 0..600 {
        let mut changed = bytes.clone();
        // Headers lie every few blocks: all of them are hit.
        let at = random.random_range(0..changed.len() / 64) * 64 + random.random_range(0..32);
        changed[at] = random.random();
        package.write(BLOBS, &changed);
        let _ = error_message(package.lower());
    }
    // A header with the maximum counts.
    let at = bytes.windows(4).position(|word| word == 0xDEAD_BEEF_u32.to_le_bytes()).expect("a head");
    for (field, claim) in [(8, u64::MAX), (16, u64::MAX), (8, 1 << 40), (16, 1 << 62), (8, 0)] {
        let mut changed = bytes.clone();
        changed[at + field..at + field + 8].copy_from_slice(&claim.to_le_bytes());
        package.write(BLOBS, &changed);
        let why = error_message(package.lower()).expect("refused");
        assert!(why.contains("the blob at"), "{why}");
    }
    within_bounds();
}

/// A program of one function with these operations and the output `y`.
fn program(operations: &str) -> String {
    format!("program(1.0)\n{{ func main<ios18>(tensor<fp32, [2, 3]> x) {{\n{operations}\n}} -> (y); }}")
}

fn refusal(operations: &str) -> String {
    let program = text::parse(&program(operations)).unwrap_or_else(|error| panic!("{error}: {operations}"));
    let weights = island_runtimes_coreml::package::weights::Weights::new(String::new(), &BTreeMap::new());
    error_message(graph::lower(&program.functions["main"], &weights))
        .unwrap_or_else(|| panic!("lowered: {operations}"))
}

#[test]
fn invalid_programs_are_rejected_with_a_reason() {
    let name = |kind: &str| format!(r#"tensor<fp32, [2, 3]> y = {kind}(x = x)[name = string("y")];"#);
    for kind in [
        "random_normal",
        "random_uniform",
        "make_list",
        "list_read",
        "conv_quantized",
        "call",
        "no_such_thing",
    ] {
        assert!(refusal(&name(kind)).contains(&format!("{kind:?}")), "{}", refusal(&name(kind)));
    }
    // A value that depends on itself, and two that depend on each other.
    assert!(
        refusal(r#"tensor<fp32, [2, 3]> y = relu(x = y)[name = string("y")];"#)
            .contains("before it is defined")
    );
    let circle = r#"tensor<fp32, [2, 3]> a = relu(x = b)[name = string("a")];
        tensor<fp32, [2, 3]> b = relu(x = a)[name = string("b")];
        tensor<fp32, [2, 3]> y = relu(x = b)[name = string("y")];"#;
    assert!(refusal(circle).contains("\"b\""));
    let packed = r#"tensor<fp32, [2, 3]> w = constexpr_blockwise_shift_scale(data = w, scale = w)[name = string("w")];
        tensor<fp32, [2, 3]> y = add(x = x, y = w)[name = string("y")];"#;
    assert!(refusal(packed).contains("more than 3 times over"), "{}", refusal(packed));
    for outside in
        ["../../../etc/passwd", "/etc/passwd", "@model_path/../weight.bin", "@model_path//etc/passwd"]
    {
        let blob = format!(
            r#"tensor<fp32, [2, 3]> w = const()[name = string("w"), val = tensor<fp32, [2, 3]>(BLOBFILE(path = string("{outside}"), offset = uint64(64)))];
            tensor<fp32, [2, 3]> y = add(x = x, y = w)[name = string("y")];"#
        );
        assert!(refusal(&blob).contains("not among the Cargo's files"), "{}", refusal(&blob));
    }
    for (kind, parameter, value) in [
        ("gelu", "mode", "ERF"),
        ("pad", "mode", "wrap"),
        ("resample", "coordinates_mode", "pixels"),
        ("resample", "sampling_mode", "bicubic"),
        ("resample", "padding_mode", "wrap"),
    ] {
        let chosen = format!(
            r#"string m = const()[name = string("m"), val = string("{value}")];
            tensor<fp32, [2, 3]> y = {kind}(x = x, coordinates = x, {parameter} = m)[name = string("y")];"#
        );
        let why = refusal(&chosen);
        let wanted = format!("{kind} \"y\": its parameter {parameter} = {value:?} is not supported");
        assert!(why.contains(&wanted), "{why}");
    }
    let many = format!("tensor<fp32, [{}]> y = relu(x = x)[name = string(\"y\")];", ["1"; 17].join(", "));
    let error = text::parse(&program(&many)).expect_err("refused");
    assert!(error.why.contains("more than 16 dimensions"), "{error}");
    let large = format!("tensor<fp32, [{}]> y = relu(x = x)[name = string(\"y\")];", 1_u64 << 62);
    assert!(text::parse(&program(&large)).expect_err("refused").why.contains("not a size"));
    within_bounds();
}

#[test]
fn claimed_sizes_are_not_allocated() {
    let claim = |operation: &str| {
        let given = format!("{operation}[name = string(\"y\")];");
        text::parse(&program(&given)).map_or_else(|error| error.why, |_| refusal(&given))
    };
    let windows = claim(
        "tensor<fp32, [4294967296]> z = relu(x = x)[name = string(\"z\")];\ntensor<fp32, [2, 3]> y = sliding_windows(x = z, axis = int32(0), size = int32(2000000000))",
    );
    assert!(windows.contains("windows"), "{windows}");
    let resized = claim(
        "tensor<fp32, [2, 3]> y = resize_bilinear(x = x, target_size_height = int32(2147483647), target_size_width = int32(2147483647), sampling_mode = string(\"OFFSET_CORNERS\"))",
    );
    assert!(resized.contains("resizes"), "{resized}");
    let norm = claim(
        "tensor<fp32, [2, 4294967296, 1]> z = relu(x = x)[name = string(\"z\")];\ntensor<fp32, [2, 3]> y = instance_norm(x = z)",
    );
    assert!(norm.contains("more than"), "{norm}");
    let crop = claim(
        "tensor<fp32, [1, 1, 2, 3]> z = relu(x = x)[name = string(\"z\")];\ntensor<fp32, [2, 3]> y = affine(x = z, transform_matrix = x, output_height = int32(1000000), output_width = int32(1000000))",
    );
    assert!(crop.contains("plane"), "{crop}");
    let stride = claim(
        "tensor<fp32, [1, 1, 2, 3]> z = relu(x = x)[name = string(\"z\")];\ntensor<fp32, [2, 3]> y = conv(x = z, weight = z, strides = tensor<int32, [2]>([2000000000, 1]))",
    );
    assert!(stride.contains("strides"), "{stride}");
    let state = "program(1.0)\n{ func main<ios18>(tensor<fp32, [2]> x, state<tensor<fp16, [65536, 65536]>> s) {\ntensor<fp32, [2]> y = relu(x = x)[name = string(\"y\")];\n} -> (y); }";
    let state = text::parse(state).expect("reads");
    let weights = island_runtimes_coreml::package::weights::Weights::new(String::new(), &BTreeMap::new());
    let why = error_message(graph::lower(&state.functions["main"], &weights)).expect("refused");
    assert!(why.contains("states"), "{why}");
    within_bounds();
}

#[test]
fn weights_that_expand_beyond_their_files_are_rejected() {
    let scalar = |element| ValueType::Tensor(TensorType::scalar(element));
    let tensor = |element, shape: &[u64]| {
        ValueType::Tensor(TensorType { element, shape: shape.iter().map(|&size| Some(size)).collect() })
    };
    let side = 2048_u64;
    let mut program =
        text::parse(&program("tensor<fp32, [2, 3]> y = relu(x = x)[name = string(\"y\")];")).expect("reads");
    let function = program.functions.get_mut("main").expect("main");
    let weight = Value {
        ty: tensor(Element::F32, &[side, side]),
        data: Data::Floats(vec![0.5; (side * side) as usize]),
    };
    let named =
        |name: &str, ty: ValueType| island_runtimes_coreml::program::Named { name: name.to_owned(), ty };
    function.block.operations.push(Operation {
        kind: "const".to_owned(),
        outputs: vec![named("w", weight.ty.clone())],
        attributes: BTreeMap::from([("val".to_owned(), weight)]),
        ..Operation::default()
    });
    for at in 0..64 {
        function.block.operations.push(Operation {
            kind: "linear".to_owned(),
            inputs: BTreeMap::from([
                ("x".to_owned(), vec![Argument::Name("x".to_owned())]),
                ("weight".to_owned(), vec![Argument::Name("w".to_owned())]),
            ]),
            outputs: vec![named(&format!("z{at}"), scalar(Element::F32))],
            ..Operation::default()
        });
    }
    let weights = island_runtimes_coreml::package::weights::Weights::new(String::new(), &BTreeMap::new());
    let why = error_message(graph::lower(&program.functions["main"], &weights)).expect("refused");
    assert!(why.contains("accounts for"), "{why}");
}

#[test]
fn deeply_nested_programs_are_rejected() {
    for opening in ["list<", "dict<string, ", "tuple<", "state<"] {
        let deep = format!("program(1.0)\n{{ func main<ios18>({}", opening.repeat(200_000));
        assert!(text::parse(&deep).is_err());
    }
    let brackets =
        program(&format!("tensor<fp32, [1]> y = relu(x = tensor<fp32, [1]>({}", "[".repeat(200_000)));
    assert!(text::parse(&brackets).expect_err("refused").why.contains("deeper"));
    // Nested messages: a type that is a list of a list of a list.
    let mut message = Vec::new();
    for _ in 0..50_000 {
        message = field(1, &field(2, &message));
        if message.len() > 1 << 20 {
            break;
        }
    }
    let function = field(1, &field(2, &message));
    let program = field(2, &[field(1, b"main"), field(2, &function)].concat());
    let model = [vec![0x08, 9], vec![0xb2, 0x1f], length(program.len()), program].concat();
    let refused = proto::read::model(&model).expect_err("refused");
    assert!(refused.message().contains("not a Core ML model"), "{}", refused.message());
    within_bounds();
}

fn length(mut length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while length > 0x7f {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes
}

/// A field that contains bytes or a message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2], length(content.len()), content.to_vec()].concat()
}

#[test]
fn other_kinds_of_models_are_rejected_by_name() {
    let file = |name: &str, bytes: &[u8]| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, bytes).expect("written");
        let files = BTreeMap::from([(name.to_owned(), path)]);
        error_message(Package::open(&files, None)).expect("refused")
    };
    let older = |number: u32, content: &[u8]| {
        let tag = length((number << 3 | 2) as usize);
        [vec![0x08, 4], tag, length(content.len()), content.to_vec()].concat()
    };
    assert!(file("M.mlmodel", &older(500, b"\x0a\x00")).contains("a NeuralNetwork"));
    assert!(file("M.mlmodel", &older(403, b"")).contains("a NeuralNetwork"));
    assert!(file("M.mlmodel", &older(202, b"")).contains("a pipeline"));
    assert!(file("M.mlmodel", &older(402, b"")).contains("trees"));
    assert!(file("M.mlmodel", &[]).contains("no ML program"));
    assert!(file("M.mlmodel", b"\xff\xff\xff").contains("not a Core ML model"));
    assert!(file("M.aimodel", b"x").contains(".aimodel"));
    assert!(file("M.aimodel/main.bin", b"x").contains(".aimodel"));
    assert!(file("M.mlmodelc/model.espresso.net", b"x").contains("NeuralNetwork"));
    assert!(file("M.mlmodelc/model.mil", b"\xff\xfe").contains("not text"));
    assert!(file("M.mlpackage/Manifest.json", b"[[[[").contains("not JSON"));
    assert!(file("M.mlpackage/Manifest.json", b"{}").contains("names no model"));
    let escape =
        br#"{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "../../../etc/passwd"}}}"#;
    assert!(file("M.mlpackage/Manifest.json", escape).contains("lacks"));
}

/// The error of loading a fixture's model after changes of the inputs in its description.
async fn described(name: &str, change: impl Fn(&mut ArrayType)) -> Option<String> {
    let fixture = Fixture::named(name);
    let mut files = fixture.files();
    let program = files.iter().find(|(path, _)| path.ends_with(PROGRAM)).expect("a program");
    let (path, bytes) = (program.0.clone(), fs::read(program.1).expect("readable"));
    let mut model = proto::read::model(&bytes).expect("a model");
    for feature in model.description.iter_mut().flat_map(|description| &mut description.input) {
        if let Some(FeatureKind::Array(array)) = feature.r#type.as_mut().and_then(|ty| ty.kind.as_mut()) {
            change(array);
        }
    }
    let changed = tempfile::NamedTempFile::new().expect("a file");
    fs::write(changed.path(), model.encode_to_vec()).expect("written");
    files.insert(path, changed.path().to_owned());
    let mut engine = fixture.engine.clone();
    engine["task"] = fixture.task.clone().into();
    let cargo = json!({ "slug": name, "runtime_type": "coreml", "engine": engine });
    let cargo = serde_json::from_value(cargo).expect("a Cargo");
    error_message(CoreMl::load(Settings { files, cargo, slots: 1, threads: 1, uses_gpu: false }).await)
}

#[tokio::test]
async fn inputs_without_a_bound_are_rejected() {
    assert_eq!(described("llama", |_| {}).await, None);
    let endless = |array: &mut ArrayType| {
        array.shape.iter_mut().for_each(|size| *size = 1 << 40);
        array.shape_range = None;
        array.enumerated_shapes = None;
    };
    let why = described("llama", endless).await.expect("refused");
    assert!(why.contains("tokens at once"), "{why}");
    within_bounds();
}

fn run(package: &Package, input: Tensor) -> Result<(), EngineError> {
    let environment = library::open().expect("the library");
    let model = Portable::load(package, "main", environment, Resources::cpu(1))?;
    let mut state = model.start()?;
    model.run(vec![("x".to_owned(), input)], &mut state).map(drop)
}

#[test]
fn changed_models_that_lower_do_not_crash_the_library() {
    let mut random = StdRng::seed_from_u64(10);
    let package = PackageCopy::of("compressed", "palette-4.mlpackage");
    let bytes = package.read(PROGRAM);
    let mut tried = 0;
    for _ in 0..600 {
        package.write(PROGRAM, &mutated(&bytes, &mut random));
        if let Ok(package) = package.open()
            && lowered(&package).is_ok()
            && package.program.functions.contains_key("main")
        {
            let _ = error_message(run(&package, Tensor::Floats(ArrayD::zeros(IxDyn(&[1, 8, 6, 6])))));
            tried += 1;
        }
    }
    assert!(tried > 20, "only {tried} were tried");
}

#[test]
fn nan_weights_run() {
    let package = PackageCopy::of("compressed", "channels-int8.mlpackage");
    let mut bytes = package.read(BLOBS);
    for (at, byte) in bytes.iter_mut().enumerate().skip(64) {
        // Data lie between headers, which are kept.
        if at % 64 == 3 && *byte != 0xDE {
            *byte = 0xff;
        }
    }
    package.write(BLOBS, &bytes);
    let package = package.open().expect("opens");
    let _ = error_message(run(&package, Tensor::Floats(ArrayD::from_elem(IxDyn(&[1, 8, 6, 6]), f32::NAN))));
    let wrong =
        error_message(run(&package, Tensor::Floats(ArrayD::zeros(IxDyn(&[1, 8, 6]))))).expect("refused");
    assert!(wrong.contains("cannot have the shape"), "{wrong}");
}
