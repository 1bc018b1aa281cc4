//! Prices of Cargos, recommendations for Islands, and the ledger of an account.

use std::fs;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, finished},
    network::{COUNT, ECHO, Network},
    soon,
};

fn slug_and_more(cargo: &str, slug: &str, more: &str) -> String {
    let head = format!("slug = \"{slug}\"\n{more}\n");
    let rest: Vec<&str> =
        cargo.lines().filter(|line| !line.starts_with("slug") && !line.starts_with("aliases")).collect();
    head + &rest.join("\n")
}

/// `echo` and `count`, two models that the scripted Island can have, one that is too large and one of another engine.
async fn start() -> Network {
    Network::start_with(|config| {
        let file = |name: &str, text: &str| {
            fs::write(config.catalogue.dir.join(name), text).expect("cargo file");
        };
        let path = config.catalogue.dir.join("m.gguf");
        fs::write(&path, "model").expect("model");
        let model = |hash: &str| format!("model_url = \"file://{}\"\n{hash}", path.display());
        let hash = format!("model_hash = \"sha256:{}\"", "ab".repeat(32));
        file("small.toml", &slug_and_more(COUNT, "small", &model(&hash)));
        let other = |slug: &str| slug_and_more(ECHO, slug, &model(""));
        file("other.toml", &other("other"));
        file("large.toml", &other("large").replace("required_ram_mb = 100", "required_ram_mb = 64000"));
        file("foreign.toml", &other("foreign").replace("llmcpp", "wasm"));
    })
    .await
}

async fn open(network: &Network, path: &str) -> (u16, Value) {
    answer(network.http.get(format!("{}{path}", network.url))).await
}

async fn run_one(network: &Network, island: &mut Island) -> String {
    let id = network.submit().await;
    let run = island.take().await;
    island.end(run.key, run.first_event, finished(json!("done"))).await;
    id
}

#[tokio::test]
async fn rates_are_settled_prices_or_the_list_price() {
    let network = start().await;
    let mut island = Island::start(&network).await;
    // A heartbeat has no reply.
    let able = async {
        loop {
            let count = network.get("/market/rates/count").await["data"][0].clone();
            if count["num_hosts"] == 1 {
                return count;
            }
        }
    };
    let count = soon("the Island's heartbeat", able).await;
    assert_eq!((&count["avg_price"], &count["num_jobs"]), (&json!(0.25), &json!(0)));
    assert_eq!(network.get("/market/history/echo").await["data"], json!([]));
    run_one(&network, &mut island).await;
    run_one(&network, &mut island).await;
    let cancelled = network.submit().await;
    network.call(Method::DELETE, &format!("/jobs/{cancelled}")).send().await.expect("answer");

    let rates = network.get("/market/rates").await["data"].clone();
    let slugs: Vec<&Value> =
        rates.as_array().expect("list").iter().map(|rate| &rate["workload_slug"]).collect();
    assert_eq!(slugs, ["count", "echo", "foreign", "large", "other", "small"]);
    let echo = network.get("/market/rates/echo").await["data"].clone();
    assert_eq!(echo.as_array().expect("list of one").len(), 1);
    assert_eq!(
        (&echo[0]["avg_price"], &echo[0]["min_price"], &echo[0]["max_price"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!((&echo[0]["num_jobs"], &echo[0]["num_hosts"]), (&json!(2), &json!(1)));
    let hosts = |slug: &str| {
        rates.as_array().expect("list").iter().find(|rate| rate["workload_slug"] == slug).expect("rate")["num_hosts"].clone()
    };
    assert_eq!((hosts("large"), hosts("foreign")), (json!(0), json!(0)), "nobody is able");

    let history = network.get("/market/history/echo").await["data"].clone();
    let jobs: u64 =
        history.as_array().expect("list").iter().filter_map(|hour| hour["num_jobs"].as_u64()).sum();
    assert_eq!(jobs, 2);
    assert_eq!(history[0]["num_hosts"], 1);
    assert!(history[0]["timestamp"].as_str().expect("text").ends_with(":00:00.000Z"));
    for path in ["/market/rates/nothing", "/market/history/nothing"] {
        let (status, body) = answer(network.call(Method::GET, path)).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("workload_not_found")));
    }
}

#[tokio::test]
async fn recommendations_fit_the_hardware_and_start_with_the_highest_demand() {
    let network = start().await;
    let island = Island::start(&network).await;
    let path = format!("/island/recommendations?host_id={}", island.id);
    let (status, body) = open(&network, &path).await;
    assert_eq!((status, &body["host_id"]), (200, &json!(island.id)), "{body}");
    let slugs = |body: &Value| -> Vec<String> {
        let list = body["recommendations"].as_array().expect("list");
        list.iter().map(|one| one["workload_slug"].as_str().expect("slug").to_owned()).collect()
    };
    assert_eq!(slugs(&body), ["other", "small"], "models only, and what fits");
    let pool = network.sql().await;
    let waits = |preferences: Value| {
        let body = json!({"workload": "small", "input": {"text": "x"}, "preferences": preferences});
        answer(network.call(Method::POST, "/jobs").json(&body))
    };
    assert_eq!(waits(json!({})).await.0, 201);
    sqlx::query(
        "INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, deadline, \
         created_at, completed_at) SELECT 'done', account_id, workload_id, workload_slug, 'completed', '{}', 0, 0, 0, \
         created_at, created_at FROM jobs",
    )
    .execute(&pool)
    .await
    .expect("a job that completed");
    // No Island could serve these two, so no download would help.
    assert_eq!(waits(json!({"regions": ["nowhere"]})).await.0, 201);
    assert_eq!(waits(json!({"own": "only"})).await.0, 201);
    let counted = async {
        loop {
            let (_, body) = open(&network, &path).await;
            if slugs(&body) == ["small", "other"] && body["recommendations"][0]["queued_demand"] == 1 {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    // Counts are kept for fifty times what they cost.
    let body = soon("the demand", counted).await;
    let best = body["recommendations"][0].clone();
    let url = best["model_url"].as_str().expect("address");
    assert!(url.starts_with("file:///") && url.ends_with("/m.gguf"), "{url}");
    let hash = format!("sha256:{}", "ab".repeat(32));
    assert_eq!(
        best,
        json!({
            "workload_slug": "small", "model_url": url, "model_hash": hash, "runtime_type": "llmcpp",
            "estimated_earnings_per_job": "0.25", "queued_demand": 1, "demand_score": 12,
            "artifacts": [{"name": "model", "url": url, "sha256": hash}],
        })
    );
    assert_eq!(body["recommendations"][1]["model_hash"], Value::Null);
    pool.close().await;

    for (query, status, code) in [
        ("", 400, "invalid_request"),
        ("?host_id=x", 422, "validation_error"),
        ("?host_id=00000000-0000-4000-8000-000000000000", 404, "host_not_found"),
    ] {
        let (found, body) = open(&network, &format!("/island/recommendations{query}")).await;
        assert_eq!((found, &body["error"]["code"]), (status, &json!(code)), "{query}");
    }
}

#[tokio::test]
async fn every_movement_of_credits_is_in_the_ledger() {
    let network = start().await;
    let mut island = Island::start(&network).await;
    let id = run_one(&network, &mut island).await;
    let page = network.get("/account/ledger").await;
    assert_eq!(page["meta"], json!({"total": 4, "limit": 20, "offset": 0}));
    let moved: Vec<(&str, &str, f64)> = page["data"]
        .as_array()
        .expect("list")
        .iter()
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().expect("text");
            (text("kind"), text("book"), entry["amount"].as_f64().expect("number"))
        })
        .collect();
    assert_eq!(
        moved,
        [
            ("settle", "holds", -1.0),
            ("hold", "holds", 1.0),
            ("hold", "balance", -1.0),
            ("grant", "balance", 10.0)
        ]
    );
    assert_eq!(page["data"][0]["job_id"], json!(id));
    assert!(page["data"][3].get("job_id").is_none());
    let second = network.get("/account/ledger?limit=1&offset=3").await;
    assert_eq!((&second["data"][0], &second["meta"]["total"]), (&page["data"][3], &json!(4)));
    let earned = network.http.get(format!("{}/account/ledger", network.url)).bearer_auth(&network.owner.key);
    let (_, earned) = answer(earned).await;
    assert_eq!((&earned["data"][0]["kind"], &earned["data"][0]["amount"]), (&json!("settle"), &json!(1)));
}

#[tokio::test]
async fn karma_and_the_size_of_the_network() {
    let network = start().await;
    let told = |body: &Value| body["data"].clone();
    let (status, body) = open(&network, "/network/stats").await;
    assert_eq!((status, told(&body)), (200, json!({"online_islands": 0, "regions": 0, "jobs_completed": 0})));
    let mut island = Island::start(&network).await;
    run_one(&network, &mut island).await;
    let (_, body) = open(&network, "/network/stats").await;
    assert_eq!(told(&body), json!({"online_islands": 1, "regions": 1, "jobs_completed": 1}));
    let karma = network.get(&format!("/hosts/{}/karma", island.id)).await["data"].clone();
    assert_eq!(karma["host_id"], json!(island.id));
    assert!(karma["karma"].is_number() && karma["karma"] == karma["karma_score"]);
    let (status, body) = answer(network.call(Method::GET, "/hosts/nobody/karma")).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("host_not_found")));
}
