//! The program itself: two runs at once, and a folder that it may not use.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use island_update::record::Record;

/// Runs `island-update check` with its state in `state`, and a server that nobody runs.
fn check(folder: &Path, state: &Path) -> Output {
    let (config, key) = (folder.join("update.toml"), BASE64.encode([0; 32]));
    let (state, url) = (state.display(), "http://127.0.0.1:9/manifest.json");
    let text = format!("manifest = \"{url}\"\nkeys = [\"{key}\"]\nstate_dir = \"{state}\"\n");
    fs::write(&config, text).expect("written");
    let mut program = Command::new(env!("CARGO_BIN_EXE_island-update"));
    program.env("NO_PROXY", "127.0.0.1").arg("--config").arg(config).arg("check").output().expect("it runs")
}

fn error_of(ran: &Output) -> String {
    assert!(!ran.status.success(), "{ran:?}");
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

#[test]
fn a_run_leaves_alone_what_another_one_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("a folder");
    let other = Record::lock(&state).expect("a lock").expect("it is free");
    let refused = error_of(&check(folder.path(), &state));
    assert!(refused.contains("another run of island-update has not ended"), "{refused}");
    assert!(!state.join("record.json").exists(), "it wrote the record of the other run");
    drop(other);
    let refused = error_of(&check(folder.path(), &state));
    assert!(refused.contains("fetch http://127.0.0.1:9/manifest.json"), "{refused}");
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    fs::write(&state, "a file in its place").expect("written");
    let refused = error_of(&check(folder.path(), &state));
    assert!(refused.contains(&format!("use the record in {}: ", state.display())), "{refused}");
}

#[test]
fn a_key_is_written_to_a_mere_name_in_the_current_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(env!("CARGO_BIN_EXE_island-update"));
    let ran = program.current_dir(&folder).args(["keygen", "release.key"]).output().expect("it runs");
    assert!(ran.status.success(), "{ran:?}");
    assert!(folder.path().join("release.key").exists());
}
