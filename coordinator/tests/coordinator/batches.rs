//! `/batches`.

use island_protocol::job::{Failure, FailureCode, Outcome};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{
    files::{content, upload},
    support::{
        admin::{Admin, operator},
        answer,
        island::{Island, completed, token},
        network::{ECHO, Network},
        soon,
    },
};

const CHAT: &str = "/v1/chat/completions";

/// A line of an input file.
fn line(custom_id: &str, url: &str, body: &Value) -> String {
    format!("{}\n", json!({"custom_id": custom_id, "method": "POST", "url": url, "body": body}))
}

fn chats(names: &[&str]) -> String {
    let body = |name: &&str| json!({"model": "echo", "messages": [{"role": "user", "content": name}]});
    names.iter().map(|name| line(name, CHAT, &body(name))).collect()
}

fn create(network: &Network, file: &str, change: impl FnOnce(&mut Value)) -> RequestBuilder {
    let mut body = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"});
    change(&mut body);
    network.call(Method::POST, "/batches").json(&body)
}

/// Uploads a file and creates a batch of it. Returns its id.
async fn begin(network: &Network, content: &str, change: impl FnOnce(&mut Value)) -> String {
    let file = upload(network, content).await;
    let (status, batch) = answer(create(network, &file, change)).await;
    assert_eq!((status, &batch["status"]), (200, &json!("validating")), "{batch}");
    batch["id"].as_str().expect("an id").to_owned()
}

async fn batch(network: &Network, id: &str) -> Value {
    network.get(&format!("/batches/{id}")).await
}

async fn until(network: &Network, id: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let reached = async {
        loop {
            let batch = batch(network, id).await;
            if condition(&batch) {
                return batch;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(what, reached).await
}

async fn ended(network: &Network, id: &str) -> Value {
    let finals = ["completed", "failed", "expired", "cancelled"];
    until(network, id, "the end of the batch", |batch| {
        finals.contains(&batch["status"].as_str().expect("a status"))
    })
    .await
}

/// The lines of a file of results.
async fn results(network: &Network, batch: &Value, name: &str) -> Vec<Value> {
    let Some(id) = batch[name].as_str() else { return Vec::new() };
    let text = content(network, id).await;
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Runs jobs that repeat their message, until `count` have ended. Those whose message is `fail` fail.
async fn serve(island: &mut Island, count: usize) {
    for _ in 0..count {
        let run = island.take().await;
        let said = run.input["messages"][0]["content"].as_str().expect("a message").to_owned();
        if said == "fail" {
            let failure = Failure::of_job(FailureCode::InvalidInput, "it is bad");
            island.end(run.key, run.first_event, Outcome::failed(failure)).await;
            continue;
        }
        island.send(run.key, run.first_event, vec![token(&said)]).await;
        island.end(run.key, run.first_event + 1, completed(3, 1)).await;
    }
}

#[tokio::test]
async fn every_line_has_a_result_in_the_order_of_the_lines() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let id = begin(&network, &chats(&["a", "b", "fail", "c", "d", "e"]), |body| {
        body["metadata"] = json!({"night": "one"});
    })
    .await;
    serve(&mut island, 6).await;
    let batch = ended(&network, &id).await;
    assert_eq!(batch["status"], "completed");
    assert_eq!(batch["request_counts"], json!({"total": 6, "completed": 5, "failed": 1}));
    assert_eq!((&batch["object"], &batch["metadata"]), (&json!("batch"), &json!({"night": "one"})));
    assert_eq!((&batch["errors"], &batch["credits"]), (&Value::Null, &json!(5)), "a failure costs nothing");
    let created = batch["created_at"].as_i64().expect("seconds");
    assert_eq!(batch["expires_at"], created + 24 * 3600);
    for time in ["in_progress_at", "finalizing_at", "completed_at"] {
        assert!(batch[time].as_i64().expect(time) >= created, "{batch}");
    }

    let good = results(&network, &batch, "output_file_id").await;
    let ids: Vec<&str> = good.iter().map(|line| line["custom_id"].as_str().expect("an id")).collect();
    assert_eq!(ids, ["a", "b", "c", "d", "e"]);
    for line in &good {
        assert_eq!((&line["error"], &line["response"]["status_code"]), (&Value::Null, &json!(200)));
        let said = &line["response"]["body"]["choices"][0]["message"]["content"];
        assert_eq!(said, &line["custom_id"]);
        assert_eq!(line["response"]["body"]["usage"]["total_tokens"], 4);
    }
    let bad = results(&network, &batch, "error_file_id").await;
    assert_eq!((bad.len(), &bad[0]["custom_id"]), (1, &json!("fail")));
    assert_eq!(bad[0]["response"]["status_code"], 422);
    assert_eq!(bad[0]["response"]["body"]["error"]["code"], "invalid_input");
    let file = network.get(&format!("/files/{}", batch["output_file_id"].as_str().expect("a file"))).await;
    assert_eq!(file["purpose"], "batch_output");
    assert!((network.credits(&network.consumer).await - 5.0).abs() < 1e-9);
    network.audit().await;

    let list = network.get("/batches?limit=1").await;
    assert_eq!((&list["data"][0], &list["has_more"]), (&batch, &json!(false)));
    let strange = network.http.get(format!("{}/batches/{id}", network.url)).bearer_auth(&network.owner.key);
    let (status, body) = answer(strange).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("batch_not_found")));
    let (status, body) = answer(network.call(Method::POST, &format!("/batches/{id}/cancel"))).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("batch_already_final")));
}

#[tokio::test]
async fn other_endpoints_are_called_likewise() {
    let network = Network::start_with(|config| {
        let text = ECHO.replace("slug = \"echo\"", "slug = \"writer\"").replace("aliases = [\"parrot\"]", "");
        let properties = "[input_schema.properties]";
        let text = text.replace(properties, &format!("{properties}\nraw_prompt = {{ type = \"string\" }}"));
        std::fs::write(config.catalogue.dir.join("writer.toml"), text).expect("cargo file");
    })
    .await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let cases = [
        ("/v1/completions", json!({"model": "writer", "prompt": "hi"}), "text_completion"),
        ("/v1/responses", json!({"model": "echo", "input": "hi"}), "response"),
    ];
    for (url, body, object) in cases {
        let id = begin(&network, &line("one", url, &body), |body| body["endpoint"] = json!(url)).await;
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("yes")]).await;
        island.end(run.key, run.first_event + 1, completed(1, 1)).await;
        let batch = ended(&network, &id).await;
        let good = results(&network, &batch, "output_file_id").await;
        assert_eq!((good.len(), &good[0]["response"]["body"]["object"]), (1, &json!(object)), "{batch}");
    }
    // No Cargo embeds texts here.
    let embeddings = "/v1/embeddings";
    let text = line("one", embeddings, &json!({"model": "echo", "input": "hi"}));
    let id = begin(&network, &text, |body| body["endpoint"] = json!(embeddings)).await;
    let batch = ended(&network, &id).await;
    let bad = results(&network, &batch, "error_file_id").await;
    assert_eq!(bad[0]["response"]["body"]["error"]["code"], "workload_not_found", "{batch}");
    assert_eq!((&batch["output_file_id"], &batch["request_counts"]["failed"]), (&Value::Null, &json!(1)));
}

#[tokio::test]
async fn faults_of_a_file_are_reported_by_line_and_nothing_runs() {
    let network = Network::start().await;
    let _island = Island::start(&network).await;
    let text = chats(&["a"]) + "no JSON\n\n" + &line("b", "/v1/embeddings", &json!({})) + &chats(&["a"]);
    let id = begin(&network, &text, |_| {}).await;
    let batch = ended(&network, &id).await;
    assert_eq!((&batch["status"], &batch["failed_at"].is_i64()), (&json!("failed"), &true));
    let faults: Vec<(Value, Value)> = batch["errors"]["data"]
        .as_array()
        .expect("errors")
        .iter()
        .map(|error| (error["line"].clone(), error["code"].clone()))
        .collect();
    let expected = [(2, "invalid_json_line"), (4, "invalid_request"), (5, "duplicate_custom_id")];
    assert_eq!(faults, expected.map(|(line, code)| (json!(line), json!(code))));
    assert_eq!((&batch["output_file_id"], &batch["error_file_id"]), (&Value::Null, &Value::Null));
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0);
}

type Change = fn(&mut Value);

#[tokio::test]
async fn bad_requests_name_the_field_and_limits_hold() {
    let network = Network::start_with(|config| config.batches.per_account = 1).await;
    let file = upload(&network, &chats(&["a"])).await;
    let cases: [(Change, u16, &str); 8] = [
        (|body| body["completion_window"] = json!("30m"), 422, "completion_window"),
        (|body| body["completion_window"] = json!("8d"), 422, "completion_window"),
        (|body| body["endpoint"] = json!("/v1/images"), 422, "endpoint"),
        (|body| body["input_file_id"] = json!("file-x"), 404, "input_file_id"),
        (|body| body["input_file_id"] = json!(format!("file-{}", uuid::Uuid::nil())), 404, "input_file_id"),
        (|body| body["max_credits"] = json!(-1), 422, "max_credits"),
        (|body| body["metadata"] = json!({"a": 1}), 422, "metadata.a"),
        (|body| body["metadata"] = json!({"a": "x".repeat(513)}), 422, "metadata"),
    ];
    for (change, expected, param) in cases {
        let (status, body) = answer(create(&network, &file, change)).await;
        assert_eq!((status, &body["error"]["param"]), (expected, &json!(param)), "{body}");
        assert!(body["error"]["type"].is_string(), "{body}");
    }
    let other = create(&network, &file, |_| {}).build().expect("a request");
    let strange = network.http.post(other.url().clone()).bearer_auth(&network.owner.key);
    let body = other.body().and_then(|body| body.as_bytes()).expect("bytes").to_vec();
    let (status, body) = answer(strange.header("Content-Type", "application/json").body(body)).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("file_not_found")), "another account's file");

    // Without an Island it stays open. A repeated request with the same key is the same batch.
    let keyed = || create(&network, &file, |_| {}).header("Idempotency-Key", "k");
    let (first, second) = (answer(keyed()).await, answer(keyed()).await);
    assert_eq!((first.0, &first.1["id"]), (200, &second.1["id"]));
    let (status, body) = answer(create(&network, &file, |_| {})).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("too_many_batches")));
    let (status, body) = answer(network.call(Method::DELETE, &format!("/files/{file}"))).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("file_in_use")));
    let id = first.1["id"].as_str().expect("an id");
    assert_eq!(answer(network.call(Method::POST, &format!("/batches/{id}/cancel"))).await.0, 200);
    ended(&network, id).await;
    assert_eq!(answer(network.call(Method::DELETE, &format!("/files/{file}"))).await.0, 200);
}

#[tokio::test]
async fn no_more_than_some_requests_run_at_one_time() {
    let network = Network::start_with(|config| config.batches.concurrent_requests = 2).await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let names: Vec<String> = (0..7).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let id = begin(&network, &chats(&names[..4]), |_| {}).await;
    let second = begin(&network, &chats(&names[4..]), |_| {}).await;
    for _ in 0..names.len() {
        // The batches of an account share the number.
        let open = network.get("/jobs").await;
        let open = open["data"].as_array().expect("jobs").iter().filter(|job| job["completed_at"].is_null()).count();
        assert!(open <= 2, "{open} jobs are open");
        serve(&mut island, 1).await;
    }
    for id in [&id, &second] {
        assert_eq!(ended(&network, id).await["status"], "completed");
    }
    network.audit().await;
}

#[tokio::test]
async fn batches_of_one_account_do_not_keep_those_of_others_waiting() {
    let mut network = Network::start_with(|config| {
        config.batches.running = 4;
        config.batches.concurrent_requests = 1;
    })
    .await;
    // No Island is there, so that none ends.
    let mut of_one = Vec::new();
    for _ in 0..6 {
        of_one.push(begin(&network, &chats(&["a"]), |_| {}).await);
    }
    for id in &of_one[..2] {
        until(&network, id, "the begin of half of them", |batch| batch["status"] == "in_progress").await;
    }
    network.consumer = network.owner.clone();
    let id = begin(&network, &chats(&["b"]), |_| {}).await;
    until(&network, &id, "the begin of another account's", |batch| batch["status"] == "in_progress").await;
}

#[tokio::test]
async fn a_batch_costs_no_more_than_its_maximum() {
    // One after the other, so that it is the first two after the failed one that are paid.
    let network = Network::start_with(|config| config.batches.concurrent_requests = 1).await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    // The failed one costs nothing, so that another one is made in its place.
    let names = ["fail", "a", "b", "c", "d"];
    let id = begin(&network, &chats(&names), |body| body["max_credits"] = json!(2.5)).await;
    serve(&mut island, 3).await;
    let batch = ended(&network, &id).await;
    assert_eq!(batch["status"], "completed");
    assert_eq!(batch["request_counts"], json!({"total": 5, "completed": 2, "failed": 3}));
    assert_eq!((&batch["credits"], &batch["max_credits"]), (&json!(2), &json!(2.5)));
    let bad = results(&network, &batch, "error_file_id").await;
    let codes: Vec<&Value> = bad.iter().map(|line| &line["response"]["body"]["error"]["code"]).collect();
    assert_eq!(codes.iter().filter(|code| **code == "max_credits_exceeded").count(), 2, "{bad:?}");
    assert!((network.credits(&network.consumer).await - 8.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn what_an_operator_refunds_is_left_of_the_maximum_of_an_open_batch() {
    let network = Network::start_with(|config| config.batches.concurrent_requests = 1).await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let id = begin(&network, &chats(&["a", "b", "c"]), |body| body["max_credits"] = json!(2.5)).await;
    let paid = island.take().await;
    island.send(paid.key, paid.first_event, vec![token("x")]).await;
    assert!(island.end(paid.key, paid.first_event + 1, completed(3, 1)).await.committed);
    let second = island.take().await;
    assert_eq!(batch(&network, &id).await["credits"], 2);
    let path = format!("/jobs/{}/refund", paid.key.job_id);
    for _ in 0..2 {
        let (status, body) = admin.post(&path, &json!({"reason": "wrong"})).await;
        assert_eq!((status, &body["data"]["amount"]), (200, &json!(1)), "{body}");
        assert_eq!(batch(&network, &id).await["credits"], 1, "it is refunded once");
    }
    island.send(second.key, second.first_event, vec![token("x")]).await;
    island.end(second.key, second.first_event + 1, completed(3, 1)).await;
    serve(&mut island, 1).await;
    let batch = ended(&network, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": 3, "completed": 3, "failed": 0}), "{batch}");
    assert_eq!(batch["credits"], 2);
    network.audit().await;
}

#[tokio::test]
async fn a_cancelled_batch_keeps_its_results_and_is_refunded() {
    let network = Network::start_with(|config| config.batches.concurrent_requests = 1).await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let id = begin(&network, &chats(&["a", "b", "c"]), |_| {}).await;
    serve(&mut island, 1).await;
    let run = island.take().await;
    let (status, cancelling) = answer(network.call(Method::POST, &format!("/batches/{id}/cancel"))).await;
    assert_eq!((status, &cancelling["status"]), (200, &json!("cancelling")));
    assert_eq!(island.cancelled().await.key, run.key);
    let batch = ended(&network, &id).await;
    assert_eq!((&batch["status"], &batch["request_counts"]["completed"]), (&json!("cancelled"), &json!(1)));
    assert!(batch["cancelled_at"].is_i64() && batch["cancelling_at"].is_i64());
    assert_eq!(results(&network, &batch, "output_file_id").await[0]["custom_id"], "a");
    let rest = results(&network, &batch, "error_file_id").await;
    let codes: Vec<(&Value, &Value)> = rest.iter().map(|line| (&line["custom_id"], &line["error"]["code"])).collect();
    let (late, b, c) = (json!("batch_cancelled"), json!("b"), json!("c"));
    assert_eq!(codes, [(&b, &late), (&c, &late)]);
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9, "nothing was delivered for the second");
    network.audit().await;
}

#[tokio::test]
async fn what_misses_its_window_is_cancelled_and_refunded() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let id = begin(&network, &chats(&["a", "b"]), |body| body["completion_window"] = json!("1h")).await;
    serve(&mut island, 1).await;
    let run = island.take().await;
    until(&network, &id, "the first result", |batch| batch["request_counts"]["completed"] == 1).await;
    let mut network = network;
    network.down().await;
    // While no coordinator runs: one that stops as it cancels may leave the notice to the leases, which this Island does not renew.
    let pool = network.sql().await;
    sqlx::query("UPDATE batches SET expires_at = 1").execute(&pool).await.expect("changed");
    pool.close().await;
    network.up().await;
    let ended_here = ended(&network, &id).await;
    assert_eq!(ended_here["status"], "expired", "{ended_here}");
    assert!(ended_here["expired_at"].is_i64());
    assert_eq!(island.cancelled().await.key, run.key);
    let rest = results(&network, &ended_here, "error_file_id").await;
    assert_eq!((rest.len(), &rest[0]["error"]["code"]), (1, &json!("batch_expired")));
    assert_eq!(results(&network, &ended_here, "output_file_id").await.len(), 1);
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn a_batch_ends_with_its_key() {
    let network = Network::start().await;
    let (status, created) =
        answer(network.call(Method::POST, "/api-keys").json(&json!({"name": "night"}))).await;
    assert_eq!(status, 201, "{created}");
    let (key, key_id) = (created["key"].as_str().expect("a key"), created["data"]["id"].as_str().expect("an id"));
    let file = upload(&network, &chats(&["a"])).await;
    let request = create(&network, &file, |_| {}).build().expect("a request");
    let body = request.body().and_then(|body| body.as_bytes()).expect("bytes").to_vec();
    let post = network.http.post(request.url().clone()).bearer_auth(key).header("Content-Type", "application/json");
    let (status, batch) = answer(post.body(body)).await;
    assert_eq!(status, 200, "{batch}");
    let id = batch["id"].as_str().expect("an id");
    until(&network, id, "the begin", |batch| batch["status"] == "in_progress").await;
    let revoked = network.call(Method::DELETE, &format!("/api-keys/{key_id}")).send().await.expect("answer");
    assert!(revoked.status().is_success());
    let batch = ended(&network, id).await;
    assert_eq!((&batch["status"], &batch["errors"]["data"][0]["code"]), (&json!("failed"), &json!("invalid_api_key")));
    network.audit().await;
}

#[tokio::test]
async fn requests_wait_for_an_island() {
    let network = Network::start_with(|config| config.batches.retry_ms = 100).await;
    let id = begin(&network, &chats(&["a"]), |_| {}).await;
    until(&network, &id, "the begin", |batch| batch["status"] == "in_progress").await;
    let mut island = Island::start(&network).await;
    serve(&mut island, 1).await;
    assert_eq!(ended(&network, &id).await["request_counts"]["completed"], 1);
    network.audit().await;
}

#[tokio::test]
async fn a_batch_that_is_cancelled_before_its_file_is_read_has_no_results() {
    let network = Network::start_with(|config| config.batches.running = 1).await;
    // Without an Island the first one stays open, so that the second one waits.
    let first = begin(&network, &chats(&["a"]), |_| {}).await;
    until(&network, &first, "the begin", |batch| batch["status"] == "in_progress").await;
    let second = begin(&network, &chats(&["b", "c"]), |_| {}).await;
    for id in [&second, &first] {
        let (status, body) = answer(network.call(Method::POST, &format!("/batches/{id}/cancel"))).await;
        assert_eq!((status, &body["status"]), (200, &json!("cancelling")), "{body}");
    }
    let batch = ended(&network, &second).await;
    assert_eq!((&batch["status"], &batch["request_counts"]["total"]), (&json!("cancelled"), &json!(0)), "{batch}");
    assert_eq!((&batch["output_file_id"], &batch["error_file_id"]), (&Value::Null, &Value::Null), "{batch}");
    let batch = ended(&network, &first).await;
    assert_eq!(results(&network, &batch, "error_file_id").await.len(), 1, "this one had begun");
}

#[tokio::test]
async fn no_request_of_a_suspended_account_begins_until_it_is_resumed() {
    // Both requests are taken from the file at once, and made one after the other.
    let network = Network::start_with(|config| {
        config.batches.concurrent_requests = 2;
        config.batches.retry_ms = 100;
        config.limits.concurrent_jobs = 2;
    })
    .await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let id = begin(&network, &chats(&["a", "b"]), |_| {}).await;
    let first = island.take().await;
    let account = format!("/accounts/{}", network.consumer.id);
    let reason = json!({"reason": "unpaid invoice 7"});
    assert_eq!(admin.post(&format!("{account}/suspend"), &reason).await.0, 200);
    island.send(first.key, first.first_event, vec![token("a")]).await;
    assert!(island.end(first.key, first.first_event + 1, completed(3, 1)).await.committed, "what has begun goes on");

    // A job of the owner, who has earned its price, comes after the second request if that begins.
    let body = json!({"workload": "echo", "input": {"prompt": "hi"}});
    let request = network.http.post(format!("{}/jobs", network.url)).bearer_auth(&network.owner.key).json(&body);
    let (status, job) = answer(request).await;
    assert_eq!(status, 201, "{job}");
    let other = island.take().await;
    assert_eq!(json!(other.key.job_id.to_string()), job["data"]["id"], "a request of the batch has begun");
    island.send(other.key, other.first_event, vec![token("a")]).await;
    assert!(island.end(other.key, other.first_event + 1, completed(3, 1)).await.committed);
    let pool = network.sql().await;
    let jobs: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM jobs").fetch_one(&pool).await.expect("count");
    pool.close().await;
    assert_eq!(jobs, 2, "a request of the batch has begun");

    assert_eq!(admin.post(&format!("{account}/resume"), &reason).await.0, 200);
    serve(&mut island, 1).await;
    let batch = ended(&network, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": 2, "completed": 2, "failed": 0}), "{batch}");
    network.audit().await;
}

#[tokio::test]
async fn a_killed_coordinator_loses_no_line_and_pays_none_twice() {
    let mut network = Network::start_process(|config| config.batches.concurrent_requests = 2).await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let id = begin(&network, &chats(&["a", "b", "c", "d"]), |_| {}).await;
    serve(&mut island, 1).await;
    until(&network, &id, "the first result", |batch| batch["request_counts"]["completed"] == 1).await;
    // Two run: one ends while no coordinator is there, the other goes on under the next one.
    let (one, other) = (island.take().await, island.take().await);
    for run in [&one, &other] {
        island.send(run.key, run.first_event, vec![token("x")]).await;
    }
    network.kill();
    network.up().await;
    island.register(&[one.key, other.key]).await;
    island.beat(&[]).await;
    for run in [&one, &other] {
        let lease = island.renew_until_answered(run.key, "run", 1, run.first_event).await.leases.remove(0);
        assert!(lease.held, "the same attempt goes on");
        if let Some(from) = lease.replay_from.filter(|from| *from == run.first_event) {
            island.send(run.key, from, vec![token("x")]).await;
        }
        island.end_until_answered(run.key, run.first_event + 1, completed(1, 1)).await;
    }
    serve(&mut island, 1).await;
    let batch = ended(&network, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": 4, "completed": 4, "failed": 0}), "{batch}");
    let good = results(&network, &batch, "output_file_id").await;
    let ids: Vec<&str> = good.iter().map(|line| line["custom_id"].as_str().expect("an id")).collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
    assert_eq!((network.get("/jobs").await["meta"]["total"].clone(), &batch["credits"]), (json!(4), &json!(4)));
    assert!((network.credits(&network.consumer).await - 6.0).abs() < 1e-9, "four jobs were paid");
    network.audit().await;
}

/// Moves the idempotency keys of all requests two days into the past.
async fn age_keys(network: &Network) {
    let pool = network.sql().await;
    sqlx::query("UPDATE idempotency SET created_at = created_at - $1")
        .bind(2 * 24 * 3_600_000_i64)
        .execute(&pool)
        .await
        .expect("time passes");
    pool.close().await;
}

#[tokio::test]
async fn a_line_is_not_paid_twice_after_an_outage_of_days() {
    let mut network = Network::start_process(|config| config.batches.concurrent_requests = 1).await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let id = begin(&network, &chats(&["a", "b"]), |_| {}).await;
    serve(&mut island, 1).await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("x")]).await;
    network.kill();
    // As if the coordinator had died between the end of the first job and the record of its result, two days ago.
    age_keys(&network).await;
    let pool = network.sql().await;
    for statement in [
        "DELETE FROM file_pieces WHERE n = 1 AND file_id IN (SELECT output_file_id FROM batches)",
        "UPDATE files SET bytes = 0 WHERE id IN (SELECT output_file_id FROM batches)",
        "UPDATE batches SET completed = 0",
    ] {
        sqlx::query(statement).execute(&pool).await.expect("changed");
    }
    pool.close().await;
    network.up().await;
    island.register(&[run.key]).await;
    island.beat(&[]).await;
    let lease = island.renew_until_answered(run.key, "run", 1, run.first_event).await.leases.remove(0);
    assert!(lease.held, "the same attempt goes on");
    if let Some(from) = lease.replay_from.filter(|from| *from == run.first_event) {
        island.send(run.key, from, vec![token("x")]).await;
    }
    island.end_until_answered(run.key, run.first_event + 1, completed(1, 1)).await;
    let batch = ended(&network, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": 2, "completed": 2, "failed": 0}), "{batch}");
    assert_eq!((network.get("/jobs").await["meta"]["total"].clone(), &batch["credits"]), (json!(2), &json!(2)));
    assert_eq!(results(&network, &batch, "output_file_id").await.len(), 2);
    // The keys of an ended batch are removed like any other.
    age_keys(&network).await;
    network.down().await;
    network.up().await;
    let pool = network.sql().await;
    let removed = async {
        loop {
            let left: i64 =
                sqlx::query_scalar("SELECT COUNT(*) FROM idempotency").fetch_one(&pool).await.expect("count");
            if left == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("the removal of the keys", removed).await;
    pool.close().await;
    network.audit().await;
}
