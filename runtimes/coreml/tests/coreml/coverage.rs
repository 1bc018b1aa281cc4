//! The table of operations in this crate's README: how each was tested, and its maximum difference. With `COREML_TABLE=write` it
//! is written, otherwise compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use island_runtimes_coreml::{
    lower,
    model::{Model as _, take},
    package::Package,
    portable::Portable,
    program::Block,
};
use island_runtimes_graph::{Resources, library};

use crate::support::{Fixture, all, apart};

const BEGIN: &str = "<!-- operations -->\n";
const END: &str = "<!-- end -->";
/// Resolution of differences.
const FINEST: f32 = 1e-6;

/// Operations in a block and its nested blocks.
fn kinds(block: &Block, into: &mut BTreeSet<String>) {
    for operation in &block.operations {
        into.insert(operation.kind.clone());
        operation.blocks.iter().for_each(|block| kinds(block, into));
    }
}

/// By operation: the maximum difference of its outputs in the programs of single operations, and the number of those programs.
fn measured() -> BTreeMap<String, (f32, usize)> {
    let environment = library::open().expect("the library");
    let fixture = Fixture::named("operations");
    let mut measured: BTreeMap<String, (f32, usize)> = BTreeMap::new();
    for case in &fixture.cases {
        let package = Package::open(&fixture.files(), case.model.as_deref()).expect("opens");
        let threads = Resources::cpu(1);
        let model = Portable::load(&package, "main", environment, threads)
            .unwrap_or_else(|failure| panic!("{}: {}", case.name, failure.message()));
        let mut state = model.start().expect("starts");
        let mut given = model.run(fixture.given(&case.steps[0]), &mut state).expect("runs");
        for (label, wanted) in fixture.wanted(&case.steps[0]) {
            let got = take(&mut given, &label).expect("given");
            let kind = label.split("__").next().unwrap_or_default().to_owned();
            let entry = measured.entry(kind).or_default();
            *entry = (entry.0.max(apart(&wanted, &got)), entry.1 + 1);
        }
    }
    measured
}

/// The models that contain an operation.
fn models() -> BTreeMap<String, BTreeSet<String>> {
    let mut models: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for fixture in all().iter().filter(|fixture| fixture.name != "operations") {
        let packages: BTreeSet<Option<&str>> =
            fixture.cases.iter().map(|case| case.model.as_deref()).collect();
        for name in packages {
            let package = Package::open(&fixture.files(), name).expect("opens");
            let mut found = BTreeSet::new();
            package.program.functions.values().for_each(|function| kinds(&function.block, &mut found));
            for kind in found {
                models.entry(kind).or_default().insert(fixture.name.clone());
            }
        }
    }
    models
}

/// The power of ten above a difference, with a margin for other CPUs.
fn bound(difference: f32) -> f32 {
    let mut bound = FINEST;
    while bound < difference * 2.0 {
        bound *= 10.0;
    }
    bound
}

#[test]
fn table_of_operations_is_current() {
    let (measured, models) = (measured(), models());
    let path = island_testing::workspace().join("runtimes/coreml/README.md");
    let text = fs::read_to_string(&path).expect("the README");
    let (before, rest) = text.split_once(BEGIN).expect("a table");
    let (table, after) = rest.split_once(END).expect("the table's end");
    let operations: BTreeSet<&str> = lower::operations().into_iter().collect();
    let unchecked: Vec<&&str> = operations
        .iter()
        .filter(|kind| !measured.contains_key(**kind) && !models.contains_key(**kind))
        .collect();
    assert!(unchecked.is_empty(), "{unchecked:?} have no test");
    if std::env::var("COREML_TABLE").is_ok_and(|value| value == "write") {
        let mut table =
            "| operation | ways | difference | in models |\n| --- | --- | --- | --- |\n".to_owned();
        for kind in &operations {
            let (ways, most) = measured.get(*kind).map_or((String::new(), String::new()), |(most, ways)| {
                (ways.to_string(), format!("{:.0e}", bound(*most)))
            });
            let of: Vec<&str> = models.get(*kind).into_iter().flatten().map(String::as_str).collect();
            let _ = writeln!(table, "| `{kind}` | {ways} | {most} | {} |", of.join(", "));
        }
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).expect("written");
        return;
    }
    let mut listed = BTreeSet::new();
    for line in table.lines().skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [kind, ways, most, of] = cells.as_slice() else { panic!("{line:?} is not a row") };
        let kind = kind.trim_matches('`');
        listed.insert(kind);
        let names: Vec<&str> = models.get(kind).into_iter().flatten().map(String::as_str).collect();
        assert_eq!(*of, names.join(", "), "models with {kind}");
        match measured.get(kind) {
            None => assert!(ways.is_empty() && most.is_empty(), "{kind} has no test of its own"),
            Some((difference, count)) => {
                assert_eq!(*ways, count.to_string(), "ways of {kind}");
                let most: f32 = most.parse().expect("a number");
                assert!(*difference <= most, "{kind} differs by {difference}, not {most}");
            }
        }
    }
    assert_eq!(listed, operations, "the table lists other operations than there are");
}
