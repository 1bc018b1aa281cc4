//! `POST /messages/count_tokens` and `POST /responses/input_tokens`.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    answer,
    island::{Island, completed},
    network::{ECHO, Network},
    problem,
};

async fn start() -> (Network, Island) {
    let network = Network::start_with(|config| {
        let counts = ECHO.replace("temperature =", "count_tokens = { type = \"boolean\" }\ntemperature =");
        let counts = counts.replace("\"echo\"", "\"counter\"").replace("\"parrot\"", "");
        std::fs::write(config.catalogue.dir.join("counter.toml"), counts).expect("cargo file");
    })
    .await;
    let island = Island::start(&network).await;
    (network, island)
}

#[tokio::test]
async fn an_island_counts_the_tokens_of_a_conversation_for_nothing() {
    let (network, mut island) = start().await;
    let before = network.credits(&network.consumer).await;
    let said = json!([{"role": "user", "content": "hi"}]);
    for (path, body, expected) in [
        (
            "/messages/count_tokens",
            json!({"model": "counter", "messages": said}),
            json!({"input_tokens": 7}),
        ),
        (
            "/responses/input_tokens",
            json!({"model": "counter", "input": "hi", "max_output_tokens": 90, "stream": true}),
            json!({"object": "response.input_tokens", "input_tokens": 7}),
        ),
    ] {
        let request = network.call(Method::POST, path).json(&body);
        let ((status, counted), ()) = tokio::join!(answer(request), async {
            let assignment = island.take().await;
            let input = json!({"messages": said, "max_tokens": 1, "count_tokens": true});
            assert_eq!(assignment.input, input, "{path}");
            island.end(assignment.key, assignment.first_event, completed(7, 0)).await;
        });
        assert_eq!((status, counted), (200, expected), "{path}");
    }
    assert!((network.credits(&network.consumer).await - before).abs() < 1e-9, "nothing was written");
}

#[tokio::test]
async fn a_model_that_does_not_count_is_refused_by_its_name() {
    let (network, _island) = start().await;
    network.served("echo").await;
    let body = json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]});
    let (status, error) = problem(network.call(Method::POST, "/messages/count_tokens").json(&body)).await;
    assert_eq!((status, &error["message"]), (422, &json!("the model echo does not count tokens")));
    let body = json!({"model": "counter", "messages": []});
    let (status, error) = problem(network.call(Method::POST, "/messages/count_tokens").json(&body)).await;
    assert_eq!((status, &error["type"]), (422, &json!("invalid_request_error")));
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0, "no job was created");
}
