//! Where the key comes from, and what `auth` keeps.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, ChildStderr, Stdio},
};

use crate::{
    program::{command, run},
    server::Server,
};

async fn island(home: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
    let ran = run(command(home, variables, arguments), "").await;
    (ran.code, ran.out + &ran.err)
}

#[tokio::test]
async fn flag_then_environment_then_file() {
    let Server { url, .. } = Server::start().await;
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
    assert!(text.contains("three@example.org") && text.contains("the flag"), "the flag: {text}");
    let empty = [("SERVICE_API_KEY", "")];
    let (_, text) = island(home.path(), &empty, &["auth", "status"]).await;
    assert!(text.contains("one@example.org") && text.contains("config.toml"), "an empty variable: {text}");

    let (code, text) = island(home.path(), &at, &["auth", "logout"]).await;
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = island(home.path(), &at, &["account"]).await;
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("island auth login"), "{text}");
}

/// Starts a sign-in, and returns it with the address that it shows and the lines of its standard error.
fn sign_in(home: &Path, url: &str) -> (Child, String, Lines<BufReader<ChildStderr>>) {
    let mut command = command(home, &[("SERVICE_API_URL", url)], &["auth", "login", "--browser"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start island");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let shown = lines.find_map(|line| {
        let line = line.expect("a line");
        line.split_once("sign in at ").map(|(_, address)| address.to_owned())
    });
    (child, shown.expect("an address is shown"), lines)
}

/// What a browser sends to the program that waits.
fn bring(port: &str, target: &str) -> String {
    let mut browser = TcpStream::connect(format!("127.0.0.1:{port}")).expect("the program waits");
    write!(browser, "GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").expect("sent");
    let mut page = String::new();
    browser.read_to_string(&mut page).expect("a page");
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_in_a_browser_saves_the_key() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    for (code, exit) in [("wrong", Some(3)), ("aB3", Some(0))] {
        let (child, address, lines) = sign_in(home.path(), &url);
        let (begin, query) = address.split_once('?').expect("a query");
        assert_eq!(begin, format!("{url}/api/v1/login"));
        let (port, challenge) = query.split_once("&challenge=").expect("a challenge");
        assert_eq!(challenge.len(), 43, "{address}");
        let port = port.strip_prefix("port=").expect("a port");
        assert!(bring(port, "/favicon.ico").starts_with("HTTP/1.1 404"), "other requests do not end it");
        assert!(bring(port, &format!("/?code={code}")).contains("You can close this page"));
        let ran = child.wait_with_output().expect("it ends");
        let rest: Vec<String> = lines.map(|line| line.expect("a line")).collect();
        assert_eq!(ran.status.code(), exit, "{rest:?}");
    }
    let (_, text) = island(home.path(), &[], &["account"]).await;
    assert!(text.contains("one@example.org"), "{text}");
}

/// Connections to 0.0.0.0 arrive on this machine, but it is not an address of loopback.
#[tokio::test]
async fn keys_leave_this_machine_in_plain_text_only_if_allowed() {
    let server = Server::start().await;
    let elsewhere = server.url.replace("127.0.0.1", "0.0.0.0");
    let home = tempfile::tempdir().expect("temporary folder");
    let at = [("SERVICE_API_URL", elsewhere.as_str()), ("SERVICE_API_KEY", "ak_one")];
    let (code, text) = island(home.path(), &at, &["account"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("is not encrypted") && text.contains("--allow-plaintext"), "{text}");
    assert_eq!(server.asked().len(), 0, "nothing was sent");
    let (code, text) = island(home.path(), &at, &["--allow-plaintext", "account"]).await;
    assert_eq!(code, Some(0), "{text}");
    let allowed = [at[0], at[1], ("SERVICE_ALLOW_PLAINTEXT", "true")];
    let (code, text) = island(home.path(), &allowed, &["account"]).await;
    assert_eq!(code, Some(0), "{text}");
    let wrong = [at[0], at[1], ("SERVICE_ALLOW_PLAINTEXT", "perhaps")];
    let (code, text) = island(home.path(), &wrong, &["account"]).await;
    assert_eq!(code, Some(2), "{text}");

    // Who allowed it when the key was saved need not repeat it.
    let login = ["--allow-plaintext", "auth", "login", "--key", "ak_one"];
    let (code, text) = island(home.path(), &at[..1], &login).await;
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = island(home.path(), &[], &["account"]).await;
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test]
async fn a_key_that_does_not_work_is_not_saved() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let at = [("SERVICE_API_URL", url.as_str())];
    let (code, _) = island(home.path(), &at, &["auth", "login", "--key", "ak_wrong"]).await;
    assert_eq!(code, Some(3));
    let (code, text) = island(home.path(), &at, &["auth", "login", "--key", "wrong"]).await;
    assert_eq!(code, Some(2));
    assert!(text.contains("'ak_'"), "{text}");
    assert!(!home.path().join(".island/config.toml").exists());
}

#[tokio::test]
async fn signing_up_saves_the_key() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let refused = ["signup", "--coordinator", &server.url, "one@example.org", "USED-UP"];
    let (code, text) = island(home.path(), &[], &refused).await;
    assert_eq!(code, Some(5), "{text}");
    assert!(!home.path().join(".island/config.toml").exists());

    // A key in use, of another account, is not sent.
    let variables = [("SERVICE_API_KEY", "ak_two")];
    let wanted = ["signup", "--coordinator", &server.url, "one@example.org", "CODE"];
    let (code, text) = island(home.path(), &variables, &wanted).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Signed up as one@example.org with 12.5 credits"), "{text}");
    assert!(text.contains("SERVICE_API_KEY is set and overrides the saved key"), "{text}");
    assert!(!text.contains("ak_one"), "the key is saved, not shown: {text}");
    let asked = server.asked().pop().expect("asked");
    assert_eq!(
        (asked.line.as_str(), asked.body.as_str()),
        ("POST /signup", r#"{"email":"one@example.org","code":"CODE"}"#)
    );
    let file = home.path().join(".island/config.toml");
    assert_eq!(fs::metadata(&file).expect("saved").permissions().mode() & 0o777, 0o600);
    let (_, text) = island(home.path(), &[], &["account"]).await;
    assert!(text.contains("one@example.org"), "the address and the key are saved: {text}");
}

#[tokio::test]
async fn the_key_of_a_new_account_is_printed_if_it_cannot_be_saved() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    // A folder in place of the file that is written first.
    fs::create_dir_all(home.path().join(".island/config.toml.new")).expect("in the way");
    let wanted = ["signup", "--coordinator", &server.url, "one@example.org", "CODE"];
    for format in ["text", "json"] {
        let ran = run(command(home.path(), &[], &[&wanted[..], &["--format", format]].concat()), "").await;
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.out.contains("ak_one"), "{}", ran.out);
        assert!(ran.err.contains("write ") && ran.err.contains("config.toml.new"), "{}", ran.err);
    }
}

#[tokio::test]
async fn other_programs_keys_in_the_file_are_kept() {
    let Server { url, .. } = Server::start().await;
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

#[tokio::test]
async fn a_key_comes_from_standard_input_too() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let at = [("SERVICE_API_URL", url.as_str())];
    let ran = run(command(home.path(), &at, &["auth", "login"]), "ak_two\n").await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("two@example.org"), "{}", ran.out);
}

#[tokio::test]
async fn a_file_that_others_can_read_is_closed_to_them() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let file = home.path().join(".island/config.toml");
    fs::create_dir_all(home.path().join(".island")).expect("folder");
    fs::write(&file, format!("api_url = \"{url}\"\napi_key = \"ak_one\"\n")).expect("write");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("open it");
    let ran = run(command(home.path(), &[], &["account", "--format", "json"]), "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("mode 644") && ran.err.contains("closed it"), "{}", ran.err);
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    let ran = run(command(home.path(), &[], &["account"]), "").await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "the second run prints nothing");
}

#[tokio::test]
async fn a_broken_file_is_named() {
    let home = tempfile::tempdir().expect("temporary folder");
    fs::create_dir_all(home.path().join(".island")).expect("folder");
    fs::write(home.path().join(".island/config.toml"), "api_key = ").expect("write");
    let (code, text) = island(home.path(), &[], &["account"]).await;
    assert_eq!(code, Some(1));
    assert!(text.contains(".island/config.toml"), "{text}");
    assert!(text.contains("try: correct") && text.contains("remove it"), "{text}");
}

#[tokio::test]
async fn a_misspelt_key_is_named() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    fs::create_dir_all(home.path().join(".island")).expect("folder");
    let text = format!("api_url = \"{url}\"\napi_ky = \"ak_one\"\n[host]\nname = \"attic\"\n");
    fs::write(home.path().join(".island/config.toml"), text).expect("write");
    let at = [("SERVICE_API_KEY", "ak_one")];
    let ran = run(command(home.path(), &at, &["account"]), "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("unknown key 'api_ky'") && !ran.err.contains("host"), "{}", ran.err);
}
