//! Where the key comes from, and what `auth` keeps.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use axum::{
    Router,
    http::{HeaderMap, StatusCode},
    routing::get,
};

/// A coordinator that knows two keys and says which account each belongs to.
async fn serve() -> String {
    let account = |headers: HeaderMap| async move {
        let key =
            headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let email = match key.as_str() {
            "Bearer ak_one" => "one@example.org",
            "Bearer ak_two" => "two@example.org",
            "Bearer ak_three" => "three@example.org",
            _ => {
                let body = r#"{"error":{"message":"this key is not known","code":"invalid_api_key"}}"#;
                return (StatusCode::UNAUTHORIZED, body.to_owned());
            }
        };
        let body = format!(
            r#"{{"data":{{"id":"00000000-0000-0000-0000-000000000001","email":"{email}","credits":12.5,
            "created_at":"2026-11-20T00:00:00Z"}}}}"#
        );
        (StatusCode::OK, body)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(
        async move { axum::serve(listener, Router::new().route("/api/v1/account", get(account))).await },
    );
    format!("http://{address}")
}

async fn island(home: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_island"));
    command.args(arguments).env_clear().env("HOME", home).envs(variables.iter().copied());
    let result =
        tokio::task::spawn_blocking(move || command.output()).await.expect("join").expect("run island");
    let text = [result.stdout, result.stderr].concat();
    (result.status.code(), String::from_utf8(text).expect("text"))
}

#[tokio::test]
async fn flag_then_environment_then_file() {
    let url = serve().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let at = [("SERVICE_API_URL", url.as_str())];
    let (code, text) = island(home.path(), &at, &["auth", "login", "--key", "ak_one"]).await;
    assert_eq!(code, Some(0), "{text}");
    let file = home.path().join(".island/config.toml");
    assert_eq!(fs::metadata(&file).expect("saved").permissions().mode() & 0o777, 0o600);

    let both = [("SERVICE_API_URL", url.as_str()), ("SERVICE_API_KEY", "ak_two")];
    let (_, text) = island(home.path(), &[], &["account"]).await;
    assert!(text.contains("one@example.org") && text.contains("12.50"), "the file: {text}");
    let (_, text) = island(home.path(), &both, &["account"]).await;
    assert!(text.contains("two@example.org"), "the environment: {text}");
    let (_, text) = island(home.path(), &both, &["--api-key", "ak_three", "auth", "status"]).await;
    assert!(text.contains("three@example.org"), "the flag: {text}");

    let (code, text) = island(home.path(), &at, &["auth", "logout"]).await;
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = island(home.path(), &at, &["account"]).await;
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("island auth login"), "{text}");
}

#[tokio::test]
async fn a_key_that_does_not_work_is_not_saved() {
    let url = serve().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let at = [("SERVICE_API_URL", url.as_str())];
    let (code, _) = island(home.path(), &at, &["auth", "login", "--key", "ak_wrong"]).await;
    assert_eq!(code, Some(3));
    let (code, text) = island(home.path(), &at, &["auth", "login", "--key", "wrong"]).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("'ak_'"), "{text}");
    assert!(!home.path().join(".island/config.toml").exists());
}

#[tokio::test]
async fn other_programs_keys_in_the_file_are_kept() {
    let url = serve().await;
    let home = tempfile::tempdir().expect("temporary folder");
    fs::create_dir_all(home.path().join(".island")).expect("folder");
    let file = home.path().join(".island/config.toml");
    fs::write(&file, "[host]\nname = \"attic\"\n").expect("write");
    let at = [("SERVICE_API_URL", url.as_str())];
    let (code, text) = island(home.path(), &at, &["auth", "login", "--key", "ak_one"]).await;
    assert_eq!(code, Some(0), "{text}");
    let saved = fs::read_to_string(&file).expect("read");
    assert!(saved.contains("name = \"attic\"") && saved.contains("ak_one"), "{saved}");
}
