//! Committed help of every command, and what bad input says.

use std::process::{Command, Output};

fn island(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().expect("temporary folder");
    Command::new(env!("CARGO_BIN_EXE_island"))
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .output()
        .expect("run island")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn help_of_every_command() {
    let commands: &[&[&str]] = &[
        &[],
        &["dev"],
        &["auth"],
        &["auth", "login"],
        &["auth", "status"],
        &["auth", "logout"],
        &["account"],
        &["chat"],
        &["jobs"],
        &["jobs", "submit"],
        &["jobs", "list"],
        &["jobs", "get"],
        &["jobs", "stream"],
        &["jobs", "cancel"],
        &["workloads"],
        &["workloads", "get"],
        &["hosts"],
        &["hosts", "get"],
        &["sail", "subscribe"],
    ];
    let mut all = String::new();
    for command in commands {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let result = island(&arguments);
        assert!(result.status.success(), "{arguments:?}");
        all.push_str(&format!("$ island {}\n{}\n", arguments.join(" "), text(&result.stdout)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn bad_input_is_refused_before_anything_is_sent() {
    for (arguments, wanted) in [
        (vec!["chat", "hi", "--temperature", "2.5"], "0.0 to 2.0"),
        (vec!["chat", "hi", "--max-tokens", "0"], "0 is not in 1"),
        (vec!["jobs", "list", "--limit", "101"], "101 is not in 1..=100"),
        (
            vec!["jobs", "submit", "--workload", "x", "--input", "{}", "--priority", "101"],
            "101 is not in 0..=100",
        ),
        (vec!["dev", "--islands", "2", "--no-island"], "cannot be used with"),
    ] {
        let result = island(&arguments);
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
        assert!(text(&result.stderr).contains(wanted), "{arguments:?}: {}", text(&result.stderr));
    }
}

#[test]
fn a_coordinator_that_is_not_there_is_explained() {
    let result = island(&["--api-url", "http://127.0.0.1:9", "account"]);
    assert_eq!(result.status.code(), Some(7));
    assert!(text(&result.stderr).contains("island dev"), "{}", text(&result.stderr));
    let result = island(&["--api-url", "http://127.0.0.1:9", "--format", "json", "account"]);
    let error: serde_json::Value = serde_json::from_slice(&result.stderr).expect("JSON");
    assert!(error["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
}

#[test]
fn input_that_is_not_json_is_explained() {
    let result = island(&["jobs", "submit", "--workload", "x", "--input", "{"]);
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("--input is not JSON"));
    let result = island(&["jobs", "get", "seven"]);
    assert!(text(&result.stderr).contains("'seven' cannot name a job"), "{}", text(&result.stderr));
}
