//! The scripts of the tree, as a person meets them who is not root, or whose new files nobody else may read.

use std::{env, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

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
    let inherited = env::var_os("PATH").unwrap_or_default();
    let searched = [programs].into_iter().chain(env::split_paths(&inherited));
    let mut script = Command::new("bash");
    script.current_dir(island_testing::workspace()).arg("scripts/packages.sh").arg(&unpacked);
    script.args(["-", "closure", "hello"]).env("PATH", env::join_paths(searched).expect("a search path"));
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
