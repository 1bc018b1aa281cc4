//! Models as others published them, compiled by Apple's tools. Those of a crate are in this repository; if
//! `COREML_SAMPLES` is set, everything in that folder is parsed, lowered and run too, and a model that is there both as a package and
//! compiled must give the same numbers.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use island_runtimes_coreml::{
    model::{Model as _, Tensor, Tensors, take},
    package::{
        Package,
        interface::{Interface, Kind},
    },
    portable::Portable,
    program::{Block, types::Class},
};
use island_runtimes_graph::{Resources, library};
use island_runtimes_kit::error::EngineError;
use ndarray::{ArrayD, IxDyn};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::support::apart;

/// Samples of audio for inputs of any length.
const SECOND: u64 = 16_000;

/// A model's files by their path in it, under its own name.
fn files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let inside = path.strip_prefix(folder).expect("inside").to_string_lossy().into_owned();
                files.insert(format!("{name}/{inside}"), path);
            }
        }
    }
    files
}

/// Folders of models below one, in order.
fn models(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).into_iter().flatten() {
            let path = entry.expect("readable").path();
            let form = path.extension().and_then(|form| form.to_str()).unwrap_or_default();
            if path.is_dir() && matches!(form, "mlmodelc" | "mlpackage") {
                found.push(path);
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

fn count(block: &Block) -> usize {
    let inner = |operation: &island_runtimes_coreml::program::Operation| {
        usize::from(operation.kind != "const") + operation.blocks.iter().map(count).sum::<usize>()
    };
    block.operations.iter().map(inner).sum()
}

/// Numbers that are equal for every model with these inputs.
fn given(interface: &Interface) -> Result<Tensors, String> {
    let one = |feature: &island_runtimes_coreml::package::interface::Feature| {
        let Kind::Array { class, sizes } = &feature.kind else {
            return Err(format!("{} is not an array", feature.name));
        };
        // For any length, one second of audio.
        let size = |axis| sizes.holding(axis, sizes.most(axis).unwrap_or(SECOND).min(SECOND));
        let size = |axis| size(axis).and_then(|size| usize::try_from(size).ok());
        let shape: Option<Vec<usize>> = (0..sizes.rank()).map(size).collect();
        let shape = shape.ok_or_else(|| format!("{} has no sizes", feature.name))?;
        let mut random = StdRng::seed_from_u64(feature.name.bytes().map(u64::from).sum());
        let tensor = match class {
            Class::Float => {
                Tensor::Floats(ArrayD::from_shape_fn(IxDyn(&shape), |_| random.random_range(-0.5..0.5)))
            }
            _ => Tensor::Ints(ArrayD::from_elem(IxDyn(&shape), 1)),
        };
        Ok((feature.name.clone(), tensor))
    };
    interface.inputs.iter().map(one).collect()
}

/// A parsed model: its number of operations.
fn read(folder: &Path) -> Result<(Package, usize), String> {
    let package = Package::open(&files(folder), None).map_err(|failure| failure.message())?;
    let operations = count(&package.program.functions[&package.default_function].block);
    Ok((package, operations))
}

/// Whether its weights are included, rather than a pointer to them.
fn has_weights(folder: &Path) -> bool {
    let files = files(folder);
    let mut weights = files.iter().filter(|(name, _)| name.ends_with("weight.bin")).peekable();
    weights.peek().is_some()
        && weights.all(|(_, path)| fs::metadata(path).is_ok_and(|file| file.len() > 1000))
}

/// The outputs of a model for generated inputs.
fn run(package: &Package) -> Result<Tensors, String> {
    let said = |error: EngineError| error.message();
    let environment = library::open().map_err(|error| error.reason)?;
    let threads = Resources::cpu(1);
    let model = Portable::load(package, &package.default_function, environment, threads).map_err(said)?;
    let mut state = model.start().map_err(said)?;
    model.run(given(model.interface())?, &mut state).map_err(said)
}

#[test]
fn model_of_a_crate_computes_its_documented_result() {
    let folder = island_testing::workspace().join("runtimes/coreml/tests/published/coreml-native");
    let numbers = |folder: &Path, inputs: &[(&str, Vec<f32>)], output: &str| -> Vec<f32> {
        let package = Package::open(&files(folder), None).expect("opens");
        let threads = Resources::cpu(1);
        let environment = library::open().expect("the library");
        let model = Portable::load(&package, "main", environment, threads).expect("loads");
        let tensor = |numbers: &Vec<f32>| {
            Tensor::Floats(
                ArrayD::from_shape_vec(IxDyn(&[1, numbers.len()]), numbers.clone()).expect("a row"),
            )
        };
        let inputs = inputs.iter().map(|(name, numbers)| ((*name).to_owned(), tensor(numbers))).collect();
        let mut outputs = model.run(inputs, &mut model.start().expect("starts")).expect("runs");
        take(&mut outputs, output).expect("given").into_floats().iter().copied().collect()
    };
    // Twice the input plus one.
    let given =
        numbers(&folder.join("test_linear.mlmodelc"), &[("input", vec![1.0, 2.0, -3.0, 0.5])], "output");
    assert_eq!(format!("{given:?}"), "[3.0, 5.0, -5.0, 2.0]");
    let both = [("float_input", vec![1.0, 2.0, 3.0, 4.0]), ("int_input", vec![5.0, 6.0])];
    let multi = folder.join("test_multi_io.mlmodelc");
    assert_eq!(format!("{:?}", numbers(&multi, &both, "sum_output")), "[3.0, 5.0, 7.0, 9.0]");
    assert_eq!(format!("{:?}", numbers(&multi, &both, "count_output")), "[10.0, 12.0]");
}

#[test]
fn published_models_are_parsed_and_run() {
    let own = island_testing::workspace().join("runtimes/coreml/tests/published");
    let root = env::var_os("COREML_SAMPLES").map_or(own, PathBuf::from);
    let mut wrong = Vec::new();
    let mut ran: BTreeMap<(PathBuf, String), Vec<(PathBuf, Tensors)>> = BTreeMap::new();
    for folder in models(&root) {
        let shown = folder.strip_prefix(&root).expect("inside");
        let (package, operations) = match read(&folder) {
            Ok(read) => read,
            Err(why) => {
                wrong.push(format!("{}: {why}", shown.display()));
                continue;
            }
        };
        match run(&package) {
            Ok(given) => {
                println!("{operations:5} operations  {}", shown.display());
                let stem = folder.file_stem().expect("a name").to_string_lossy().into_owned();
                let revision = shown.components().take(2).collect();
                ran.entry((revision, stem)).or_default().push((folder, given));
            }
            Err(_) if !has_weights(&folder) => {
                println!("{operations:5} operations  {}, whose weights were not kept", shown.display());
            }
            Err(why) => wrong.push(format!("{}: {why}", shown.display())),
        }
    }
    for ((_, stem), all) in &ran {
        let of = |form: &'static str| {
            all.iter().filter(move |(folder, _)| folder.extension().is_some_and(|is| is == form))
        };
        for ((package, wanted), (compiled, given)) in
            of("mlpackage").flat_map(|one| of("mlmodelc").map(move |two| (one, two)))
        {
            let mut given = given.clone();
            let differences = wanted.iter().map(|(name, wanted)| {
                take(&mut given, name).map_or(f32::INFINITY, |given| apart(wanted, &given))
            });
            let most = differences.fold(0.0, f32::max);
            println!("{most:8.1e}  {stem}, as a package and compiled");
            if most > 1e-5 {
                wrong.push(format!("{} and {} are {most} apart", package.display(), compiled.display()));
            }
        }
    }
    assert!(!ran.is_empty(), "no model with weights lies in {}", root.display());
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
