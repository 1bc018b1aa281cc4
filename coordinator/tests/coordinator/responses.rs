//! `/responses`.

use island_protocol::{event::AttemptEvent, job::Outcome};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, completed, finished, token},
    network::{Events, Network},
    soon,
};

type Change = fn(&mut Value);

fn request(network: &Network, change: impl FnOnce(&mut Value)) -> RequestBuilder {
    let mut body = json!({"model": "echo", "input": "hi"});
    change(&mut body);
    network.call(Method::POST, "/responses").json(&body)
}

fn thought(content: &str) -> AttemptEvent {
    AttemptEvent::Token { content: content.to_owned(), count: 1, reasoning: true, logprobs: Vec::new(), call: None }
}

/// Creates a response whose job writes these events and ends so. Returns it and the input of the job.
async fn create(
    network: &Network,
    island: &mut Island,
    change: impl FnOnce(&mut Value),
    events: Vec<AttemptEvent>,
    outcome: Outcome,
) -> (Value, Value) {
    let (answer, input) = tokio::join!(answer(request(network, change)), async {
        let assignment = island.take().await;
        let end = assignment.first_event + events.len() as u64;
        island.send(assignment.key, assignment.first_event, events).await;
        island.end(assignment.key, end, outcome).await;
        assignment.input
    });
    assert_eq!(answer.0, 200, "{}", answer.1);
    (answer.1, input)
}

#[tokio::test]
async fn a_response_is_stored_and_continued_without_its_instructions() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let (first, input) = create(
        &network,
        &mut island,
        |body| {
            body["instructions"] = json!("Be kind.");
            body["metadata"] = json!({"a": "b"});
        },
        vec![thought("Hm."), token("Hel"), token("lo")],
        completed(7, 3),
    )
    .await;
    assert_eq!(
        input["messages"],
        json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}])
    );
    assert_eq!((&first["status"], &first["object"]), (&json!("completed"), &json!("response")));
    assert_eq!(first["output"][0]["content"], json!([{"type": "reasoning_text", "text": "Hm."}]));
    let text = json!([{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}]);
    assert_eq!((&first["output"][1]["content"], &first["output"][1]["role"]), (&text, &json!("assistant")));
    assert_eq!((&first["usage"]["input_tokens"], &first["usage"]["output_tokens"]), (&json!(7), &json!(3)));
    assert_eq!(first["usage"]["output_tokens_details"], json!({"reasoning_tokens": 1}));
    let id = first["id"].as_str().expect("id");

    // It reads the same later.
    assert_eq!(network.get(&format!("/responses/{id}")).await, first);
    let items = network.get(&format!("/responses/{id}/input_items")).await;
    assert_eq!(items["data"][0]["content"], json!([{"type": "input_text", "text": "hi"}]));
    assert_eq!(items["first_id"], items["data"][0]["id"]);

    let (second, input) = create(
        &network,
        &mut island,
        |body| {
            body["input"] = json!([{"role": "user", "content": "and?"}]);
            body["instructions"] = json!("Be short.");
            body["previous_response_id"] = json!(id);
        },
        vec![token("Yes")],
        completed(9, 1),
    )
    .await;
    assert_eq!(
        input["messages"],
        json!([
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "and?"},
        ])
    );
    assert_eq!(second["previous_response_id"], json!(id));

    // Another account's and a deleted one are unknown.
    let strange = network.http.get(format!("{}/responses/{id}", network.url)).bearer_auth(&network.owner.key);
    assert_eq!(answer(strange).await.0, 404);
    let (status, deleted) = answer(network.call(Method::DELETE, &format!("/responses/{id}"))).await;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
    assert_eq!(answer(network.call(Method::GET, &format!("/responses/{id}"))).await.0, 404);
    let (status, refusal) = answer(request(&network, |body| body["previous_response_id"] = json!(id))).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("previous_response_id")));
}

#[tokio::test]
async fn calls_and_their_results_continue_a_response() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}});
    let output = json!({"content": null, "tool_calls": [call]});
    let (first, _) = create(
        &network,
        &mut island,
        |body| body["tools"] = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]),
        vec![token("")],
        finished(output),
    )
    .await;
    let item = &first["output"][0];
    assert_eq!((&item["type"], &item["call_id"], &item["arguments"]), (&json!("function_call"), &json!("call_1"), &json!("{\"at\":1}")));
    let (_, input) = create(
        &network,
        &mut island,
        |body| {
            body["previous_response_id"] = first["id"].clone();
            body["input"] = json!([{"type": "function_call_output", "call_id": "call_1", "output": "a dog"}]);
        },
        vec![token("A dog.")],
        completed(1, 1),
    )
    .await;
    assert_eq!(
        input["messages"],
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "a dog", "tool_call_id": "call_1"},
        ])
    );
}

#[tokio::test]
async fn a_stream_begins_and_ends_each_item() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let asked = request(&network, |body| body["stream"] = json!(true));
    let (answer, assignment) = tokio::join!(asked.send(), async {
        let assignment = island.take().await;
        island.send(assignment.key, assignment.first_event, vec![thought("Hm"), token("Hi"), token(".")]).await;
        assignment
    });
    island.end(assignment.key, assignment.first_event + 3, completed(7, 3)).await;
    let events = Events::of(answer.expect("answer")).rest().await;
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.json()["sequence_number"], json!(number));
        assert_eq!(event.json()["type"], json!(event.name));
    }
    let whole = events.last().expect("an event").json()["response"].clone();
    let id = whole["id"].as_str().expect("id");
    assert_eq!(network.get(&format!("/responses/{id}")).await, whole, "as it is read later");
    assert_eq!(events[12].json()["text"], "Hi.");
    assert_eq!(events[10].json()["item_id"], whole["output"][1]["id"]);
}

#[tokio::test]
async fn a_response_in_the_background_is_read_and_cancelled_by_its_id() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let (status, begun) = answer(request(&network, |body| body["background"] = json!(true))).await;
    assert_eq!((status, &begun["status"]), (200, &json!("queued")), "{begun}");
    let id = begun["id"].as_str().expect("id").to_owned();
    let assignment = island.take().await;
    island.send(assignment.key, assignment.first_event, vec![token("x")]).await;
    let path = format!("/responses/{id}");
    let running = async {
        while network.get(&path).await["status"] != "in_progress" {
            tokio::task::yield_now().await;
        }
    };
    soon("the start", running).await;
    let (status, cancelled) = answer(network.call(Method::POST, &format!("{path}/cancel"))).await;
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")));
    let (status, again) = answer(network.call(Method::POST, &format!("{path}/cancel"))).await;
    assert_eq!((status, &again["status"]), (200, &json!("cancelled")), "as it is");
    let (status, refusal) = answer(request(&network, |body| body["previous_response_id"] = json!(id))).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("previous_response_id")));
}

#[tokio::test]
async fn a_response_that_is_not_stored_is_unknown_and_wrong_requests_are_refused() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let (response, _) =
        create(&network, &mut island, |body| body["store"] = json!(false), vec![token("x")], completed(1, 1)).await;
    let id = response["id"].as_str().expect("id");
    assert_eq!(answer(network.call(Method::GET, &format!("/responses/{id}"))).await.0, 404);
    let cases: [(Change, &str); 5] = [
        (|body| body["tools"] = json!([{"type": "web_search"}]), "tools.0"),
        (|body| body["input"] = json!([]), "input"),
        (|body| body["previous_response_id"] = json!("resp_x"), "previous_response_id"),
        (
            |body| {
                body["background"] = json!(true);
                body["stream"] = json!(true);
            },
            "stream",
        ),
        (
            |body| {
                body["background"] = json!(true);
                body["store"] = json!(false);
            },
            "store",
        ),
    ];
    for (change, param) in cases {
        let (status, refusal) = answer(request(&network, change)).await;
        assert_eq!((status, &refusal["error"]["param"]), (422, &json!(param)), "{refusal}");
    }
}
