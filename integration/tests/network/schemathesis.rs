//! schemathesis tries to break the API by its own description: examples, boundaries, random requests good and bad, and
//! sequences of requests. No 5xx that is not planned, no answer that the document does not describe.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use island_integration::{Network, Options};

/// Requests per operation and phase. The seed is fixed: who finds something finds it again.
const EXAMPLES: &str = "25";
const SEED: &str = "20261120";

fn root() -> PathBuf {
    island_testing::workspace()
}

/// A network whose every Cargo is quick, so that every stream ends: the scripted one and the shipped model.
fn network(folder: &Path) -> Network {
    let cargos = root().join("cargos");
    fs::create_dir(folder.join("fixtures")).expect("folder");
    for shared in ["models", "llmcpp"] {
        std::os::unix::fs::symlink(cargos.join(shared), folder.join(shared)).expect("link");
    }
    let changes = [
        ("fixtures/sim-chat.toml", "max_tokens = 100000", "max_tokens = 64"),
        ("fixtures/sim-chat.toml", "delay_ms = 20", "delay_ms = 0"),
        ("llm-chat.toml", "max_tokens = 1024", "max_tokens = 32"),
    ];
    for (name, _, _) in changes {
        fs::copy(cargos.join(name), folder.join(name)).expect("copy a Cargo");
    }
    for (name, from, to) in changes {
        let cargo = fs::read_to_string(folder.join(name)).expect("read a Cargo");
        assert!(cargo.contains(from), "{name}");
        fs::write(folder.join(name), cargo.replace(from, to)).expect("write a Cargo");
    }
    Network::start_with(&Options { cargos: Some(folder.to_owned()), ..Options::default() })
}

fn run(options: &[&str]) {
    let program = root().join(".tools/schemathesis/bin/schemathesis");
    assert!(program.is_file(), "schemathesis is not installed: run `scripts/setup.sh test` first");
    let cargos = tempfile::tempdir().expect("temporary folder");
    let network = network(cargos.path());
    let result = Command::new(program)
        .current_dir(root().join("integration"))
        .args(["--config-file", "schemathesis.toml", "run"])
        .arg(format!("{}/api/v1/openapi.json", network.info("api_url")))
        .args(["--seed", SEED, "--max-examples", EXAMPLES])
        .args(options)
        .env("ISLAND_API_KEY", network.info("api_key"))
        .env("ISLAND_API_URL", network.info("api_url"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("run schemathesis");
    let (out, err) = (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    assert!(result.status.success(), "{out}\n{err}");
}

#[test]
fn single_requests_good_and_bad() {
    run(&["--phases", "examples,coverage,fuzzing"]);
}

#[test]
fn sequences_of_requests() {
    run(&["--phases", "stateful"]);
}
