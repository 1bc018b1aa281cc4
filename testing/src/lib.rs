//! What tests of several crates share.
//!
//! A test that cannot run on a machine calls [`skip`] and returns. With `ISLAND_STRICT=1`, which `make check` sets, nothing may be
//! left out: [`skip`] panics, and so does [`selection`] where a variable narrows a suite.

pub mod flips;
pub mod harness;
pub mod oidc;
pub mod port;
pub mod postgres;
pub mod vulkan;

use std::{
    env,
    ffi::OsStr,
    io::Write as _,
    path::{Path, PathBuf},
};

/// Variable under which a test that would be left out fails.
pub const STRICT: &str = "ISLAND_STRICT";

/// Returns the folder of the workspace, above the folder that Cargo runs the tests of a package in.
///
/// Unlike `env!("CARGO_MANIFEST_DIR")`, it is right in every clone that shares a target folder, so that none builds again for it.
///
/// # Panics
/// If the program runs elsewhere.
pub fn workspace() -> PathBuf {
    let here = env::current_dir().expect("the current folder");
    let found = here.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    found.map(Path::to_owned).expect("tests run within the workspace")
}

/// Whether everything must run.
pub fn is_strict() -> bool {
    env::var_os(STRICT).is_some_and(|value| !value.is_empty() && value != OsStr::new("0"))
}

/// Reports that `what` is not tested here because of `reason`, on a line of its own that `scripts/test.sh` counts.
///
/// # Panics
/// In strict mode.
pub fn skip(what: &str, reason: &str) {
    assert!(!is_strict(), "{what} cannot be tested here: {reason}");
    // Written past the test harness, which hides the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {reason}");
}

/// Returns the part of a name that `variable` narrows a suite to; `None` if the whole suite runs.
///
/// # Panics
/// In strict mode, if the variable is set.
pub fn selection(variable: &str) -> Option<String> {
    let selection = env::var(variable).ok().filter(|part| !part.is_empty())?;
    assert!(!is_strict(), "{variable} is set, which would leave out tests");
    skip("part of a suite", &format!("{variable}={selection}"));
    Some(selection)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    /// Runs the test below in a process with these variables.
    fn with(variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env::current_exe().expect("this test's path"));
        command.args(["--exact", "tests::skips_and_selects", "--nocapture"]).env_remove(STRICT);
        command.envs(variables.iter().copied()).env("ISLAND_TESTING_INSIDE", "1");
        command.output().expect("run this test's program")
    }

    #[test]
    fn skips_and_selects() {
        if env::var_os("ISLAND_TESTING_INSIDE").is_some() {
            assert_eq!(selection("ISLAND_TESTING_SELECTION"), None);
            return skip("a test", "no reason");
        }
        let lenient = with(&[]);
        assert!(lenient.status.success());
        assert!(String::from_utf8_lossy(&lenient.stderr).contains("SKIPPED a test: no reason"));
        assert!(!with(&[(STRICT, "1")]).status.success(), "a skip fails in strict mode");
        assert!(with(&[(STRICT, "0")]).status.success());
    }

    #[test]
    fn a_selection_fails_in_strict_mode() {
        assert!(!with(&[(STRICT, "1"), ("ISLAND_TESTING_SELECTION", "one")]).status.success());
    }
}
