//! Names of models: which mean a certain one, and which leave the choice to the network.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed, token},
    network::Network,
    problem,
};

const PATHS: [&str; 5] =
    ["/chat/completions", "/messages", "/responses", "/messages/count_tokens", "/responses/input_tokens"];

fn request(network: &Network, path: &str, model: &str) -> RequestBuilder {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = if path.starts_with("/responses") {
        json!({"model": model, "input": "hi"})
    } else {
        json!({"model": model, "max_tokens": 5, "messages": messages})
    };
    network.call(Method::POST, path).json(&body)
}

#[tokio::test]
async fn a_mistaken_name_is_404_and_costs_nothing() {
    let network = Network::start().await;
    let _island = Island::start(&network).await;
    network.served("echo").await;
    for (name, nearest) in [
        ("echo:floor", "echo"),
        ("someone/echo", "echo"),
        ("hf.co/someone/echo-GGUF:Q4_K_M", "echo"),
        ("ecoh", "echo"),
        ("parrot-2", "parrot"),
    ] {
        for path in PATHS {
            let (status, refusal) = problem(request(&network, path, name)).await;
            assert_eq!((status, &refusal["param"]), (404, &json!("model")), "{path} {name}: {refusal}");
            assert_eq!(refusal["code"], "model_not_found");
            let message = format!("there is no language model {name:?}; nearest names: {nearest}");
            assert_eq!(refusal["message"], message);
        }
    }
    let (status, _) = problem(request(&network, PATHS[0], "count")).await;
    assert_eq!(status, 404, "a Cargo that writes no texts");
    assert_eq!(network.get("/jobs").await["data"], json!([]));
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_substitute_is_named_in_a_header() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    for (name, substitute) in
        [("echo", None), ("parrot", None), ("", Some("echo")), ("whatever", Some("echo")), ("gpt-4o", Some("echo"))]
    {
        let (answer, ()) = tokio::join!(request(&network, PATHS[0], name).send(), async {
            let run = island.take().await;
            island.send(run.key, run.first_event, vec![token("Hi")]).await;
            island.end(run.key, run.first_event + 1, completed(1, 1)).await;
        });
        let answer = answer.expect("answer");
        let found = answer.headers().get("island-substitute").map(|value| value.to_str().expect("a text"));
        assert_eq!(found, substitute, "{name:?}");
        let body: Value = answer.json().await.expect("json");
        assert_eq!(body["model"], "echo");
    }
}
