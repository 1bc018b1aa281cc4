//! The scripts of the tree, as a person meets them who is not root, or whose new files nobody else may read.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

/// Refuses to install without the lock of the package manager, as apt does for everyone but root, also if it only downloads.
const APT_GET: &str = r#"#!/bin/sh
for word in "$@"; do
    case $word in
        -oDir::Cache=*) cache=${word#*=} ;;
        -oDebug::NoLocking=1) takes_no_lock=yes ;;
        install) installs=yes ;;
    esac
done
[ -n "${installs:-}" ] || exit 0
[ -n "${takes_no_lock:-}" ] || { echo "E: Could not open lock file, are you root?" >&2; exit 100; }
: >"$cache/archives/hello.deb"
"#;

/// Called with `--extract PACKAGE FOLDER`.
const DPKG_DEB: &str = "#!/bin/sh\ncp \"$2\" \"$3\"\n";

/// Puts a program into `folder` that takes the place of one of the system.
fn stand_in(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be run");
}

/// Returns a search path that begins with `folder`.
fn path_with(folder: &Path) -> OsString {
    let inherited = env::var_os("PATH").unwrap_or_default();
    let searched = [folder.to_owned()].into_iter().chain(env::split_paths(&inherited));
    env::join_paths(searched).expect("a search path")
}

#[test]
fn packages_are_unpacked_without_the_lock_of_the_package_manager() {
    if !Path::new("/etc/os-release").is_file() {
        island_testing::skip("unpacking packages", "this system names no release");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (programs, unpacked) = (folder.path().join("programs"), folder.path().join("unpacked"));
    fs::create_dir(&programs).expect("a folder");
    stand_in(&programs, "apt-get", APT_GET);
    stand_in(&programs, "dpkg-deb", DPKG_DEB);
    let mut script = Command::new("bash");
    script.current_dir(island_testing::workspace()).arg("scripts/packages.sh").arg(&unpacked);
    script.args(["-", "closure", "hello"]).env("PATH", path_with(&programs));
    let ran = script.output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(unpacked.join("hello.deb").is_file(), "nothing was unpacked");
}

#[test]
fn a_package_that_stands_in_for_another_is_made_whatever_the_umask() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        island_testing::skip("making packages", "dpkg-deb is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let code = "import pathlib, sys; sys.path.insert(0, 'scripts'); import debian; \
                debian.empty_package('absent', pathlib.Path(sys.argv[1]))";
    let mut shell = Command::new("sh");
    shell.current_dir(island_testing::workspace()).env("PYTHONDONTWRITEBYTECODE", "1");
    shell.args(["-c", "umask 077; exec python3 -c \"$0\" \"$1\"", code]).arg(folder.path());
    let ran = shell.output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(folder.path().join("absent.deb").is_file(), "there is no package");
}

/// A repository with `scripts/unchanged.sh` and the folder `input`, whose checks write a line into `ran`.
struct Repository(TempDir);

impl Repository {
    /// Returns `None`, and reports that, without git.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let Ok(made) = Command::new("git").args(["init", "--quiet"]).current_dir(&folder).output() else {
            island_testing::skip("checks of what has not changed", "git is not installed");
            return None;
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for name in ["scripts", "input"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let script = "scripts/unchanged.sh";
        fs::copy(island_testing::workspace().join(script), folder.path().join(script)).expect("copied");
        fs::write(folder.path().join(".gitignore"), "ignored\ntarget\n").expect("written");
        let repository = Self(folder);
        repository.write("file", "first");
        Some(repository)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join("input").join(name), text).expect("written");
    }

    /// Runs a check that ends with `status`, and returns whether its command ran.
    fn check(&self, status: &str, variables: &[(&str, &str)]) -> bool {
        let ran = self.0.path().join("ran");
        let _ = fs::remove_file(&ran);
        let mut script = Command::new("bash");
        script.arg(self.0.path().join("scripts/unchanged.sh"));
        script.args(["a-check", "input", "env:STATUS", "--", "sh", "-c", "echo >ran; exit $FINAL"]);
        script.env("CARGO_TARGET_DIR", self.0.path().join("target")).env("FINAL", status);
        script
            .env(island_testing::STRICT, "1")
            .env_remove("ISLAND_CHECK_ALL")
            .envs(variables.iter().copied());
        let output = script.output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), status.parse().ok(), "{stderr}");
        ran.exists()
    }
}

#[test]
fn a_check_with_unchanged_inputs_is_left_out() {
    let Some(repository) = Repository::new() else { return };
    assert!(repository.check("0", &[]), "the first time");
    assert!(!repository.check("0", &[]), "nothing changed");
    repository.write("ignored", "of no account");
    assert!(!repository.check("0", &[]), "git ignores the change");
    assert!(repository.check("0", &[("ISLAND_CHECK_ALL", "1")]), "everything was requested");
}

#[test]
fn a_check_with_a_changed_input_runs_again() {
    let Some(repository) = Repository::new() else { return };
    assert!(repository.check("0", &[]), "the first time");
    repository.write("file", "second");
    assert!(repository.check("0", &[]), "a file has other content");
    repository.write("another", "new");
    assert!(repository.check("0", &[]), "a file was added");
    assert!(repository.check("0", &[("STATUS", "other")]), "a variable has another value");
    let file = repository.0.path().join("input/file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it can be run");
    assert!(repository.check("0", &[]), "a file became a program");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it cannot be run");
    fs::remove_file(repository.0.path().join("input/another")).expect("removed");
    repository.write("file", "first");
    assert!(!repository.check("0", &[]), "all is as it was at first");
}

#[test]
fn a_check_that_did_not_pass_in_full_runs_again() {
    let Some(repository) = Repository::new() else { return };
    assert!(repository.check("3", &[]), "the first time");
    assert!(repository.check("0", &[(island_testing::STRICT, "0")]), "it failed before");
    assert!(repository.check("0", &[]), "a part may have been left out");
    assert!(!repository.check("0", &[]), "it passed");
}

/// Has Cargo start the programs of `$PROGRAMS` through the runner of `scripts/test.py`; there are no doc tests.
const CARGO: &str = r#"#!/bin/sh
case " $* " in *" --doc "*) exit 0 ;; esac
for program in "$PROGRAMS"/*; do
    CARGO_PKG_NAME=package python3 "$SCRIPT" record "$program" || exit
done
"#;

/// Runs `scripts/test.sh` with programs of tests that print these texts and end with these statuses.
fn run_tests(programs: &[(&str, &str, i32)], strict: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let (tools, tests) = (folder.path().join("tools"), folder.path().join("tests"));
    for folder in [&tools, &tests] {
        fs::create_dir(folder).expect("a folder");
    }
    stand_in(&tools, "cargo", CARGO);
    for (name, text, status) in programs {
        stand_in(&tests, name, &format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n"));
    }
    let script = island_testing::workspace().join("scripts");
    let mut run = Command::new("bash");
    run.arg(script.join("test.sh")).env("PATH", path_with(&tools)).env("PROGRAMS", &tests);
    run.env("SCRIPT", script.join("test.py")).env("CARGO_TARGET_DIR", folder.path().join("target"));
    run.env(island_testing::STRICT, strict).output().expect("it runs")
}

#[test]
fn results_of_all_test_programs_are_added_up() {
    let passing = "test one ... ok\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
    let failing =
        "the reason\ntest two ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured";
    let skipping = "test three ... SKIPPED a part: no reason\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured";
    let programs = [("passes", passing, 0), ("fails", failing, 101), ("skips", skipping, 0), ("ends", "", 9)];
    let ran = run_tests(&programs, "0");
    let text = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(1), "{text}");
    for expected in [
        "the reason",
        "package/fails: exit status 101\n    test two ... FAILED",
        "package/ends: exit status 9",
        "left out:\nSKIPPED a part: no reason",
        "4 passed, 1 failed, 2 skipped",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in:\n{text}");
    }
    assert!(!text.contains("test one"), "a program that passed is printed:\n{text}");
}

#[test]
fn skipped_tests_fail_a_strict_run_only() {
    let skipping = "SKIPPED a part: no reason\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured";
    assert!(run_tests(&[("skips", skipping, 0)], "0").status.success());
    assert!(!run_tests(&[("skips", skipping, 0)], "1").status.success());
}
