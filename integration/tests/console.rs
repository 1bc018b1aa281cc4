//! The web console, used by people in a real browser against a network with the fixtures.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use island_integration::{Network, program};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn installed(path: &str) -> PathBuf {
    let path = root().join(path);
    assert!(path.exists(), "{} is missing: run `scripts/setup.sh test` first", path.display());
    path
}

/// The stories of `integration/console`, in one browser and one network: each begins signed out.
#[test]
fn people_use_the_console() {
    let network = Network::start();
    let result = Command::new(installed(".tools/venv/bin/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(root().join("integration/console/stories.py"))
        .arg(network.folder())
        .arg(program("island-agent"))
        .arg(installed(".tools/node/node_modules/axe-core/axe.min.js"))
        .output()
        .expect("run the stories");
    let (out, err) = (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    assert!(result.status.success() && out.trim() == "ok", "{out}\n{err}\n{}", network.logs());
}
