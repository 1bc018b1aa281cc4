//! The tree is the architecture: which crate and which module may depend on which, as ARCHITECTURE.md lists it, and what every crate
//! must inherit.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

fn root() -> PathBuf {
    island_testing::workspace()
}

/// Rows of the table in ARCHITECTURE.md whose header begins with these cells.
fn table(header: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("read ARCHITECTURE.md");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(header));
    assert!(lines.next().is_some(), "ARCHITECTURE.md has no table that begins with {header:?}");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// Names in a cell: separated by commas, with or without backticks, up to a remark behind a semicolon.
fn names(cell: &str) -> impl Iterator<Item = String> + '_ {
    let listed = cell.split(';').next().unwrap_or_default();
    let names = listed.split(',').map(|name| name.trim().trim_matches('`').replace('/', "-"));
    names.filter(|name| !name.is_empty() && name != "–")
}

/// What each crate may depend on.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let mut allowed = BTreeMap::new();
    for row in table("| crate | depends on") {
        let may: BTreeSet<String> = names(&row[1]).collect();
        for name in names(&row[0]) {
            assert!(allowed.insert(name.clone(), may.clone()).is_none(), "{name} has two rows");
        }
    }
    allowed
}

fn packages() -> Vec<Value> {
    let result = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--locked", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("run cargo metadata");
    let metadata: Value = serde_json::from_slice(&result.stdout).expect("cargo metadata prints JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn short(name: &str) -> Option<&str> {
    name.strip_prefix("island-")
}

#[test]
fn crates_depend_only_on_what_they_may() {
    let allowed = allowed();
    let packages = packages();
    for package in &packages {
        let name = package["name"].as_str().and_then(short).expect("our crates begin with island-");
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} is missing from the table"));
        if may.contains("any") {
            continue;
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let Some(ours) = dependency["name"].as_str().and_then(short) else { continue };
            // A crate may name itself among its test dependencies, to turn on a feature.
            let is_testing = ours == "testing" && dependency["kind"] == "dev";
            assert!(ours == name || is_testing || may.contains(ours), "{name} must not depend on {ours}");
        }
    }
}

/// Names of modules that a file refers to by `crate::`, its tests left out.
fn references(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.extend(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned));
            continue;
        };
        let (mut depth, mut name, mut names) = (1, String::new(), Vec::new());
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => names.push(std::mem::take(&mut name)),
                _ if depth == 1 => name.push(c),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        names.push(name);
        let first = |name: String| {
            name.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned)
        };
        found.extend(names.into_iter().filter_map(first));
    }
    found
}

/// What each module at the top of a crate refers to. Programs and what only tests use are left out.
fn modules(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "tests" | "bin" | "snapshots") {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let inside = path.strip_prefix(source).expect("inside").with_extension("");
                let top = inside.iter().next().and_then(|part| part.to_str()).unwrap_or_default().to_owned();
                let mut text = fs::read_to_string(&path).expect("readable");
                if inside.iter().count() == 1 {
                    // The module above is the root of the crate.
                    text = text
                        .split("#[cfg(test)]\nmod tests {")
                        .next()
                        .unwrap_or_default()
                        .replace("super::", "crate::");
                }
                modules.entry(top).or_default().extend(references(&text));
            }
        }
    }
    modules.retain(|name, _| !matches!(name.as_str(), "lib" | "main" | "testing"));
    modules
}

#[test]
fn modules_refer_only_to_lower_floors() {
    for crate_name in ["agent", "coordinator/domain", "coordinator/api", "console"] {
        let mut floors = BTreeMap::new();
        for row in table(&format!("| floor of `{crate_name}`")) {
            let floor: u32 = row[0].parse().expect("a number");
            floors.extend(names(&row[1]).map(|module| (module, floor)));
        }
        let modules = modules(&root().join(crate_name).join("src"));
        assert!(modules.len() > 5, "{crate_name}: {modules:?}");
        let listed: BTreeSet<&String> = floors.keys().collect();
        assert_eq!(listed, modules.keys().collect(), "the table of {crate_name} lists its modules");
        for (module, references) in &modules {
            for other in references.iter().filter(|other| *other != module && floors.contains_key(*other)) {
                let (own, its) = (floors[module], floors[other]);
                assert!(
                    its < own,
                    "{crate_name}: {module} (floor {own}) must not refer to {other} (floor {its})"
                );
            }
        }
    }
}

#[test]
fn only_llmcpp_links_llama_cpp_and_protocol_does_no_io() {
    for package in packages() {
        let name = package["name"].as_str().and_then(short).expect("ours").to_owned();
        let uses = |wanted: &str| {
            package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter()
                .any(|d| d["name"].as_str().is_some_and(|n| n.starts_with(wanted)) && d["kind"].is_null())
        };
        assert!(!uses("llama-cpp") || name == "runtimes-llmcpp", "{name} links llama.cpp");
        if name == "protocol" || name == "protocol-api" {
            for io in ["tokio", "axum", "sqlx", "async-nats", "reqwest"] {
                assert!(!uses(io), "{name} uses {io}");
            }
        }
    }
}

#[test]
fn every_crate_inherits_the_lints_and_shared_dependencies() {
    for package in packages() {
        let manifest = package["manifest_path"].as_str().expect("path");
        let text = fs::read_to_string(Path::new(manifest)).expect("read the manifest");
        assert!(text.contains("[lints]\nworkspace = true"), "{manifest} does not inherit the lints");
        let own = text.lines().find(|line| line.contains("version = \""));
        assert_eq!(own, None, "{manifest} names a version itself");
    }
}

/// The profile of dependencies holds for a package that is not listed, which is slow to build (docs/decisions/0044).
#[test]
fn every_package_has_a_profile() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("read Cargo.toml");
    let manifest: toml::Table = toml::from_str(&manifest).expect("TOML");
    let listed = manifest["profile"]["dev"]["package"].as_table().expect("profiles of packages");
    for package in packages() {
        let name = package["name"].as_str().expect("a name");
        assert!(listed.contains_key(name), "{name} has no entry in [profile.dev.package]");
    }
}

/// Every file of Rust below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

fn folder_of(package: &Value) -> PathBuf {
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    manifest.parent().expect("a folder").to_owned()
}

/// The file that a line compiles into its own by name, without `..`.
fn included(file: &Path, line: &str) -> Option<PathBuf> {
    let line = line.trim_start();
    let named = line.strip_prefix("#[path = \"").or_else(|| line.strip_prefix("include!(\""))?;
    let mut path = file.parent().expect("a folder").to_owned();
    for part in Path::new(named.split('"').next()?) {
        if part == ".." { _ = path.pop() } else { path.push(part) }
    }
    Some(path)
}

#[test]
fn a_file_is_compiled_into_its_own_crate_only() {
    let folders: Vec<PathBuf> = packages().iter().map(folder_of).collect();
    // A crate may lie in the folder of another one.
    let owner = |file: &Path| folders.iter().filter(|folder| file.starts_with(folder)).max();
    let mut seen = 0;
    for folder in &folders {
        let parts = ["src", "tests", "examples"].map(|part| folder.join(part));
        for file in parts.iter().filter(|part| part.is_dir()).flat_map(|part| sources(part)) {
            let text = fs::read_to_string(&file).expect("readable");
            for other in text.lines().filter_map(|line| included(&file, line)) {
                seen += 1;
                assert!(other.is_file(), "{} names {}", file.display(), other.display());
                assert_eq!(owner(&other), Some(folder), "{} names {}", file.display(), other.display());
            }
        }
    }
    assert!(seen > 3, "only {seen} files are named");
}

/// Whether documentation has a block of code that is compiled as a test.
fn has_doc_tests(text: &str) -> bool {
    let mut is_open = false;
    for line in text.lines().map(str::trim_start) {
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_open = false;
            continue;
        };
        let Some(language) = doc.trim_start().strip_prefix("```") else { continue };
        let mut words = language.split([',', ' ']).filter(|word| !word.is_empty());
        let is_rust = |word: &str| {
            matches!(word, "rust" | "no_run" | "should_panic" | "compile_fail") || word.starts_with("edition")
        };
        if !is_open && words.all(is_rust) {
            return true;
        }
        is_open = !is_open;
    }
    false
}

#[test]
fn documentation_with_tests_is_recognized() {
    for (text, has) in [
        ("/// ```\n/// assert!(true);\n/// ```", true),
        ("//! ```no_run\n//! run();\n//! ```", true),
        ("/// ```text\n/// a table\n/// ```\nfn f() {}", false),
        ("/// ```toml\n/// a = 1\n/// ```\n///\n/// ```rust\n/// f();\n/// ```", true),
        ("// ```\n// no documentation\n// ```", false),
    ] {
        assert_eq!(has_doc_tests(text), has, "{text}");
    }
}

/// Manifests leave out the test programs of what has no tests, to save their building.
#[test]
fn no_test_is_left_out_by_a_manifest() {
    let mut left_out = 0;
    for package in packages() {
        for target in package["targets"].as_array().expect("targets") {
            let is =
                |kind: &str| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind));
            let path = Path::new(target["src_path"].as_str().expect("a path"));
            let files =
                if is("lib") { sources(path.parent().expect("a folder")) } else { vec![path.to_owned()] };
            for file in files {
                let text = fs::read_to_string(&file).expect("readable");
                let place = file.display();
                if is("lib") && target["doctest"] == false {
                    assert!(!has_doc_tests(&text), "{place} has a doc test, and its crate `doctest = false`");
                }
                if (is("lib") || is("bin")) && target["test"] == false {
                    left_out += 1;
                    assert!(
                        !text.contains("#[cfg(test)]"),
                        "{place} has tests, and its target `test = false`"
                    );
                }
            }
        }
    }
    assert!(left_out > 5, "{left_out}");
}
