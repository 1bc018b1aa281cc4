//! The tree is the architecture: which crate may depend on which, and what every crate must inherit.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use serde_json::Value;

/// Allowed edges between our crates, as ARCHITECTURE.md lists them.
const EDGES: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("daemon", &[]),
    ("coordinator-client", &["protocol"]),
    ("coordinator", &["protocol", "daemon"]),
    ("cache", &["protocol"]),
    ("egress", &["protocol", "runtimes-api"]),
    ("runtimes-api", &["protocol"]),
    ("runtimes-worker", &["protocol", "runtimes-api"]),
    ("runtimes-template", &["protocol"]),
    ("runtimes-llmcpp", &["protocol", "runtimes-api", "runtimes-worker", "runtimes-template"]),
    ("runtimes-wasm", &["protocol", "runtimes-api", "runtimes-worker"]),
    ("runtimes-container", &["protocol", "egress", "runtimes-api", "runtimes-worker"]),
    ("runtimes-onnx", &["protocol", "runtimes-api", "runtimes-worker"]),
    ("runtimes-diffusers", &["protocol", "runtimes-api", "runtimes-worker"]),
    (
        "runtimes-coreml",
        &["protocol", "runtimes-api", "runtimes-worker", "runtimes-onnx", "runtimes-template"],
    ),
    (
        "agent",
        &["protocol", "coordinator-client", "cache", "egress", "runtimes-api", "runtimes-worker", "daemon"],
    ),
    ("cli", &["protocol", "coordinator-client"]),
    ("update", &["protocol", "daemon"]),
];

fn packages() -> Vec<Value> {
    let result = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--locked", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
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
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let packages = packages();
    assert!(packages.len() >= EDGES.len());
    for package in &packages {
        let name = package["name"].as_str().and_then(short).expect("our crates begin with island-");
        let Some(may) = allowed.get(name) else {
            assert!(matches!(name, "integration" | "benches"), "{name} is missing from the table");
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let Some(ours) = dependency["name"].as_str().and_then(short) else { continue };
            // A crate may name itself among its test dependencies, to turn on a feature.
            assert!(ours == name || may.contains(&ours), "{name} must not depend on {ours}");
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
        if name == "protocol" {
            for io in ["tokio", "axum", "sqlx", "async-nats", "reqwest"] {
                assert!(!uses(io), "protocol uses {io}");
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
