//! The official OpenAI client for Python, unchanged.

use std::{path::Path, process::Command};

use island_integration::Network;

#[tokio::test]
async fn streams_and_reads_whole_replies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let python = root.join(".tools/venv/bin/python");
    assert!(python.is_file(), "the OpenAI client is not installed: run `scripts/setup.sh test` first");
    let network = Network::start();
    let result = Command::new(python)
        .arg(root.join("integration/python/stream.py"))
        .arg(format!("{}/api/v1", network.info("api_url")))
        .arg(network.info("api_key"))
        .output()
        .expect("run the client");
    let (out, err) = (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    assert!(result.status.success() && out.trim() == "ok", "{out}\n{err}");
}
