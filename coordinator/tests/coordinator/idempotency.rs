//! `Idempotency-Key`: a repeated request gets the first answer and has no further effect.

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode, Outcome},
};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::{
    image_edits::PAINT,
    support::{
        answer,
        island::{Island, completed, token},
        network::{ECHO, Event, Events, Network},
        soon,
    },
};

fn keyed(network: &Network, path: &str, key: &str, body: &Value) -> RequestBuilder {
    network.call(Method::POST, path).header("Idempotency-Key", key).json(body)
}

fn job(prompt: &str) -> Value {
    json!({"workload": "echo", "input": {"prompt": prompt}})
}

fn chat(stream: bool) -> Value {
    json!({"model": "echo", "stream": stream, "messages": [{"role": "user", "content": "hi"}]})
}

fn replayed(response: &Response) -> bool {
    response.headers().get("idempotency-replayed").is_some_and(|value| value == "true")
}

async fn total(network: &Network) -> Value {
    network.get("/jobs").await["meta"]["total"].clone()
}

#[tokio::test]
async fn fifty_parallel_identical_requests_create_one_job() {
    let network = Network::start().await;
    let body = job("x");
    let posts = (0..50).map(|_| keyed(&network, "/jobs", "k", &body).send());
    let answers: Vec<Response> =
        futures::future::join_all(posts).await.into_iter().map(|answer| answer.expect("answer")).collect();
    assert!(answers.iter().all(|answer| answer.status() == 201));
    assert_eq!(answers.iter().filter(|answer| !replayed(answer)).count(), 1);
    let mut bodies = Vec::new();
    for answer in answers {
        bodies.push(answer.text().await.expect("body"));
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]), "the same bytes");
    assert_eq!(total(&network).await, 1);
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9, "one hold");
}

#[tokio::test]
async fn a_key_is_bound_to_one_body_account_and_route() {
    let network = Network::start().await;
    let (status, first) = answer(keyed(&network, "/jobs", "k", &job("x"))).await;
    assert_eq!(status, 201);
    let (status, body) = answer(keyed(&network, "/jobs", "k", &job("y"))).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("idempotency_key_reused")));
    let reordered = r#"{ "input": {"prompt": "x"}, "workload": "echo" }"#;
    let again = network.call(Method::POST, "/jobs").header("Idempotency-Key", "k");
    let (_, again) = answer(again.header("Content-Type", "application/json").body(reordered)).await;
    assert_eq!(again, first, "order and space do not matter");
    let (status, _) = answer(keyed(&network, "/api-keys", "k", &json!({"name": "n"}))).await;
    assert_eq!(status, 201, "another route");
    let other = network.http.post(format!("{}/jobs", network.url)).bearer_auth(&network.owner.key);
    let (status, body) = answer(other.header("Idempotency-Key", "k").json(&job("x"))).await;
    assert_eq!((status, &body["error"]["code"]), (402, &json!("insufficient_credits")), "another account");
    let (_, mine) = answer(keyed(&network, "/jobs", "k", &job("x"))).await;
    assert_eq!(mine, first);
}

/// Clients learn from the document where a repeated request is safe.
#[tokio::test]
async fn the_document_states_where_a_key_is_read() {
    let network = Network::start_with(|config| config.jobs.chat_wait_s = 1).await;
    let served = network.http.get(format!("{}/openapi.json", network.url)).send().await.expect("answer");
    let document: Value = served.json().await.expect("json");
    let too_long = "k".repeat(256);
    let mut read_at = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let operation = &operations["post"];
        let example = &operation["requestBody"]["content"]["application/json"]["example"];
        if operation["tags"] != json!(["Chat"]) || example.is_null() {
            continue;
        }
        let (_, refusal) = answer(keyed(&network, path, &too_long, example)).await;
        if refusal["error"]["code"] != "invalid_idempotency_key" {
            continue;
        }
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        assert!(parameters.any(|parameter| parameter["name"] == "Idempotency-Key"), "{path} reads a key");
        read_at.push(path.as_str());
    }
    assert!(read_at.contains(&"/embeddings"), "{read_at:?}");
}

#[tokio::test]
async fn refused_requests_are_not_recorded() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 1).await;
    let refused = async |body: &Value, status: u16| {
        assert_eq!(answer(keyed(&network, "/jobs", "k", body)).await.0, status);
    };
    refused(&json!({"workload": "echo"}), 422).await;
    refused(&json!({"workload": "echo", "input": {"prompt": 1}}), 422).await;
    let id = network.submit().await;
    refused(&job("a"), 429).await;
    network.call(Method::DELETE, &format!("/jobs/{id}")).send().await.expect("answer");
    let (status, body) = answer(keyed(&network, "/jobs", "k", &job("b"))).await;
    assert_eq!(status, 201, "{body}");
}

#[tokio::test]
async fn a_key_used_again_after_a_refund_starts_no_second_run() {
    let network = Network::start().await;
    let (_, first) = answer(keyed(&network, "/jobs", "k", &job("x"))).await;
    let id = first["data"]["id"].as_str().expect("id");
    network.call(Method::DELETE, &format!("/jobs/{id}")).send().await.expect("answer");
    assert_eq!(answer(keyed(&network, "/jobs", "k", &job("x"))).await, (201, first.clone()));
    assert_eq!(total(&network).await, 1);
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_key_expires_after_a_day() {
    let network = Network::start().await;
    let (_, first) = answer(keyed(&network, "/jobs", "k", &job("x"))).await;
    let pool = network.sql().await;
    let day = 24 * 3_600_000_i64;
    sqlx::query("UPDATE idempotency SET created_at = created_at - $1")
        .bind(day)
        .execute(&pool)
        .await
        .expect("time passes");
    pool.close().await;
    let (status, second) = answer(keyed(&network, "/jobs", "k", &job("y"))).await;
    assert_eq!(status, 201, "{second}");
    assert_ne!(first["data"]["id"], second["data"]["id"]);
}

#[tokio::test]
async fn malformed_keys_are_refused() {
    let network = Network::start().await;
    let long = "x".repeat(256);
    for bad in ["", " ", long.as_str(), "a\tb"] {
        let (status, body) = answer(keyed(&network, "/jobs", bad, &job("x"))).await;
        assert_eq!((status, &body["error"]["code"]), (400, &json!("invalid_idempotency_key")), "{bad:?}");
    }
    let fine = "x".repeat(255);
    assert_eq!(answer(keyed(&network, "/jobs", &fine, &job("x"))).await.0, 201);
}

#[tokio::test]
async fn a_repeated_creation_is_one_api_key_and_its_secret_is_shown_once() {
    let network = Network::start().await;
    let body = json!({"name": "n", "spend_cap": 2});
    let (_, first) = answer(keyed(&network, "/api-keys", "k", &body)).await;
    let again = keyed(&network, "/api-keys", "k", &body).send().await.expect("answer");
    assert!(again.status() == 201 && replayed(&again));
    let again: Value = again.json().await.expect("json");
    assert_eq!(again["data"], first["data"]);
    assert!(first["key"].is_string() && again.get("key").is_none());
    assert_eq!(network.get("/api-keys").await["data"].as_array().expect("list").len(), 2);
}

#[tokio::test]
async fn a_repeated_chat_waits_and_gets_the_same_reply() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let first = tokio::spawn(keyed(&network, "/chat/completions", "k", &chat(false)).send());
    let run = island.take().await;
    let (status, body) = answer(keyed(&network, "/chat/completions", "k", &chat(false))).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("idempotency_in_progress")), "{body}");
    island.send(run.key, run.first_event, vec![token("Hi"), token(".")]).await;
    island.end(run.key, run.first_event + 2, completed(3, 2)).await;
    let first: Value = first.await.expect("task").expect("answer").json().await.expect("json");
    let again = keyed(&network, "/chat/completions", "k", &chat(false)).send().await.expect("answer");
    assert!(replayed(&again));
    assert_eq!(again.json::<Value>().await.expect("json"), first);
    assert_eq!(total(&network).await, 1);
}

#[tokio::test]
async fn a_streamed_chat_is_replayed_and_outlives_its_first_reader() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let request = keyed(&network, "/chat/completions", "k", &chat(true)).send();
    let (response, run) = tokio::join!(request, async {
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        run
    });
    drop(response);
    island.send(run.key, run.first_event + 1, vec![token("b")]).await;
    island.end(run.key, run.first_event + 2, completed(1, 2)).await;
    let response = keyed(&network, "/chat/completions", "k", &chat(true)).send().await.expect("answer");
    assert!(response.status() == 200 && replayed(&response));
    let events = Events::of(response).rest().await;
    let (last, chunks) = events.split_last().expect("events");
    assert_eq!(last.data, "[DONE]");
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk.json()["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, "ab");
    assert_eq!(total(&network).await, 1);
}

#[tokio::test]
async fn a_replay_is_sent_while_it_is_read() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let ask = || keyed(&network, "/chat/completions", "k", &chat(true)).send();
    // Each is stored in a piece of its own.
    let large = "x".repeat(200 << 10);
    let (first, run) = tokio::join!(ask(), async {
        let run = island.take().await;
        let delivered = async {
            loop {
                for n in 0..3 {
                    island.send(run.key, run.first_event + n, vec![token(&large)]).await;
                }
                if island.end(run.key, run.first_event + 3, completed(1, 3)).await.committed {
                    break;
                }
            }
        };
        soon("the end", delivered).await;
        run
    });
    drop(first);
    let pool = network.sql().await;
    for statement in [
        "DELETE FROM job_event_pieces WHERE job_id = $1 AND first_n = $2",
        "INSERT INTO job_event_pieces (job_id, first_n, events) VALUES ($1, $2, 'damaged')",
    ] {
        let last = i64::try_from(run.first_event + 2).expect("a number");
        let query = sqlx::query(statement).bind(run.key.job_id.to_string()).bind(last);
        assert_eq!(query.execute(&pool).await.expect("executed").rows_affected(), 1);
    }
    pool.close().await;

    let again = ask().await.expect("answer");
    assert!(again.status() == 200 && replayed(&again), "the last piece is not read yet");
    let events = Events::of(again).rest().await;
    let (last, chunks) = events.split_last().expect("events");
    assert!(last.json()["error"].is_object(), "{}", last.data);
    let length = |chunk: &Event| chunk.json()["choices"][0]["delta"]["content"].as_str().map_or(0, str::len);
    let sent: usize = chunks.iter().map(length).sum();
    assert_eq!(sent, 2 * large.len(), "what is before it was sent");
}

#[tokio::test]
async fn the_next_model_serves_a_request_with_a_key_and_is_replayed() {
    let network = Network::start_with(|config| {
        config.jobs.chat_wait_s = 2;
        let spare = ECHO.replace("slug = \"echo\"", "slug = \"spare\"").replace("aliases = [\"parrot\"]", "");
        std::fs::write(config.catalogue.dir.join("spare.toml"), spare).expect("cargo file");
    })
    .await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let mut body = chat(false);
    body["models"] = json!(["spare"]);
    let ask = || keyed(&network, "/chat/completions", "k", &body);
    let (first, ()) = tokio::join!(answer(ask()), async {
        let run = loop {
            let offer = island.offer().await;
            if offer.assignment.cargo.slug.as_str() == "spare" {
                island.accept(&offer).await;
                break offer.assignment;
            }
            island.refuse(&offer).await;
            island.beat(&[]).await;
        };
        island.send(run.key, run.first_event, vec![token("Hi")]).await;
        island.end(run.key, run.first_event + 1, completed(3, 1)).await;
    });
    assert_eq!((first.0, &first.1["model"]), (200, &json!("spare")), "{}", first.1);
    let again = ask().send().await.expect("answer");
    assert!(replayed(&again));
    assert_eq!(again.json::<Value>().await.expect("json"), first.1);
    assert_eq!(total(&network).await, 2, "the job of each model, and none for the replay");
}

/// Asks twice with one key while the only Island is busy: what was not served is tried again, not replayed.
async fn repeat_what_is_not_served(network: &Network, busy: &mut Island, path: &str, body: &Value) {
    busy.slots = 0;
    busy.beat(&[]).await;
    let noticed = async {
        loop {
            let (_, body) = answer(network.call(Method::POST, path).json(body)).await;
            if body["error"]["message"].as_str().is_some_and(|message| message.contains("is busy")) {
                return;
            }
        }
    };
    soon("the heartbeat", noticed).await;
    let before = total(network).await.as_u64().expect("a number");
    let ask = || answer(keyed(network, path, "k", body));
    let (status, body) = ask().await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("no_island_available")));
    let forgotten = async {
        let pool = network.sql().await;
        loop {
            let kept: i64 =
                sqlx::query_scalar("SELECT COUNT(*) FROM idempotency").fetch_one(&pool).await.expect("count");
            if kept == 0 {
                return pool.close().await;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("the record to be forgotten", forgotten).await;
    assert_eq!(ask().await.0, 503, "tried again, not replayed");
    assert_eq!(total(network).await, before + 2);
}

#[tokio::test]
async fn images_that_were_not_served_may_be_requested_again() {
    let network = Network::start_with(|config| {
        config.jobs.chat_wait_s = 1;
        std::fs::write(config.catalogue.dir.join("paint.toml"), PAINT).expect("cargo file");
    })
    .await;
    let mut busy = Island::start_with(&network, RuntimeType::Diffusers).await;
    let body = json!({"model": "paint", "prompt": "x"});
    repeat_what_is_not_served(&network, &mut busy, "/images/generations", &body).await;
}

#[tokio::test]
async fn a_failed_chat_is_replayed_and_one_that_was_not_served_may_be_repeated() {
    let network = Network::start_with(|config| config.jobs.chat_wait_s = 1).await;
    let mut busy = Island::start(&network).await;
    repeat_what_is_not_served(&network, &mut busy, "/chat/completions", &chat(false)).await;

    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let (failed, ()) = tokio::join!(answer(keyed(&network, "/chat/completions", "k", &chat(false))), async {
        let run = island.take().await;
        let failure = Failure::of_job(FailureCode::ContextLengthExceeded, "too long");
        island.end(run.key, run.first_event, Outcome::failed(failure)).await;
    });
    assert_eq!((failed.0, &failed.1["error"]["code"]), (422, &json!("context_length_exceeded")));
    assert_eq!(answer(keyed(&network, "/chat/completions", "k", &chat(false))).await, failed);
}
