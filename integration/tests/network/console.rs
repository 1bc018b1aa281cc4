//! The web console, used by people in a real browser against a network with the fixtures.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use island_integration::{Network, Options, has_postgres, program};
use island_testing::{oidc::Provider, port::free_port};
use serde_json::Value;

fn root() -> PathBuf {
    island_testing::workspace()
}

fn installed(path: &str) -> PathBuf {
    let path = root().join(path);
    assert!(path.exists(), "{} is missing: run `scripts/setup.sh test` first", path.display());
    path
}

/// Runs the stories of `integration/console`, each of which begins signed out: all of those that share a network, or one.
fn run_stories(network: &Network, environment: &[(&str, String)], story: Option<&str>) {
    let result = Command::new(installed(".tools/venv/bin/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .envs(environment.iter().cloned())
        .arg(root().join("integration/console/stories.py"))
        .arg(network.folder())
        .arg(program("island-agent"))
        .arg(installed(".tools/node/node_modules/axe-core/axe.min.js"))
        .args(story)
        .output()
        .expect("run the stories");
    let (out, err) = (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    assert!(story.is_none_or(|story| err.contains(story)), "the story ran: {err}");
    assert!(result.status.success() && out.trim() == "ok", "{out}\n{err}\n{}", network.logs());
}

#[test]
fn people_use_the_console() {
    let page = free_port();
    let agent = vec![("CONTROL__ALLOW_REMOTE", "true".to_owned()), ("PAGE__PORT", page.to_string())];
    let coordinator = vec![("CONSOLE__GRAFANA", "https://grafana.example.org/".to_owned())];
    let network = Network::start_with(&Options { agent, coordinator, ..Options::default() });
    run_stories(&network, &[("ISLAND_PAGE", format!("http://127.0.0.1:{page}"))], None);
}

#[test]
fn people_sign_in_with_a_provider() {
    let (own, provider) = (free_port(), free_port());
    let url = format!("http://127.0.0.1:{own}");
    let _provider = Provider::start(provider, &format!("{url}/api/v1/login/callback"));
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    fs::write(&secret, "a secret\n").expect("write the secret");
    let coordinator = vec![
        ("HTTP__PUBLIC_URL", url),
        ("ACCOUNTS__SIGNUP_CREDITS", "2".to_owned()),
        ("OIDC__ISSUER", format!("http://127.0.0.1:{provider}")),
        ("OIDC__CLIENT_ID", "island".to_owned()),
        ("OIDC__CLIENT_SECRET", secret.display().to_string()),
        ("OIDC__EMAIL_DOMAINS", "[\"example.org\"]".to_owned()),
    ];
    let options = Options { islands: 0, api_port: Some(own), coordinator, ..Options::default() };
    let network = Network::start_with(&options);
    for story in ["a_person_signs_in_with_a_provider", "a_session_needs_encryption"] {
        run_stories(&network, &[], Some(story));
    }
}

fn browser() -> reqwest::Client {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client")
}

/// Signs in with a key or a code, as the form at this address does; returns the cookie.
async fn sign_in(url: &str, path: &str, field: &str, secret: &str) -> Option<String> {
    let form = format!("{field}={secret}");
    let request = browser().post(format!("{url}{path}")).header("origin", url).body(form);
    let answer = request.send().await.expect("an answer");
    let cookie = answer.headers().get("set-cookie")?.to_str().expect("text");
    cookie.split(';').next().map(str::to_owned)
}

async fn status(url: &str, path: &str, cookie: &str) -> u16 {
    let request = browser().get(format!("{url}{path}")).header("cookie", cookie);
    request.send().await.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn several_coordinators_share_sessions() {
    assert!(has_postgres(), "PostgreSQL is missing: run `scripts/setup.sh test` first");
    let mut network = Network::start_with(&Options { postgres: true, islands: 0, ..Options::default() });
    let (one, key) = (network.info("api_url").to_owned(), network.info("api_key").to_owned());
    let other = network.another_coordinator();
    let cookie = sign_in(&one, "/console/sign-in", "key", &key).await.expect("signed in");
    assert_eq!(status(&other, "/console/keys", &cookie).await, 200, "the other coordinator accepts it");
    // A link made by one signs in at the other, once.
    let link = network.client().sign_in_link().await.expect("a link");
    let linked = sign_in(&other, "/console/sign-in/link", "code", &link.code).await.expect("signed in");
    assert_eq!(status(&one, "/console/keys", &linked).await, 200);
    assert_eq!(sign_in(&one, "/console/sign-in/link", "code", &link.code).await, None, "it was used");
    // Signing out at one of them ends that session at both, and no other.
    let request = browser().post(format!("{other}/console/sign-out"));
    let request = request.header("origin", &other).header("cookie", &cookie);
    assert_eq!(request.send().await.expect("an answer").status().as_u16(), 303);
    assert_eq!(status(&one, "/console/keys", &cookie).await, 303, "it leads to the page for signing in");
    assert_eq!(status(&one, "/console/keys", &linked).await, 200);
}

/// The cookie that opening a link in a browser sets, as an address that somebody enters.
async fn open(link: &str) -> Option<String> {
    let request = browser().get(link).header("sec-fetch-site", "none");
    let answer = request.send().await.expect("an answer");
    let cookie = answer.headers().get("set-cookie")?.to_str().expect("text");
    cookie.split(';').next().map(str::to_owned)
}

/// What `scripts/demo.sh` ends with, and `island dev` begins with.
#[tokio::test]
async fn programs_print_links_that_sign_a_browser_in_once() {
    let network = Network::start_with(&Options { islands: 0, ..Options::default() });
    let (url, key) = (network.info("api_url"), network.info("api_key"));
    let island = |arguments: &[&str]| {
        let mut command = Command::new(program("island"));
        command.args(arguments).env_clear().env("HOME", network.folder());
        command.env("SERVICE_API_URL", url).env("SERVICE_API_KEY", key).stdin(Stdio::null());
        let result = command.output().expect("run island");
        assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
        String::from_utf8(result.stdout).expect("text")
    };
    let json = island(&["console", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let announced = || {
        let log = fs::read_to_string(network.folder().join("dev.log")).expect("the output of `island dev`");
        let line = log.lines().find_map(|line| line.split_once("console, signed in once: "));
        line.map(|(_, link)| link.trim().to_owned())
    };
    // The file that reports the network as ready is there before the link is printed.
    for _ in 0..600 {
        if announced().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for link in [
        island(&["console"]).trim().to_owned(),
        json["url"].as_str().expect("an address").to_owned(),
        announced().expect("a link"),
    ] {
        assert!(link.starts_with(&format!("{url}/console/sign-in/link?code=")), "{link}");
        assert!(!link.contains(key), "a link is not a key");
        let cookie = open(&link).await.expect("signed in");
        assert_eq!(status(url, "/console/keys", &cookie).await, 200);
        assert_eq!(open(&link).await, None, "it was used");
    }
}

#[tokio::test]
async fn a_network_may_have_no_console() {
    let options = Options {
        islands: 0,
        coordinator: vec![("CONSOLE__ENABLED", "false".to_owned())],
        ..Options::default()
    };
    let network = Network::start_with(&options);
    let answer = browser().get(network.info("api_url")).send().await.expect("an answer");
    assert_eq!(answer.headers()["location"], "/docs");
    assert_eq!(status(network.info("api_url"), "/console/sign-in", "").await, 404);
    assert_eq!(status(network.info("api_url"), "/internal/session", "").await, 404);
}

#[tokio::test]
async fn routes_of_the_console_alone_are_not_served() {
    let network = Network::start_with(&Options { islands: 0, ..Options::default() });
    let url = network.info("api_url");
    for path in
        ["/internal/session", "/internal/session/begin", "/internal/islands", "/api/v1/internal/session"]
    {
        let request = browser().get(format!("{url}{path}")).bearer_auth(network.info("api_key"));
        assert_eq!(request.send().await.expect("an answer").status().as_u16(), 404, "{path}");
    }
    // The API itself takes no cookies.
    let cookie = sign_in(url, "/console/sign-in", "key", network.info("api_key")).await.expect("signed in");
    assert_eq!(status(url, "/api/v1/account", &cookie).await, 401);
    // Market rates are public in the console alone.
    assert_eq!(status(url, "/api/v1/market/rates", "").await, 401);
    assert_eq!(status(url, "/console/market", "").await, 200);
}
