//! Commands that need no network: exit codes and messages.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

/// Runs `island-agent` without a terminal.
fn agent(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_island-agent"));
    command.args(arguments).arg("--state-dir").arg(state).stdin(Stdio::null());
    command.output().expect("run island-agent")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn watching_without_a_terminal_is_an_error_of_usage() {
    let state = tempfile::tempdir().expect("temporary folder");
    let ran = agent(state.path(), &["status", "--watch"]);
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert!(text(&ran.stderr).contains("needs a terminal"), "{ran:?}");
    assert!(ran.stdout.is_empty(), "no escape codes: {ran:?}");
}

#[test]
fn logs_without_any_are_reported() {
    let state = tempfile::tempdir().expect("temporary folder");
    let ran = agent(state.path(), &["logs"]);
    assert!(ran.status.success(), "{ran:?}");
    assert!(text(&ran.stdout).starts_with("no debug logs in "), "{ran:?}");
}

#[test]
fn leaving_without_having_joined_is_reported() {
    let state = tempfile::tempdir().expect("temporary folder");
    let ran = agent(state.path(), &["leave"]);
    assert!(text(&ran.stdout).starts_with("This machine never joined a network"), "{ran:?}");
    assert_eq!(fs::read_dir(state.path()).expect("list").count(), 0, "nothing is created");
}

#[test]
fn a_check_of_settings_lists_every_problem_or_confirms_them() {
    let state = tempfile::tempdir().expect("temporary folder");
    let file = state.path().join("agent.toml");
    let name = file.to_str().expect("a plain path");
    fs::write(&file, "api_url = 'example.org'\n[policy]\nruntimes = ['abacus']\n[workers]\nmax_jobs = 0")
        .expect("write");
    let ran = agent(state.path(), &["config", "check", "-c", name]);
    assert_eq!(ran.status.code(), Some(64), "{ran:?}");
    let problems = text(&ran.stderr);
    assert_eq!(problems.lines().count(), 3, "{problems}");
    for part in ["api_url", "`abacus`; the engines are container, wasm", "workers.max_jobs"] {
        assert!(problems.contains(part), "{part} in {problems}");
    }
    fs::write(&file, "name = 'attic'").expect("write");
    let ran = agent(state.path(), &["config", "check", "-c", name]);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(text(&ran.stdout), format!("{name}: the settings are valid\n"));
}

/// A folder in which nothing can be created, not even by root.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_without_permission_has_a_hint() {
    let ran = agent(Path::new("/sys/island"), &["enroll"]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let message = text(&ran.stderr);
    for part in ["/sys/island", "sudo", "--state-dir", "--config FILE"] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

/// Connections to 0.0.0.0 arrive on this machine, but it is not an address of loopback.
#[test]
fn a_coordinator_elsewhere_is_not_used_without_encryption() {
    let state = tempfile::tempdir().expect("temporary folder");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://0.0.0.0:{}", listener.local_addr().expect("address").port());
    for command in ["enroll", "run", "leave"] {
        let ran = agent(state.path(), &[command, "--coordinator", &url]);
        assert_eq!(ran.status.code(), Some(64), "{ran:?}");
        let message = text(&ran.stderr);
        assert!(message.contains("is not encrypted") && message.contains("allow_plaintext"), "{message}");
    }
    listener.set_nonblocking(true).expect("nonblocking");
    assert!(listener.accept().is_err(), "nothing connected");
}
