//! Files of Cargos on the coordinator's machine, for Islands elsewhere.

use std::fs;

use reqwest::StatusCode;

use crate::support::network::{ECHO, Network};

/// SHA-256 of "hello".
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

#[tokio::test]
async fn only_local_files_of_cargos_are_served_by_their_hash() {
    let network = Network::start_with(|config| {
        let dir = &config.catalogue.dir;
        fs::create_dir_all(dir.join("built")).expect("folder");
        fs::create_dir_all(dir.join("wasm")).expect("folder");
        fs::write(dir.join("built/a.wasm"), "hello").expect("file");
        fs::write(dir.join("built/secret"), "secret").expect("file");
        let head = "slug = \"built\"\nmodel_url = \"file://built/a.wasm\"\n";
        let rest = ECHO.lines().filter(|line| !line.starts_with("slug") && !line.starts_with("aliases"));
        let entry = rest.fold(head.to_owned(), |entry, line| entry + line + "\n");
        fs::write(dir.join("wasm/a.toml"), entry).expect("entry");
    })
    .await;
    let ask = |name: &str| network.http.get(format!("{}/artifacts/{name}", network.url)).send();
    let answer = ask(HELLO).await.expect("answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.content_length(), Some(5));
    assert_eq!(answer.text().await.expect("body"), "hello");
    let upper = HELLO.to_uppercase();
    for unknown in [&"0".repeat(64), upper.as_str(), "..%2F..%2Fetc%2Fpasswd", "secret", "sha256:x"] {
        let answer = ask(unknown).await.expect("answer");
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{unknown}");
        assert_eq!(answer.json::<serde_json::Value>().await.expect("body")["error"]["code"], "not_found");
    }
}
