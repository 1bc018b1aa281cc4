//! Cargos that accounts publish: review, service, versions, and what they may not name.

use std::fmt::Write as _;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    backup::succeeds,
    support::{
        admin::{Admin, operator},
        answer,
        island::{Island, completed, token},
        network::{Account, ECHO, Network},
    },
};

/// A Cargo that scripted Islands can run.
fn manifest(slug: &str, price: u32) -> String {
    let own = ECHO.replace("slug = \"echo\"", &format!("slug = \"{slug}\"")).replace("aliases = [\"parrot\"]\n", "");
    own.replace("price_per_job = 1", &format!("price_per_job = {price}"))
}

/// The same, with a file that no scripted Island has.
fn with_file(slug: &str) -> String {
    let file = format!(
        "model_url = \"https://example.org/model.gguf\"\nmodel_hash = \"{}\"\nmodel_size_bytes = 5\n[limits]",
        "0".repeat(64)
    );
    manifest(slug, 1).replace("[limits]", &file)
}

async fn call(network: &Network, account: &Account, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    let request = network.http.request(method, format!("{}{path}", network.url)).bearer_auth(&account.key);
    answer(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

async fn publish(network: &Network, account: &Account, manifest: &str) -> (u16, Value) {
    call(network, account, Method::POST, "/publications", Some(json!({ "manifest": manifest }))).await
}

/// Publishes a manifest of the consumer, which must be valid, and returns its id.
async fn submitted(network: &Network, manifest: &str) -> String {
    let (status, body) = publish(network, &network.consumer, manifest).await;
    assert_eq!((status, &body["data"]["state"]), (201, &json!("submitted")), "{body}");
    body["data"]["id"].as_str().expect("an id").to_owned()
}

async fn review(admin: &Admin<'_>, id: &str, verb: &str) -> (u16, Value) {
    admin.post(&format!("/publications/{id}/{verb}"), &json!({ "reason": format!("{verb} it") })).await
}

/// Publishes a manifest and has it approved.
async fn approved(admin: &Admin<'_>, manifest: &str) -> String {
    let id = submitted(admin.network, manifest).await;
    let (status, body) = review(admin, &id, "approve").await;
    assert_eq!((status, &body["data"]["state"]), (200, &json!("approved")), "{body}");
    id
}

/// The catalogue entry of a Cargo, if it is served.
async fn entry(network: &Network, slug: &str) -> Option<Value> {
    let list = network.get("/cargos").await;
    list["cargos"].as_array().expect("a list").iter().find(|cargo| cargo["slug"] == slug).cloned()
}

async fn submit(network: &Network, slug: &str) -> (u16, Value) {
    let body = json!({"workload": slug, "input": {"prompt": "hi"}});
    call(network, &network.consumer, Method::POST, "/jobs", Some(body)).await
}

fn id_of(body: &Value) -> String {
    body["data"]["id"].as_str().expect("an id").to_owned()
}

async fn run(island: &mut Island) -> Value {
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    json!(run.cargo)
}

#[tokio::test]
async fn a_cargo_is_served_and_its_jobs_are_paid_once_an_operator_has_approved_it() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    let manifest = manifest("my-model", 2);
    let id = submitted(&network, &manifest).await;
    assert_eq!(entry(&network, "my-model").await, None, "it waits for review");
    assert_eq!(submit(&network, "my-model").await.1["error"]["code"], "workload_not_found");

    let waiting = admin.get("/publications?state=submitted").await;
    assert_eq!((&waiting["meta"]["total"], &waiting["data"][0]["id"]), (&json!(1), &json!(id)), "{waiting}");
    let read = admin.get(&format!("/publications/{id}")).await;
    assert_eq!((&read["data"]["manifest"], &read["data"]["name"]), (&json!(manifest), &json!("Echo")));
    for _ in 0..2 {
        let (status, body) = review(&admin, &id, "approve").await;
        assert_eq!((status, &body["data"]["reason"]), (200, &json!("approve it")), "{body}");
    }
    let log = admin.get(&format!("/audit-log?account={}", network.consumer.id)).await;
    let approvals: Vec<_> =
        log["data"].as_array().expect("entries").iter().filter(|entry| entry["action"] == "approve_cargo").collect();
    assert_eq!((approvals.len(), &approvals[0]["subject"]), (1, &json!("my-model")), "recorded once");

    let shown = entry(&network, "my-model").await.expect("it is served");
    assert_eq!(shown["published"]["publisher"], json!(network.consumer.id));
    assert_eq!(shown["published"]["publication"], json!(id));
    let echo = entry(&network, "echo").await.expect("an operator's Cargo");
    assert_eq!(echo.get("published"), None);
    let model = network.get("/models/my-model").await;
    assert_eq!(model["owned_by"], json!(network.consumer.id));
    network.served("my-model").await;
    assert_eq!(network.get("/market/rates/my-model").await["data"][0]["avg_price"], 2);

    let before = [network.credits(&network.consumer).await, network.credits(&network.owner).await];
    let (status, job) = submit(&network, "my-model").await;
    assert_eq!(status, 201, "{job}");
    run(&mut island).await;
    let job = network.job(&id_of(&job)).await;
    assert_eq!((&job["status"], &job["usage"]["credits_used"]), (&json!("completed"), &json!(2)), "{job}");
    assert!(network.credits(&network.consumer).await <= before[0] - 2.0);
    assert!(network.credits(&network.owner).await > before[1], "the Island's owner is paid");
    network.audit().await;
}

#[tokio::test]
async fn a_published_cargo_can_be_disabled() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    approved(&admin, &with_file("my-model")).await;
    let models = async || network.get("/models").await["data"].as_array().expect("a list").len();
    assert_eq!(models().await, 2);
    let reason = json!({"reason": "a wrong model"});
    assert_eq!(admin.post("/cargos/my-model/disable", &reason).await.0, 200);
    assert_eq!(submit(&network, "my-model").await.1["error"]["code"], "workload_disabled");
    assert_eq!((models().await, entry(&network, "my-model").await), (1, None));
    assert_eq!(admin.post("/cargos/my-model/enable", &reason).await.0, 200);
    assert_eq!(submit(&network, "my-model").await.0, 201);
}

#[tokio::test]
async fn a_rejected_cargo_is_never_served_and_its_publisher_reads_why() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let id = submitted(&network, &manifest("my-model", 1)).await;
    for _ in 0..2 {
        let (status, body) = review(&admin, &id, "reject").await;
        assert_eq!((status, &body["data"]["state"]), (200, &json!("rejected")), "{body}");
    }
    assert_eq!(entry(&network, "my-model").await, None);
    let read = network.get(&format!("/publications/{id}")).await;
    assert_eq!(read["data"]["reason"], "reject it");
    let (status, body) = review(&admin, &id, "approve").await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("publication_already_final")), "{body}");
    // Another version may be approved, and be rejected later.
    let id = approved(&admin, &manifest("my-model", 1)).await;
    assert!(entry(&network, "my-model").await.is_some());
    assert_eq!(review(&admin, &id, "reject").await.0, 200);
    assert_eq!(entry(&network, "my-model").await, None);
    assert_eq!(network.get("/publications").await["meta"]["total"], 2);
}

#[tokio::test]
async fn a_new_version_waits_while_the_earlier_one_is_served_and_open_jobs_keep_theirs() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let first = approved(&admin, &manifest("my-model", 1)).await;
    let (status, job) = submit(&network, "my-model").await;
    assert_eq!(status, 201, "{job}");
    let second = submitted(&network, &manifest("my-model", 2)).await;
    let third = submitted(&network, &manifest("my-model", 3)).await;
    let price = async || entry(&network, "my-model").await.expect("it is served")["price_per_job"].clone();
    assert_eq!(price().await, 1, "the others wait");
    assert_eq!(review(&admin, &third, "approve").await.0, 200);
    assert_eq!(price().await, 3);
    for (id, state) in [(&first, "replaced"), (&second, "replaced"), (&third, "approved")] {
        assert_eq!(network.get(&format!("/publications/{id}")).await["data"]["state"], state);
    }
    let mut island = Island::start(&network).await;
    let cargo = run(&mut island).await;
    assert_eq!(cargo["price_per_job"], 1, "as it was when the job was accepted");
    assert_eq!(network.job(&id_of(&job)).await["usage"]["credits_used"], 1);
    network.audit().await;
}

#[tokio::test]
async fn a_withdrawn_cargo_gets_no_new_jobs_and_its_open_one_survives_a_restart() {
    let mut network = Network::start().await;
    let key = operator(&network).await.key;
    let (id, job) = {
        let admin = Admin { network: &network, key };
        let id = approved(&admin, &manifest("my-model", 1)).await;
        let (_, job) = submit(&network, "my-model").await;
        (id, id_of(&job))
    };
    let path = format!("/publications/{id}");
    for _ in 0..2 {
        let (status, body) = call(&network, &network.consumer, Method::DELETE, &path, None).await;
        assert_eq!((status, &body["data"]["state"]), (200, &json!("withdrawn")), "{body}");
    }
    assert_eq!(submit(&network, "my-model").await.0, 404);
    network.down().await;
    network.up().await;
    assert_eq!(entry(&network, "my-model").await, None);
    let mut island = Island::start(&network).await;
    run(&mut island).await;
    assert_eq!(network.job(&job).await["status"], "completed");
    network.audit().await;
}

#[tokio::test]
async fn what_is_served_survives_a_restart_and_a_backup() {
    let mut network = Network::start().await;
    let key = operator(&network).await.key;
    approved(&Admin { network: &network, key }, &manifest("my-model", 1)).await;
    let number = network.get("/workloads/my-model").await["data"]["id"].clone();
    network.down().await;
    network.up().await;
    assert!(entry(&network, "my-model").await.is_some());
    assert_eq!(network.get("/workloads/my-model").await["data"]["id"], number);

    let file = network.path("backup.db");
    succeeds(&network.config, &network.path(""), &["backup", file.to_str().expect("text")]).await;
    network.down().await;
    network.config.database =
        island_coordinator_domain::config::Database { path: network.path("other.db"), ..Default::default() };
    succeeds(&network.config, &network.path(""), &["restore", file.to_str().expect("text")]).await;
    network.up().await;
    assert!(entry(&network, "my-model").await.is_some());
}

#[tokio::test]
async fn faults_name_their_lines() {
    let network = Network::start().await;
    let good = with_file("my-model");
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    let line_of = |text: &str, what: &str| {
        1 + text.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{what} in {text}")) as u64
    };
    for (bad, at, why) in [
        (changed("price_per_job = 1", "price_per_job = -1"), "price_per_job", "below zero"),
        (changed("https://example.org/model.gguf", "file:///etc/passwd"), "model_url", "hf://owner/repo:file"),
        (changed("https://example.org/model.gguf", "https://192.168.0.1/m"), "model_url", "hf://owner/repo:file"),
        (changed("model_size_bytes = 5\n", ""), "model_url", "its length"),
        (changed("[limits]", "aliases = [\"gpt-4\"]\n[limits]"), "aliases", "no aliases"),
        (changed("\"my-model\"", "\"gpt-4\""), "slug", "reserved"),
        (changed("type = [\"string\", \"object\"]", "\"$ref\" = \"#\""), "[output_schema]", "$ref"),
        (changed("[limits]", "repository = { url = \"file:///etc\", files = [\"passwd\"] }\n[limits]"), "repository", "hash"),
        (changed("[limits]", "unknown = 1\n[limits]"), "unknown", "unknown field"),
        ("slug = ".to_owned(), "slug", ""),
    ] {
        let (status, body) = publish(&network, &network.consumer, &bad).await;
        let error = &body["error"];
        assert_eq!((status, &error["code"]), (422, &json!("invalid_manifest")), "{bad}: {body}");
        let details = error["details"].as_array().expect("details");
        let found = details.iter().any(|detail| {
            let is_there = detail["line"].as_u64() == Some(line_of(&bad, at));
            is_there && detail["message"].as_str().is_some_and(|message| message.contains(why))
        });
        assert!(found, "{at}, {why}: {body}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains("line ")), "{body}");
    }
    // All faults at once.
    let two = changed("price_per_job = 1", "price_per_job = -1").replace("required_ram_mb = 100", "required_ram_mb = 100\nlimits = 1");
    assert_eq!(publish(&network, &network.consumer, &two).await.0, 422);
    let two = changed("price_per_job = 1", "price_per_job = -1").replace("\"Echo\"", "\" \"");
    let (_, body) = publish(&network, &network.consumer, &two).await;
    assert_eq!(body["error"]["details"].as_array().map(Vec::len), Some(2), "{body}");
    // Nothing of this machine is shown.
    let task = changed("runtime_type = \"llmcpp\"", "runtime_type = \"onnx\"\nonnx_task_type = \"nothing\"");
    let task = task.split("[input_schema]").next().expect("a part").to_owned() + "[example]\ninput = {}\n";
    let (_, body) = publish(&network, &network.consumer, &task).await;
    assert!(!body.to_string().contains(&*network.path("").to_string_lossy()), "{body}");
    assert_eq!(network.get("/publications").await["meta"]["total"], 0);
}

#[tokio::test]
async fn a_slug_belongs_to_one_account_or_the_operators() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    for taken in ["echo", "parrot"] {
        let (status, body) = publish(&network, &network.consumer, &manifest(taken, 1)).await;
        assert_eq!((status, &body["error"]["code"]), (422, &json!("slug_taken")), "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|message| message.contains(taken)), "{body}");
    }
    let refused = async || {
        let (status, body) = publish(&network, &network.owner, &manifest("my-model", 1)).await;
        assert_eq!((status, &body["error"]["code"]), (422, &json!("slug_taken")), "{body}");
    };
    let id = approved(&admin, &manifest("my-model", 1)).await;
    refused().await;
    let path = format!("/publications/{id}");
    assert_eq!(call(&network, &network.consumer, Method::DELETE, &path, None).await.0, 200);
    // Jobs, prices and clients name it.
    refused().await;
    // Nobody was ever served this one.
    let id = submitted(&network, &manifest("other", 1)).await;
    assert_eq!(publish(&network, &network.owner, &manifest("other", 1)).await.1["error"]["code"], "slug_taken");
    let path = format!("/publications/{id}");
    assert_eq!(call(&network, &network.consumer, Method::DELETE, &path, None).await.0, 200);
    assert_eq!(publish(&network, &network.owner, &manifest("other", 1)).await.0, 201);
}

#[tokio::test]
async fn only_operators_review_and_only_publishers_read_their_own() {
    let network = Network::start().await;
    let id = submitted(&network, &manifest("my-model", 1)).await;
    let reason = Some(json!({"reason": "r"}));
    for (method, path, body) in [
        (Method::GET, "/admin/publications".to_owned(), None),
        (Method::GET, format!("/admin/publications/{id}"), None),
        (Method::POST, format!("/admin/publications/{id}/approve"), reason.clone()),
        (Method::POST, format!("/admin/publications/{id}/reject"), reason),
    ] {
        let (status, answered) = call(&network, &network.consumer, method, &path, body).await;
        assert_eq!((status, &answered["error"]["code"]), (403, &json!("forbidden")), "{path}");
    }
    for method in [Method::GET, Method::DELETE] {
        let (status, body) = call(&network, &network.owner, method, &format!("/publications/{id}"), None).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("publication_not_found")), "{body}");
    }
    assert_eq!(call(&network, &network.owner, Method::GET, "/publications", None).await.1["meta"]["total"], 0);
    let (_, key) = call(
        &network,
        &network.consumer,
        Method::POST,
        "/api-keys",
        Some(json!({"name": "reader", "scopes": ["read"]})),
    )
    .await;
    let reader = Account { id: network.consumer.id, key: key["key"].as_str().expect("a key").to_owned() };
    assert_eq!(call(&network, &reader, Method::GET, "/publications", None).await.1["meta"]["total"], 1);
    assert_eq!(publish(&network, &reader, &manifest("more", 1)).await.0, 403);
}

#[tokio::test]
async fn a_repeated_submission_is_one_and_few_wait_at_a_time() {
    let network = Network::start().await;
    let body = json!({ "manifest": manifest("my-model", 1) });
    let keyed = || network.call(Method::POST, "/publications").header("Idempotency-Key", "k").json(&body);
    let (first, again) = (answer(keyed()).await, answer(keyed()).await);
    assert_eq!((first.0, &first.1), (again.0, &again.1));
    for number in 1..=20 {
        let (status, body) = publish(&network, &network.consumer, &manifest(&format!("model-{number}"), 1)).await;
        assert_eq!(status, if number < 20 { 201 } else { 422 }, "{body}");
    }
    // A newer version takes the place of the one that waits, and of those that ended some are kept.
    for price in 2..30 {
        submitted(&network, &manifest("my-model", price)).await;
    }
    let listed = network.get("/publications?limit=100").await;
    assert_eq!(listed["meta"]["total"], 40, "20 that wait, and the newest 20 that ended");
    let mut states = String::new();
    for publication in listed["data"].as_array().expect("a list") {
        let _ = write!(states, "{} ", publication["state"].as_str().expect("a state"));
    }
    assert_eq!(states.matches("submitted").count(), 20, "{states}");
}

/// The manifest with these lines in the schema of its prompt, and this prompt as its example.
fn with_prompt(slug: &str, schema: &str, example: &str) -> String {
    let manifest = manifest(slug, 1);
    let schema = format!("prompt = {{ type = \"string\", {schema} }}");
    let manifest = manifest.replace("prompt = { type = \"string\", maxLength = 1000 }", &schema);
    manifest.replace("prompt = \"hello\"", &format!("prompt = \"{example}\""))
}

#[tokio::test]
async fn a_schema_that_takes_too_many_steps_is_refused() {
    let network = Network::start().await;
    let branches = "{ pattern = '^(?:a|b)+$' },".repeat(32);
    let many = vec!["{}"; 2_000].join(",");
    for (schema, example, why) in [
        ("pattern = '^(?:a|a|aa)+(?=c)'".to_owned(), "a".repeat(100), "no look-around"),
        ("pattern = '(a)\\1'".to_owned(), "aa".to_owned(), "no look-around"),
        ("pattern = '(.{1,60}){1,60}'".to_owned(), "a".to_owned(), "maxLength"),
        (format!("allOf = [{branches}{branches}]"), "a".to_owned(), "64 patterns, and may have 32"),
        (format!("allOf = [{branches}]"), "a".repeat(20_000), "takes more than 8000000 steps"),
        (format!("anyOf = [{many}], allOf = [{{ unevaluatedProperties = false }}]"), "a".to_owned(), "unevaluatedProperties"),
    ] {
        let (status, body) = publish(&network, &network.consumer, &with_prompt("too-much", &schema, &example)).await;
        assert_eq!((status, &body["error"]["code"]), (422, &json!("invalid_manifest")), "{body}");
        let message = body["error"]["message"].as_str().expect("a message");
        assert!(message.contains(why), "{why}: {message}");
    }
}

#[tokio::test]
async fn an_input_that_takes_too_many_steps_is_refused() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    approved(&admin, &with_prompt("patterned", "pattern = '^a+$'", "aaa")).await;
    let job = |prompt: String| {
        let body = json!({"workload": "patterned", "input": {"prompt": prompt}});
        call(&network, &network.consumer, Method::POST, "/jobs", Some(body))
    };
    let (status, body) = job("a".repeat(600_000)).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("invalid_input")), "{body}");
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(message.contains("more than 8000000 steps"), "{message}");
    let (status, body) = job("ab".to_owned()).await;
    assert_eq!((status, &body["error"]["param"]), (422, &json!("input.prompt")), "{body}");
    let (status, body) = job("a".repeat(300_000)).await;
    assert_eq!(status, 201, "{body}");
    run(&mut island).await;
}
