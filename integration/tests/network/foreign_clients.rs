//! Unmodified third-party clients, each against a network with the usual limits.

use std::{path::PathBuf, process::Command};

use island_integration::{Network, Options};

fn root() -> PathBuf {
    island_testing::workspace()
}

fn installed(path: &str) -> PathBuf {
    let path = root().join(path);
    assert!(path.exists(), "{} is missing: run `scripts/setup.sh test` first", path.display());
    path
}

/// Runs a script of `clients/`, which prints `ok` when all it wanted was there.
fn satisfies(program: Command, script: &str) {
    satisfies_in(&Options { no_limits: false, ..Options::default() }, program, script);
}

/// The same, with a network of these options.
fn satisfies_in(options: &Options, mut program: Command, script: &str) {
    let network = Network::start_with(options);
    let result = program
        .arg(root().join("integration/clients").join(script))
        .arg(format!("{}/api/v1", network.info("api_url")))
        .arg(network.info("api_key"))
        .output()
        .expect("run the client");
    let (out, err) = (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    assert!(result.status.success() && out.trim() == "ok", "{out}\n{err}");
}

fn python() -> Command {
    let mut python = Command::new(installed(".tools/venv/bin/python"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

#[test]
fn openai_for_python() {
    satisfies(python(), "openai_chat.py");
}

#[test]
fn openai_for_python_with_pictures_and_reasoning() {
    satisfies(python(), "openai_vision.py");
}

#[test]
fn openai_for_python_with_responses_and_completions() {
    satisfies(python(), "openai_responses.py");
}

#[test]
fn openai_for_python_with_moderations() {
    satisfies(python(), "openai_moderations.py");
}

#[test]
fn openai_for_python_with_speech() {
    satisfies(python(), "openai_speech.py");
}

#[test]
fn openai_for_python_with_batches_and_webhooks() {
    let coordinator = vec![("WEBHOOKS__PRIVATE_ADDRESSES", "true".to_owned())];
    let options = Options { no_limits: false, coordinator, ..Options::default() };
    satisfies_in(&options, python(), "openai_batches.py");
}

#[test]
fn anthropic_for_python() {
    satisfies(python(), "anthropic_messages.py");
}

#[test]
fn openai_for_node() {
    let mut node = Command::new("node");
    node.env("NODE_PATH", installed(".tools/node/node_modules"));
    satisfies(node, "openai_chat.cjs");
}

#[test]
fn langchain() {
    let mut python = python();
    // It sends no reports.
    python.env("LANGSMITH_TRACING", "false");
    satisfies(python, "langchain_chat.py");
}
