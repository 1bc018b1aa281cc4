//! schemathesis tries to break the API by its own description: examples, boundaries, random requests good and bad, and
//! sequences of requests. No 5xx that is not planned, no answer that the document does not describe.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use island_integration::Network;

/// Requests per operation and phase. The seed is fixed: who finds something finds it again.
const EXAMPLES: &str = "25";
const SEED: &str = "20261120";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn run(network: &Network, options: &[&str]) {
    let program = root().join(".tools/schemathesis/bin/schemathesis");
    assert!(program.is_file(), "schemathesis is not installed: run `scripts/setup.sh test` first");
    let result = Command::new(program)
        .current_dir(network.folder())
        .arg("--config-file")
        .arg(root().join("integration/schemathesis.toml"))
        .args(["run", &format!("{}/api/v1/openapi.json", network.info("api_url"))])
        .args(["--seed", SEED, "--max-examples", EXAMPLES, "--workers", "2"])
        .args(options)
        .env("ISLAND_API_KEY", network.info("api_key"))
        .env("NO_COLOR", "1")
        .output()
        .expect("run schemathesis");
    let (out, err) = (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    assert!(result.status.success(), "{out}\n{err}");
}

#[test]
fn single_requests_good_and_bad() {
    run(&Network::start(), &["--phases", "examples,coverage,fuzzing"]);
}

#[test]
fn sequences_of_requests() {
    run(&Network::start(), &["--phases", "stateful"]);
}
