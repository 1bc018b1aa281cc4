//! `scripts/demo.sh` where its network does not start.

use std::process::{Command, Stdio};

/// Builds a program `island` that never writes what the demo waits for, and runs the demo with it. Written by the shell: a program that another
/// thread's process still has open for writing cannot be started.
const RUN: &str = r#"
mkdir "$1/debug"
printf '#!/bin/sh\necho "cannot bind the port"\nexec sleep 600\n' >"$1/debug/island"
chmod 0755 "$1/debug/island"
CARGO_TARGET_DIR=$1 TMPDIR=$1 DEMO_LIMIT_S=5 exec "$0"
"#;

#[test]
fn the_demo_prints_what_it_waited_for_and_the_end_of_the_log() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/demo.sh");
    let mut command = Command::new("bash");
    command.args(["-c", RUN, script]).arg(folder.path()).stdin(Stdio::null());
    let ran = command.output().expect("run bash");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{errors}");
    assert!(errors.contains("dev.json") && errors.contains("cannot bind the port"), "{errors}");
    assert!(!errors.contains("Traceback"), "{errors}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("list").flatten().collect();
    assert_eq!(left.len(), 1, "only the program is left: {left:?}");
}
