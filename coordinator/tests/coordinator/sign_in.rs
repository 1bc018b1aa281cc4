//! Sign-in with a real OpenID Connect provider.

use std::{collections::BTreeMap, fs, net::Ipv4Addr};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use island_coordinator_domain::config::{Config, Oidc};
use island_testing::{oidc::Provider, port::free_port};
use reqwest::{Client, Method, Url, redirect::Policy};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{
    admin::{Admin, operator},
    answer,
    network::Network,
};

/// A network with sign-in for people of `example.org`.
async fn start() -> (Network, Provider) {
    start_with(|_| {}).await
}

/// The same with changed settings.
async fn start_with(change: impl FnOnce(&mut Config)) -> (Network, Provider) {
    let (own, provider) = (free_port(), free_port());
    let url = format!("http://127.0.0.1:{own}");
    let running = Provider::start(provider, &format!("{url}/api/v1/login/callback"));
    let folder = tempfile::tempdir().expect("folder");
    let secret = folder.path().join("secret");
    fs::write(&secret, "a secret\n").expect("write the secret");
    let network = Network::start_with(|config| {
        config.http.listen = (Ipv4Addr::LOCALHOST, own).into();
        config.http.public_url = Some(url.parse().expect("an address"));
        config.accounts.signup_credits = 2;
        config.oidc = Some(Oidc {
            issuer: format!("http://127.0.0.1:{provider}"),
            client_id: "island".into(),
            client_secret: Some(secret),
            email_domains: vec!["example.org".into()],
            key_days: 30,
        });
        change(config);
    });
    (network.await, running)
}

/// A browser, as far as a sign-in needs one.
struct Browser {
    http: Client,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    fn new() -> Self {
        let http = Client::builder().redirect(Policy::none()).build().expect("a client");
        Self { http, cookies: BTreeMap::new() }
    }

    /// Follows redirections of one request to the last page, or to the program that waits, which is not requested.
    async fn open(&mut self, method: Method, url: Url, form: &str, waits: &str) -> (Url, u16, String) {
        let (mut method, mut url) = (method, url);
        loop {
            let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
            let request = self.http.request(method.clone(), url.clone());
            let request = request.header("cookie", cookies.collect::<Vec<_>>().join("; "));
            let request = if method == Method::POST {
                request.header("content-type", "application/x-www-form-urlencoded").body(form.to_owned())
            } else {
                request
            };
            let response = request.send().await.expect("an answer");
            for cookie in response.headers().get_all("set-cookie") {
                let cookie = cookie.to_str().expect("text").split(';').next().expect("a cookie");
                let (name, value) = cookie.split_once('=').expect("a name and a value");
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
            let status = response.status().as_u16();
            let Some(location) = response.headers().get("location") else {
                return (url, status, response.text().await.expect("text"));
            };
            let location = url.join(location.to_str().expect("text")).expect("an address");
            if location.as_str().starts_with(waits) {
                return (location, status, String::new());
            }
            (method, url) = (Method::GET, location);
        }
    }

    /// Goes from the beginning of a sign-in over the provider's pages, as the person with this address, to the last page.
    async fn confirm(&mut self, begin: Url, email: &str, waits: &str) -> (Url, u16, String) {
        let (mut page, mut status, mut text) = self.open(Method::GET, begin, "", waits).await;
        for form in [format!("prompt=login&login={email}&password=x"), "prompt=consent".to_owned()] {
            if page.as_str().starts_with(waits) || !page.path().starts_with("/interaction/") {
                break;
            }
            (page, status, text) = self.open(Method::POST, page, &form, waits).await;
        }
        (page, status, text)
    }

    /// Begins a sign-in at the console. Returns the address of the provider to which the browser goes.
    async fn begin_at_console(&self, origin: &str) -> Url {
        let request = self.http.post(format!("{origin}/console/sign-in/provider")).header("origin", origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded").body("next=");
        let response = request.send().await.expect("an answer");
        let refresh = response.headers()["refresh"].to_str().expect("text");
        refresh.strip_prefix("0;url=").expect("an address").parse().expect("an address")
    }

    /// Signs in as the person with this address. Returns the code, or the answer of the page at which it ended.
    async fn sign_in(&mut self, network: &Network, email: &str, verifier: &str) -> Result<String, Value> {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
        let (port, begin) = (free_port(), format!("{}/login", network.url));
        let waits = format!("http://127.0.0.1:{port}/");
        let port = port.to_string();
        let begin = Url::parse_with_params(&begin, [("port", &port), ("challenge", &challenge)]).expect("an address");
        let (page, status, text) = self.confirm(begin, email, &waits).await;
        if page.as_str().starts_with(&waits) {
            let code = page.query_pairs().find(|(name, _)| name == "code").expect("a code").1.into_owned();
            return Ok(code);
        }
        Err(serde_json::from_str(&text).unwrap_or_else(|_| panic!("{page} {status}: {text}")))
    }
}

async fn finish(network: &Network, code: &str, verifier: &str) -> (u16, Value) {
    let body = json!({"code": code, "verifier": verifier});
    answer(network.http.post(format!("{}/login", network.url)).json(&body)).await
}

#[tokio::test]
async fn a_person_gets_an_account_at_the_first_sign_in_and_the_same_one_afterwards() {
    let (network, _provider) = start().await;
    let mut accounts = Vec::new();
    for verifier in ["a first random text", "a second random text"] {
        let code = Browser::new().sign_in(&network, "ada@example.org", verifier).await.expect("a code");
        let (status, refused) = finish(&network, &code, "another text").await;
        assert_eq!((status, &refused["error"]["code"]), (403, &json!("login_failed")), "not who began");
        let (status, body) = finish(&network, &code, verifier).await;
        assert_eq!((status, &body["data"]["email"], &body["data"]["credits"]), (201, &json!("ada@example.org"), &json!(2)), "{body}");
        let keys = network.http.get(format!("{}/api-keys", network.url)).bearer_auth(body["key"].as_str().expect("a key"));
        let (status, keys) = answer(keys).await;
        assert_eq!(status, 200);
        assert!(keys["data"].as_array().expect("keys").iter().all(|key| key["expires_at"].is_string()), "{keys}");
        accounts.push(body["data"]["id"].clone());
        assert_eq!(finish(&network, &code, verifier).await.0, 403, "a code is valid once");
    }
    assert_eq!(accounts[0], accounts[1]);
    let other = Browser::new().sign_in(&network, "bob@example.org", "text").await.expect("a code");
    assert_ne!(finish(&network, &other, "text").await.1["data"]["id"], accounts[0]);
    network.audit().await;
}

#[tokio::test]
async fn keys_of_earlier_sign_ins_do_not_pile_up() {
    let (network, _provider) = start().await;
    let mut sign_ins = Vec::new();
    for verifier in ["a first random text", "a second random text"] {
        let code = Browser::new().sign_in(&network, "ada@example.org", verifier).await.expect("a code");
        let (status, body) = finish(&network, &code, verifier).await;
        assert_eq!(status, 201, "{body}");
        if sign_ins.is_empty() {
            let pool = network.sql().await;
            let account = body["data"]["id"].as_str().expect("an id");
            // One of the account's own, one that has expired, and more than are kept.
            for number in 10..40_i64 {
                let name = if number == 10 { "laptop" } else { "sign-in" };
                sqlx::query(
                    "INSERT INTO api_keys (id, account_id, name, prefix, hash, created_at, expires_at) \
                     VALUES ($1, $2, $3, 'ak_x', $1, $4, $5)",
                )
                .bind(format!("00000000-0000-7000-8000-0000000000{number}"))
                .bind(account)
                .bind(name)
                .bind(number)
                .bind((number == 39).then_some(1_i64))
                .execute(&pool)
                .await
                .expect("written");
            }
            pool.close().await;
        }
        sign_ins.push(body["key"].as_str().expect("a key").to_owned());
    }
    let of = |key: &str| answer(network.http.get(format!("{}/api-keys", network.url)).bearer_auth(key));
    assert_eq!(of(&sign_ins[0]).await.0, 200, "the sign-in before was used last");
    let (_, listed) = of(&sign_ins[1]).await;
    let ids: Vec<&str> =
        listed["data"].as_array().expect("keys").iter().map(|key| key["id"].as_str().expect("an id")).collect();
    let kept: Vec<&str> =
        ids.iter().filter_map(|id| id.strip_prefix("00000000-0000-7000-8000-0000000000")).collect();
    // The key that was not made by a sign-in, and the nineteen newest of the others that have not expired.
    let expected: Vec<String> = [10].into_iter().chain(20..=38).map(|number: i64| number.to_string()).collect();
    assert_eq!(kept, expected, "{listed}");
    assert_eq!(ids.len(), kept.len() + 2, "{listed}");
    network.audit().await;
}

#[tokio::test]
async fn a_person_whose_account_was_closed_gets_another_one() {
    let (network, _provider) = start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut accounts = Vec::new();
    for verifier in ["a first random text", "a second random text"] {
        let code = Browser::new().sign_in(&network, "ada@example.org", verifier).await.expect("a code");
        let (status, body) = finish(&network, &code, verifier).await;
        assert_eq!((status, &body["data"]["email"]), (201, &json!("ada@example.org")), "{body}");
        let key = body["key"].as_str().expect("a key");
        let own = network.http.get(format!("{}/account", network.url)).bearer_auth(key);
        assert_eq!(answer(own).await.0, 200, "its key is accepted");
        let path = format!("/accounts/{}", body["data"]["id"].as_str().expect("an id"));
        let (status, body) = admin.post(&format!("{path}/deductions"), &json!({"amount": 2, "reason": "r"})).await;
        assert_eq!(status, 200, "{body}");
        let (status, body) = admin.post(&format!("{path}/close"), &json!({"reason": "requested"})).await;
        assert_eq!(status, 200, "{body}");
        accounts.push(path);
    }
    assert_ne!(accounts[0], accounts[1]);
    network.audit().await;
}

#[tokio::test]
async fn only_confirmed_people_of_the_domain_without_another_account_sign_in() {
    let (network, _provider) = start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    assert_eq!(admin.post("/accounts", &json!({"email": "taken@example.org"})).await.0, 201);
    for (email, why) in [
        ("eve@elsewhere.example", "may not sign in"),
        ("unverified@example.org", "has not verified"),
        ("taken@example.org", "has an account already"),
    ] {
        let refused = Browser::new().sign_in(&network, email, "text").await.expect_err("refused");
        assert_eq!(refused["error"]["code"], "login_failed", "{email}");
        assert!(refused["error"]["message"].as_str().expect("text").contains(why), "{refused}");
    }
    for query in ["state=unknown&code=x", "code=x", "state=unknown&error=access_denied"] {
        let callback = network.http.get(format!("{}/login/callback?{query}", network.url));
        assert_eq!(answer(callback).await.1["error"]["code"], "login_failed", "{query}");
    }
    for query in ["", "port=0&challenge=x", "port=70000", "port=80&challenge=short"] {
        let (status, body) = answer(network.http.get(format!("{}/login?{query}", network.url))).await;
        assert_eq!((status, &body["error"]["code"]), (400, &json!("invalid_request")), "{query}");
    }
    network.audit().await;
}

#[tokio::test]
async fn a_sign_in_that_the_console_began_ends_at_the_console_and_states_why_it_failed() {
    let (network, provider) = start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    assert_eq!(admin.post("/accounts", &json!({"email": "taken@example.org"})).await.0, 201);
    let origin = network.url.strip_suffix("/api/v1").expect("the address of the API").to_owned();
    let console = format!("{origin}/console/");
    let end = |page: &Url| format!("{}?{}", page.path(), page.query().unwrap_or_default());
    for (email, reason) in [
        ("eve@elsewhere.example", "not_allowed"),
        ("unverified@example.org", "not_verified"),
        ("taken@example.org", "has_account"),
    ] {
        let mut browser = Browser::new();
        let begin = browser.begin_at_console(&origin).await;
        let (page, ..) = browser.confirm(begin, email, &console).await;
        assert_eq!(end(&page), format!("/console/sign-in?failed={reason}"), "{email}");
    }
    let mut browser = Browser::new();
    let begin = browser.begin_at_console(&origin).await;
    let state = begin.query_pairs().find(|(name, _)| name == "state").expect("a state").1.into_owned();
    let (page, ..) = browser.confirm(begin, "ada@example.org", &console).await;
    assert!(end(&page).starts_with("/console/sign-in/provider/end?code="), "{page}");

    let open = browser.begin_at_console(&origin).await;
    let other = open.query_pairs().find(|(name, _)| name == "state").expect("a state").1.into_owned();
    let mut provider = Some(provider);
    for (query, reason) in [
        (format!("state={state}&code=x"), "expired"),
        ("state=console.unknown&code=x".to_owned(), "expired"),
        (format!("state={other}"), "not_confirmed"),
        (format!("state={other}&error=access_denied"), "not_confirmed"),
        (format!("state={other}&code=x"), "not_confirmed"),
        (format!("state={other}&code=x"), "unavailable"),
    ] {
        if reason == "unavailable" {
            drop(provider.take());
        }
        let callback = format!("{}/login/callback?{query}", network.url).parse().expect("an address");
        let (page, ..) = browser.open(Method::GET, callback, "", &console).await;
        assert_eq!(end(&page), format!("/console/sign-in?failed={reason}"), "{query}");
    }
    network.audit().await;
}

#[tokio::test]
async fn without_a_provider_there_is_no_sign_in_and_one_that_is_away_is_named() {
    let network = Network::start().await;
    let (status, body) = answer(network.http.get(format!("{}/login?port=80", network.url))).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("not_found")));
    let (network, provider) = start().await;
    drop(provider);
    let challenge = "a".repeat(43);
    let begin = network.http.get(format!("{}/login?port=80&challenge={challenge}", network.url));
    let (status, body) = answer(begin).await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("service_unavailable")), "{body}");
}

#[tokio::test]
async fn sign_ins_that_the_console_begins_are_limited_for_each_client() {
    let behind_proxy = |config: &mut Config| {
        config.http.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    };
    let (network, _provider) = start_with(behind_proxy).await;
    let origin = network.url.strip_suffix("/api/v1").expect("the address of the API");
    let mut statuses = Vec::new();
    // More than two minutes allow.
    for _ in 1..=61 {
        let request = network.http.post(format!("{origin}/console/sign-in/provider")).header("origin", origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded").body("next=");
        statuses.push(request.send().await.expect("an answer").status().as_u16());
    }
    assert_eq!(statuses[0], 200);
    assert!(statuses.contains(&429), "{statuses:?}");
}
