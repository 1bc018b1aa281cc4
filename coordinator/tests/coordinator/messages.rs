//! `POST /messages`.

use island_protocol::{event::AttemptEvent, job::Outcome};
use reqwest::{Method, RequestBuilder, header};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed, finished, token},
    network::{Events, Network, add_input},
};

fn request(network: &Network, change: impl FnOnce(&mut Value)) -> RequestBuilder {
    let mut body =
        json!({"model": "echo", "max_tokens": 5_000, "messages": [{"role": "user", "content": "hi"}]});
    change(&mut body);
    network.call(Method::POST, "/messages").json(&body)
}

fn thought(content: &str) -> AttemptEvent {
    AttemptEvent::Token { content: content.to_owned(), count: 1, reasoning: true, logprobs: Vec::new(), call: None }
}

#[tokio::test]
async fn a_whole_reply_has_blocks() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let asked = request(&network, |body| body["system"] = json!("Be kind."));
    let (answer, ()) = tokio::join!(asked.send(), async {
        let assignment = island.take().await;
        let messages = json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]);
        assert_eq!(assignment.input, json!({"messages": messages, "max_tokens": 100}));
        let events = vec![thought("Hm."), token("Hi"), token(".")];
        island.send(assignment.key, assignment.first_event, events).await;
        island.end(assignment.key, assignment.first_event + 3, completed(7, 3)).await;
    });
    let answer = answer.expect("answer");
    assert_eq!(answer.headers()["request-id"], answer.headers()["x-request-id"], "as Anthropic's clients read it");
    let body: Value = answer.json().await.expect("json");
    assert!(body["id"].as_str().expect("id").starts_with("msg_"));
    let thinking = json!({"type": "thinking", "thinking": "Hm.", "signature": ""});
    assert_eq!(body["content"], json!([thinking, {"type": "text", "text": "Hi."}]));
    assert_eq!((&body["stop_reason"], &body["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    assert_eq!(body["usage"], json!({"input_tokens": 7, "output_tokens": 3}));
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_streamed_reply_begins_and_ends_each_block() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let asked = request(&network, |body| body["stream"] = json!(true));
    let (answer, assignment) = tokio::join!(asked.send(), async {
        let assignment = island.take().await;
        let events = vec![thought("Hm"), thought("."), token("Hi"), token(".")];
        island.send(assignment.key, assignment.first_event, events).await;
        assignment
    });
    island.end(assignment.key, assignment.first_event + 4, completed(7, 4)).await;
    let events = Events::of(answer.expect("answer")).rest().await;
    let names: Vec<String> =
        events.iter().map(|event| event.json()["type"].as_str().expect("a type").to_owned()).collect();
    assert_eq!(
        names,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let start = events[0].json();
    assert_eq!((&start["message"]["content"], &start["message"]["stop_reason"]), (&json!([]), &Value::Null));
    assert_eq!(events[2].json()["delta"], json!({"type": "thinking_delta", "thinking": "Hm"}));
    assert_eq!(
        (events[6].json()["index"].clone(), events[6].json()["delta"]["text"].clone()),
        (json!(1), json!("Hi"))
    );
    let end = events[9].json();
    assert_eq!(
        (&end["delta"]["stop_reason"], &end["usage"]["output_tokens"]),
        (&json!("end_turn"), &json!(4))
    );
}

#[tokio::test]
async fn the_stop_text_that_ended_a_reply_is_named() {
    let network = Network::start_with(|config| add_input(config, "stop = { type = \"array\" }")).await;
    let mut island = Island::start(&network).await;
    for stream in [false, true] {
        // An Island that names another text than those of the request is not believed.
        for (text, expected) in [("END", json!(["stop_sequence", "END"])), ("FIN", json!(["end_turn", null]))] {
            let asked = request(&network, |body| {
                body["stop_sequences"] = json!(["STOP", "END"]);
                body["stream"] = json!(stream);
            });
            let (answer, ()) = tokio::join!(asked.send(), async {
                let assignment = island.take().await;
                island.send(assignment.key, assignment.first_event, vec![token("Hi")]).await;
                let mut outcome = completed(3, 1);
                if let Outcome::Completed { stop_text, .. } = &mut outcome {
                    *stop_text = Some(text.to_owned());
                }
                island.end(assignment.key, assignment.first_event + 1, outcome).await;
            });
            let answer = answer.expect("answer");
            let end = if stream {
                let events = Events::of(answer).rest().await;
                events[events.len() - 2].json()["delta"].clone()
            } else {
                answer.json().await.expect("json")
            };
            assert_eq!(json!([end["stop_reason"], end["stop_sequence"]]), expected, "stream: {stream}");
        }
    }
}

#[tokio::test]
async fn calls_are_blocks_and_errors_have_the_form_of_the_api() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let (answer, ()) = tokio::join!(request(&network, |_| {}).send(), async {
        let assignment = island.take().await;
        let call = json!({"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}});
        let output = finished(json!({"content": null, "tool_calls": [call]}));
        island.end(assignment.key, assignment.first_event, output).await;
    });
    let body: Value = answer.expect("answer").json().await.expect("json");
    assert_eq!(
        body["content"],
        json!([{"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}}])
    );
    let refused = request(&network, |body| {
        body["messages"] = json!([{"role": "user", "content": [{"type": "tool_use"}]}]);
    });
    let answer = refused.send().await.expect("answer");
    assert_eq!(answer.status().as_u16(), 422);
    let body: Value = answer.json().await.expect("json");
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
    assert_eq!(body["error"]["param"], "messages.0.content");
}

#[tokio::test]
async fn a_key_may_come_in_the_header_of_the_apis_clients() {
    let network = Network::start().await;
    let url = format!("{}/models", network.url);
    let client = reqwest::Client::new();
    let key = network.consumer.key.clone();
    let status = |request: RequestBuilder| async { request.send().await.expect("answer").status().as_u16() };
    assert_eq!(status(client.get(&url).header("x-api-key", &key)).await, 200);
    assert_eq!(status(client.get(&url).header("x-api-key", "ak_wrong")).await, 401);
    // Another key in the usual header is the one that counts.
    let both = client.get(&url).header("x-api-key", &key).header(header::AUTHORIZATION, "Bearer ak_wrong");
    assert_eq!(status(both).await, 401);
}
