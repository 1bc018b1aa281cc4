//! Preferences among Islands and models, conversations that return to their Island, and prices of tokens.

use island_protocol::cargo::RuntimeType;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{
    image_edits::PAINT,
    support::{
        answer,
        island::{Island, completed, finished, token},
        network::{COUNT, ECHO, Network},
        soon,
    },
};

type Change = fn(&mut Value);

/// An [`ECHO`] of another name and price.
fn cargo(slug: &str, price: &str) -> String {
    let text = ECHO.replace("slug = \"echo\"", &format!("slug = \"{slug}\""));
    text.replace("aliases = [\"parrot\"]", "").replace("price_per_job = 1", price)
}

async fn network() -> Network {
    Network::start_with(|config| {
        let write = |slug: &str, text: String| {
            std::fs::write(config.catalogue.dir.join(format!("{slug}.toml")), text).expect("cargo file");
        };
        write("cheap", cargo("cheap", "price_per_job = 0.5"));
        let unserved = cargo("unserved", "price_per_job = 2").replace("\"llmcpp\"", "\"wasm\"");
        write("unserved", unserved);
        let prices = "price_per_job = 0.1\nprice_per_1k_input = 2\nprice_per_1k_output = 10";
        write("metered", cargo("metered", prices));
    })
    .await
}

fn chat(network: &Network, change: impl FnOnce(&mut Value)) -> RequestBuilder {
    let mut body = json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]});
    change(&mut body);
    network.call(Method::POST, "/chat/completions").json(&body)
}

/// Runs one job.
async fn serve(island: &mut Island) {
    let assignment = island.take().await;
    island.send(assignment.key, assignment.first_event, vec![token("ok")]).await;
    island.end(assignment.key, assignment.first_event + 1, completed(10, 1)).await;
}

#[tokio::test]
async fn a_request_excludes_islands_or_learns_that_none_is_left() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    // A request that precedes the first heartbeat waits for it, until the Island counts as silent.
    network.served("echo").await;
    let own = json!({"own": "only"});
    let (status, refusal) = answer(chat(&network, |body| body["preferences"] = own)).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("preferences")), "{refusal}");
    for accepted in [json!({"regions": ["TEST"]}), json!({"only": [island.id]}), json!({"ignore": []})] {
        // Clients of OpenRouter send another name.
        let request = chat(&network, |body| {
            body["messages"][0]["content"] = json!(accepted.to_string());
            body["provider"] = accepted;
        });
        let (answered, ()) = tokio::join!(
            async {
                let answered = request.send().await.expect("answer");
                assert_eq!(answered.status(), 200, "{}", answered.text().await.expect("a text"));
                answered
            },
            serve(&mut island)
        );
        assert_eq!(answered.status().as_u16(), 200);
        let served = answered.headers()["island-served"].to_str().expect("a text");
        assert_eq!(served, "class=open, reason=ranking, region=\"test\"");
    }
    let job = json!({"workload": "echo", "input": {"prompt": "x"}, "preferences": {"ignore": [island.id]}});
    let (status, accepted) = answer(network.call(Method::POST, "/jobs").json(&job)).await;
    assert_eq!(status, 201, "{accepted}");
    let id = accepted["data"]["id"].as_str().expect("id");
    let waiting = async {
        while network.job(id).await["waiting"] != json!({"preferences": 1}) {
            tokio::task::yield_now().await;
        }
    };
    soon("the reason", waiting).await;
    let (status, refusal) = answer(chat(&network, |body| body["preferences"] = json!({"order": ["x"]}))).await;
    assert_eq!(status, 422, "{refusal}");
}

#[tokio::test]
async fn a_request_that_excludes_every_island_is_refused_while_another_may_arrive() {
    let network = network().await;
    let _island = Island::start(&network).await;
    let _silent = Island::registered(&network, RuntimeType::Llmcpp).await;
    let request = chat(&network, |body| body["preferences"] = json!({"own": "only"}));
    let (status, refusal) = answer(request).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("preferences")), "{refusal}");
}

#[tokio::test]
async fn requests_that_one_job_answers_have_preferences_as_well_and_a_header_may_state_them() {
    let network = Network::start_with(|config| {
        let write = |slug: &str, text: String| {
            std::fs::write(config.catalogue.dir.join(format!("{slug}.toml")), text).expect("cargo file");
        };
        for (slug, task) in [("vectors", "feature-extraction"), ("ranks", "text-ranking"), ("speaks", "text-to-speech")] {
            let onnx = format!("runtime_type = \"onnx\"\nonnx_task_type = \"{task}\"");
            let text = COUNT.replace("runtime_type = \"llmcpp\"", &onnx).replace("\"count\"\nname", &format!("\"{slug}\"\nname"));
            write(slug, text.replace("required = [\"text\"]", "").replace("required = [\"count\"]", ""));
        }
        write("paint", PAINT.to_owned());
    })
    .await;
    let mut island = Island::start_with(&network, RuntimeType::Onnx).await;
    let _painter = Island::start_with(&network, RuntimeType::Diffusers).await;
    network.served("vectors").await;
    network.served("paint").await;
    let own = json!({"own": "only"});
    for (path, body) in [
        ("/embeddings", json!({"model": "vectors", "input": "x"})),
        ("/rerank", json!({"model": "ranks", "query": "x", "documents": ["y"]})),
        ("/audio/speech", json!({"model": "speaks", "input": "x"})),
        ("/images/generations", json!({"model": "paint", "prompt": "x"})),
    ] {
        let mut with_field = body.clone();
        with_field["preferences"] = own.clone();
        let in_field = network.call(Method::POST, path).json(&with_field);
        let in_header = network.call(Method::POST, path).header("Island-Preferences", own.to_string()).json(&body);
        for request in [in_field, in_header] {
            let (status, refusal) = answer(request).await;
            assert_eq!((status, &refusal["error"]["param"]), (422, &json!("preferences")), "{path}: {refusal}");
        }
    }
    let header = json!({"regions": ["TEST"]}).to_string();
    let request = network.call(Method::POST, "/embeddings").header("Island-Preferences", header);
    let (served, ()) = tokio::join!(answer(request.json(&json!({"model": "vectors", "input": "x"}))), async {
        let assignment = island.take().await;
        let output = finished(json!({"count": 1, "embeddings": [[0.5]]}));
        island.end(assignment.key, assignment.first_event, output).await;
    });
    assert_eq!(served.0, 200, "{}", served.1);
}

#[tokio::test]
async fn the_next_of_several_models_serves_when_the_first_cannot() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let cases: [(Change, &str); 4] = [
        (|body| body["models"] = json!(["cheap"]), "echo"),
        (
            |body| {
                body["model"] = json!("unserved");
                body["models"] = json!(["no-such-model", "cheap", "echo"]);
            },
            "cheap",
        ),
        (
            |body| {
                body["models"] = json!(["cheap"]);
                body["preferences"] = json!({"sort": "price"});
            },
            "cheap",
        ),
        (
            |body| {
                body["models"] = json!(["cheap"]);
                body["preferences"] = json!({"max_price": 0.6});
            },
            "cheap",
        ),
    ];
    for (change, model) in cases {
        let (answered, ()) = tokio::join!(answer(chat(&network, change)), serve(&mut island));
        assert_eq!((answered.0, &answered.1["model"]), (200, &json!(model)));
    }
    let (status, refusal) = answer(chat(&network, |body| body["preferences"] = json!({"max_price": 0.9}))).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("preferences.max_price")));
    let (status, refusal) = answer(chat(&network, |body| body["preferences"] = json!({"quantizations": ["q8_0"]}))).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("preferences.quantizations")));
}

#[tokio::test]
async fn jobs_have_quantizations_as_well() {
    let network = Network::start_with(|config| {
        let model = "price_per_job = 1\nmodel_url = \"hf://some/model:m-Q4_K_M.gguf\"";
        let text = cargo("quantized", model);
        std::fs::write(config.catalogue.dir.join("quantized.toml"), text).expect("cargo file");
    })
    .await;
    let submitted = async |workload: &str, quantization: &str| {
        let preferences = json!({"quantizations": [quantization]});
        let body = json!({"workload": workload, "input": {"prompt": "hi"}, "preferences": preferences});
        answer(network.call(Method::POST, "/jobs").json(&body)).await
    };
    for (workload, quantization) in [("quantized", "q8_0"), ("quantized", "no-such-one"), ("echo", "q4_k_m")] {
        let (status, refusal) = submitted(workload, quantization).await;
        let param = &refusal["error"]["param"];
        assert_eq!((status, param), (422, &json!("preferences.quantizations")), "{workload}: {refusal}");
    }
    let (status, accepted) = submitted("quantized", "Q4_K_M").await;
    assert_eq!(status, 201, "{accepted}");
}

#[tokio::test]
async fn a_conversation_returns_to_its_island() {
    let network = network().await;
    let mut first = Island::start(&network).await;
    let mut messages = vec![json!({"role": "user", "content": "one"})];
    let ask = |messages: &[Value]| {
        let messages = json!(messages);
        chat(&network, |body| body["messages"] = messages)
    };
    let (answered, ()) = tokio::join!(answer(ask(&messages)), serve(&mut first));
    assert_eq!(answered.0, 200);
    // Without the conversation this Island, which has more free slots, is preferred.
    let mut second = Island::start(&network).await;
    second.slots = 9;
    second.beat(&[]).await;
    let seen = async {
        while network.get("/market/rates/echo").await["data"][0]["num_hosts"] != 2 {
            second.beat(&[]).await;
        }
    };
    soon("both Islands", seen).await;
    let (answered, ()) = tokio::join!(answer(ask(&[json!({"role": "user", "content": "other"})])), serve(&mut second));
    assert_eq!(answered.0, 200);
    for turn in ["two", "three"] {
        messages.push(json!({"role": "assistant", "content": "whatever the reply was"}));
        messages.push(json!({"role": "user", "content": turn}));
        let (answered, ()) = tokio::join!(ask(&messages).send(), serve(&mut first));
        let answered = answered.expect("answer");
        assert_eq!(answered.status().as_u16(), 200);
        let served = answered.headers()["island-served"].to_str().expect("a text");
        assert!(served.contains("reason=conversation"), "{served}");
    }
    // Another account's conversation with the same words is another conversation.
    let url = format!("{}/chat/completions", network.url);
    network.grant_1000_credits().await;
    let body = json!({"model": "echo", "messages": messages});
    let strange = network.http.post(url).bearer_auth(&network.owner.key).json(&body);
    let (answered, ()) = tokio::join!(answer(strange), serve(&mut second));
    assert_eq!(answered.0, 200);
}

#[tokio::test]
async fn tokens_are_held_at_most_and_paid_as_used() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let request = chat(&network, |body| {
        body["model"] = json!("metered");
        body["max_tokens"] = json!(50);
    });
    let (answered, held) = tokio::join!(answer(request), async {
        let assignment = island.take().await;
        let held = 10.0 - network.credits(&network.consumer).await;
        let events = vec![token("four"), token(" tok"), token("ens"), token(".")];
        island.send(assignment.key, assignment.first_event, events).await;
        // It has read more than the whole input has bytes.
        island.end(assignment.key, assignment.first_event + 4, completed(100_000, 4)).await;
        held
    });
    assert_eq!(answered.0, 200, "{}", answered.1);
    // 0.1 for the job, 10 for 1,000 tokens of 50, and 2 for 1,000 of the prompt: a byte has at most one, and a template some.
    assert!((0.6 + 2.0..0.6 + 2.5).contains(&held), "{held}");
    let used = answered.1["usage"]["credits_used"].as_f64().expect("credits");
    assert!((used - (held - 0.46)).abs() < 1e-6, "what was held, without 46 tokens: {used} of {held}");
    let (answered, ()) = tokio::join!(answer(chat(&network, |body| body["model"] = json!("metered"))), async {
        let assignment = island.take().await;
        island.send(assignment.key, assignment.first_event, vec![token("yes")]).await;
        island.end(assignment.key, assignment.first_event + 1, completed(20, 1)).await;
    });
    let expected = 0.1 + 20.0 * 0.002 + 0.01;
    let used = answered.1["usage"]["credits_used"].as_f64().expect("credits");
    assert!((used - expected).abs() < 1e-6, "{used}");
    network.audit().await;
    let model = network.get("/models/metered").await;
    assert_eq!(model["pricing"], json!({"prompt": "0.002", "completion": "0.01", "request": "0.1"}));
}
