//! `/responses`.

use island_protocol::{reply::CallDelta, event::AttemptEvent, job::{FinishReason, Outcome, Usage}};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, completed, finished, token},
    network::{Event, Events, Network, add_input},
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
async fn items_of_a_stored_response_may_be_referred_to() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let events = vec![thought("Hm."), token("Hello")];
    let (first, _) = create(&network, &mut island, |_| {}, events, completed(7, 2)).await;
    let path = format!("/responses/{}/input_items", first["id"].as_str().expect("id"));
    let input = network.get(&path).await["data"][0]["id"].clone();
    let refer = |id: &Value| json!({"type": "item_reference", "id": id});
    let [thought, text] = [0_usize, 1].map(|index| refer(&first["output"][index]["id"]));
    let (second, input) = create(
        &network,
        &mut island,
        |body| body["input"] = json!([refer(&input), thought, text, {"role": "user", "content": "and?"}]),
        vec![token("Yes")],
        completed(9, 1),
    )
    .await;
    assert_eq!(
        input["messages"],
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello", "reasoning_content": "Hm."},
            {"role": "user", "content": "and?"},
        ])
    );
    let path = format!("/responses/{}/input_items?order=asc", second["id"].as_str().expect("id"));
    let items = network.get(&path).await;
    assert_eq!(items["data"][2]["content"][0]["text"], "Hello", "the item itself is kept");

    // What another account has, what was never stored, and what is not an id are unknown alike.
    let strange = network.http.post(format!("{}/responses", network.url)).bearer_auth(&network.owner.key);
    let strange = strange.json(&json!({"model": "echo", "input": [refer(&first["output"][1]["id"])]}));
    let (status, refusal) = answer(strange).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("input.0.id")), "{refusal}");
    for id in ["msg_9_00000000-0000-7000-8000-000000000000", "msg_x", ""] {
        let (status, refusal) = answer(request(&network, |body| body["input"] = json!([refer(&json!(id))]))).await;
        assert_eq!((status, &refusal["error"]["param"]), (422, &json!("input.0.id")), "{id}: {refusal}");
    }
}

#[tokio::test]
async fn items_of_a_request_are_read_page_by_page() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let (response, _) = create(
        &network,
        &mut island,
        |body| {
            body["input"] = json!([
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
                {"role": "user", "content": "three", "id": "mine"},
            ]);
        },
        vec![token("Yes")],
        completed(9, 1),
    )
    .await;
    let path = format!("/responses/{}/input_items", response["id"].as_str().expect("id"));
    let page = async |query: &str| {
        let page = network.get(&format!("{path}?{query}")).await;
        let items = page["data"].as_array().expect("items").iter();
        let texts: Vec<Value> = items.map(|item| item["content"].clone()).collect();
        (texts, page)
    };
    let (texts, last) = page("limit=2").await;
    assert_eq!(texts, ["three", "two"], "the last ones come first, as in OpenAI's API");
    assert_eq!((&last["first_id"], &last["has_more"]), (&json!("mine"), &json!(true)));
    let rest = format!("limit=2&after={}", last["last_id"].as_str().expect("an id"));
    let (texts, first) = page(rest.as_str()).await;
    assert_eq!((texts, &first["has_more"]), (vec![json!("one")], &json!(false)));
    assert_eq!(page("order=asc").await.0, ["one", "two", "three"]);
    let (texts, all) = page("limit=3&order=desc").await;
    assert_eq!((texts.len(), &all["has_more"]), (3, &json!(false)));
    assert_eq!(page("order=asc&after=mine").await.0, [""; 0]);
    for (query, status, field) in [
        ("limit=0", 422, "limit"),
        ("limit=101", 422, "limit"),
        ("limit=x", 400, "limit"),
        ("order=up", 422, "order"),
        ("after=in_3", 422, "after"),
    ] {
        let (found, refusal) = answer(network.call(Method::GET, &format!("{path}?{query}"))).await;
        assert_eq!((found, &refusal["error"]["param"]), (status, &json!(field)), "{query}: {refusal}");
    }
}

#[tokio::test]
async fn calls_and_their_results_continue_a_response() {
    let network = Network::start_with(|config| add_input(config, "tools = { type = \"array\" }")).await;
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

/// A part of the call with this index. The first one has its id and function.
fn part(index: u32, begins: bool, arguments: &str) -> AttemptEvent {
    let call = CallDelta {
        index,
        id: begins.then(|| format!("call_{index}")),
        name: begins.then(|| "look".to_owned()),
        arguments: arguments.to_owned(),
        text: arguments.to_owned(),
    };
    AttemptEvent::Token {
        content: String::new(),
        count: 1,
        reasoning: false,
        logprobs: Vec::new(),
        call: Some(Box::new(call)),
    }
}

/// The items that a client knows from a stream: as they were when they ended, in the order of their indices. Each begins once, grows to what it
/// is at its end, and ends before the next one begins.
fn streamed_items(events: &[Event]) -> Vec<Value> {
    let (mut items, mut open): (Vec<Value>, Option<(Value, String)>) = (Vec::new(), None);
    for event in events {
        let data = event.json();
        match event.name.as_str() {
            "response.output_item.added" => {
                assert!(open.is_none(), "the item before it has ended: {data}");
                assert_eq!(data["output_index"], json!(items.len()));
                open = Some((data["item"]["id"].clone(), String::new()));
            }
            "response.output_item.done" => {
                let (id, grown) = open.take().expect("it has begun");
                let item = data["item"].clone();
                let whole = item["arguments"].as_str().or(item["content"][0]["text"].as_str());
                assert_eq!((&item["id"], whole), (&id, Some(grown.as_str())), "{data}");
                assert_eq!(data["output_index"], json!(items.len()));
                items.push(item);
            }
            name if name.ends_with(".delta") => {
                let (id, grown) = open.as_mut().expect("it has begun");
                assert_eq!((&data["item_id"], &data["output_index"]), (&*id, &json!(items.len())));
                grown.push_str(data["delta"].as_str().expect("text"));
            }
            _ => {}
        }
    }
    assert!(open.is_none(), "every item has ended");
    items
}

#[tokio::test]
async fn items_are_the_same_in_a_stream_at_its_end_and_later() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let written = || {
        vec![
            thought("Hm."),
            token("I "),
            token("look."),
            part(0, true, "{\"at\":"),
            part(0, false, "1}"),
            part(1, true, "{}"),
            token("That "),
            token("is it."),
        ]
    };
    let call = |index: u32, arguments: &str| {
        let function = json!({"name": "look", "arguments": arguments});
        json!({"id": format!("call_{index}"), "type": "function", "function": function})
    };
    let calls = [call(0, "{\"at\":1}"), call(1, "{}")];
    for finish_reason in [FinishReason::ToolCalls, FinishReason::Length] {
        let outcome = || Outcome::Completed {
            usage: Usage::tokens(7, 8),
            output: Some(json!({"content": "I look.\n\nThat is it.", "tool_calls": calls})),
            finish_reason: Some(finish_reason),
            stop_text: None,
        };
        let asked = request(&network, |body| body["stream"] = json!(true));
        let (answer, ()) = tokio::join!(asked.send(), async {
            let run = island.take().await;
            island.send(run.key, run.first_event, written()).await;
            island.end(run.key, run.first_event + 8, outcome()).await;
        });
        let events = Events::of(answer.expect("answer")).rest().await;
        let streamed = streamed_items(&events);
        let whole = events.last().expect("an event").json()["response"].clone();
        assert_eq!(json!(streamed), whole["output"]);
        let texts: Vec<&str> = streamed
            .iter()
            .map(|item| item["arguments"].as_str().or(item["content"][0]["text"].as_str()).expect("text"))
            .collect();
        assert_eq!(texts, ["Hm.", "I look.", "{\"at\":1}", "{}", "That is it."]);
        let id = whole["id"].as_str().expect("id");
        assert_eq!(network.get(&format!("/responses/{id}")).await, whole, "as it is read later");

        let (answered, _) = create(&network, &mut island, |_| {}, written(), outcome()).await;
        let id = answered["id"].as_str().expect("id");
        assert_eq!(network.get(&format!("/responses/{id}")).await, answered);
        let shapes = |response: &Value| -> Vec<Value> {
            let shape = |item: &Value| json!([item["type"], item["content"], item["arguments"], item["status"]]);
            response["output"].as_array().expect("items").iter().map(shape).collect()
        };
        assert_eq!(shapes(&answered), shapes(&whole), "a response that is not streamed has the same items");
    }
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
        (|body| body["tools"] = json!([{"name": "look"}]), "tools.0"),
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

#[tokio::test]
async fn a_response_that_was_cut_stays_incomplete_when_its_events_are_deleted() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let cut = |finish_reason| Outcome::Completed {
        usage: Usage::tokens(1, 1),
        output: None,
        finish_reason: Some(finish_reason),
        stop_text: None,
    };
    let mut made = Vec::new();
    for (finish_reason, status) in [(FinishReason::Length, "incomplete"), (FinishReason::Stop, "completed")] {
        let (response, _) = create(&network, &mut island, |_| {}, vec![token("a")], cut(finish_reason)).await;
        assert_eq!(response["status"], status);
        made.push(response);
    }
    let pool = network.sql().await;
    for statement in
        ["DELETE FROM job_event_pieces", "DELETE FROM job_events", "UPDATE jobs SET head = '[]'"]
    {
        sqlx::query(statement).execute(&pool).await.expect("deleted");
    }
    pool.close().await;
    for response in made {
        let id = response["id"].as_str().expect("id");
        let read = network.get(&format!("/responses/{id}")).await;
        let about = |response: &Value| {
            ["status", "incomplete_details", "output", "metadata"].map(|field| response[field].clone())
        };
        assert_eq!(about(&read), about(&response));
    }
}
