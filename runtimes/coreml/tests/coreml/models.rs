//! Every model computes the numbers of the reference, and its program as text is the same program.

use std::{collections::BTreeMap, fs, path::PathBuf};

use island_runtimes_coreml::{package::Package, text};

use crate::support::{
    Case, Fixture, all,
    check::{difference, open},
};

#[test]
fn outputs_of_every_model_equal_the_reference() {
    let mut wrong = Vec::new();
    let fixtures = all();
    assert!(!fixtures.is_empty(), "there are no fixtures");
    for fixture in &fixtures {
        for case in &fixture.cases {
            let at = format!("{}/{}", fixture.name, case.name);
            match difference(fixture, &open(fixture, case), case) {
                Ok(most) => println!("{at:50} {most:.1e}"),
                Err(why) => wrong.push(format!("{at}: {why}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Texts of a fixture's packages, by the package's path.
fn texts(fixture: &Fixture) -> Vec<(String, PathBuf)> {
    let inside = fixture.files();
    let packages: Vec<&str> = inside.keys().filter_map(|path| path.strip_suffix("/Manifest.json")).collect();
    let files = fs::read_dir(&fixture.folder).expect("readable").map(|entry| entry.expect("readable").path());
    let texts = files.filter(|path| path.extension().is_some_and(|extension| extension == "mil"));
    let package = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let name = format!("{}.mlpackage", name.split('.').next().expect("a name"));
        let package = packages.iter().find(|package| package.rsplit('/').next() == Some(&name));
        (*package.expect("a text is of a package")).to_owned()
    };
    texts.map(|path| (package(&path), path)).collect()
}

#[test]
fn programs_as_text_are_the_same_programs() {
    let mut count = 0;
    for fixture in all() {
        for (name, path) in texts(&fixture) {
            let package = Package::open(&fixture.files(), Some(&name)).expect("opens");
            let mut program = package.program;
            program
                .functions
                .values_mut()
                .for_each(|function| function.opset = function.opset.replace("CoreML", ""));
            let text = fs::read_to_string(&path).expect("readable");
            let mut read = text::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let opsets = BTreeMap::from([("ios15", "5"), ("ios16", "6"), ("ios17", "7"), ("ios18", "8")]);
            read.functions
                .values_mut()
                .for_each(|function| function.opset = opsets[function.opset.as_str()].to_owned());
            assert!(read == program, "{} is another program", path.display());
            count += 1;
        }
    }
    assert!(count > 0, "there are no texts");
}

#[test]
fn compiled_model_equals_its_package() {
    for fixture in all() {
        for (name, path) in texts(&fixture) {
            let stem = name.trim_end_matches(".mlpackage");
            let weights = "Data/com.apple.CoreML/weights/weight.bin";
            let mut files = BTreeMap::from([(format!("{stem}.mlmodelc/model.mil"), path)]);
            if let Some(blob) = fixture.files().remove(&format!("{name}/{weights}")) {
                files.insert(format!("{stem}.mlmodelc/weights/weight.bin"), blob);
            }
            let package = Package::open(&files, None).expect("opens");
            // A text does not name the default one of several functions.
            let is_clear = |case: &&Case| case.function.is_some() || package.program.functions.len() == 1;
            let of_this = |case: &&Case| case.model.as_ref().is_none_or(|model| *model == name);
            for case in fixture.cases.iter().filter(of_this).filter(is_clear) {
                difference(&fixture, &package, case)
                    .unwrap_or_else(|why| panic!("{}/{}: {why}", fixture.name, case.name));
            }
        }
    }
}
