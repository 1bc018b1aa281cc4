//! `POST /chat/completions`.

use island_coordinator_domain::config::Config;
use island_protocol::{reply::CallDelta, event::AttemptEvent, job::{Failure, FailureCode, Outcome}};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed, token},
    network::{COUNT, ECHO, Event, Events, Network, add_input},
    problem,
};

/// Adds a Cargo to the catalogue of a network that starts.
fn add_cargo(config: &Config, slug: &str, like: &str) {
    let text: String = like
        .lines()
        .map(|line| if line.starts_with("slug") { format!("slug = {slug:?}\n") } else { format!("{line}\n") })
        .collect();
    std::fs::write(config.catalogue.dir.join(format!("{slug}.toml")), text).expect("cargo file");
}

fn chat(network: &Network, change: impl FnOnce(&mut Value)) -> RequestBuilder {
    let mut body = json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]});
    change(&mut body);
    network.call(Method::POST, "/chat/completions").json(&body)
}

#[tokio::test]
async fn a_whole_reply() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let request = chat(&network, |body| {
        body["max_tokens"] = json!(5_000);
        body["temperature"] = json!(0.5);
        body["messages"] = json!([
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "Write "}, {"type": "text", "text": "hi."}]},
        ]);
    });
    let (answer, ()) = tokio::join!(request.send(), async {
        let assignment = island.take().await;
        assert_eq!(
            assignment.input,
            json!({
                "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Write hi."}],
                "max_tokens": 100, "temperature": 0.5,
            }),
            "bounded by the Cargo"
        );
        island.send(assignment.key, assignment.first_event, vec![token("Hi"), token(".")]).await;
        island.end(assignment.key, assignment.first_event + 2, completed(7, 2)).await;
    });
    let body: Value = answer.expect("answer").json().await.expect("json");
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("echo")));
    assert!(body["id"].as_str().expect("id").starts_with("chatcmpl-"));
    let choice =
        json!({"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"});
    assert_eq!(body["choices"], json!([choice]));
    assert_eq!(body["usage"]["total_tokens"], 9);
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_streamed_reply_in_the_order_clients_expect() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let request = chat(&network, |body| {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    });
    let (answer, assignment) = tokio::join!(request.send(), async {
        let assignment = island.take().await;
        island.send(assignment.key, assignment.first_event, vec![token("He"), token("y\n\n")]).await;
        assignment
    });
    let answer = answer.expect("answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert_eq!(answer.headers()["x-accel-buffering"], "no");
    island.end(assignment.key, assignment.first_event + 2, completed(1, 2)).await;
    let events = Events::of(answer).rest().await;
    assert_eq!(events.last().expect("end").data, "[DONE]");
    let chunks: Vec<Value> = events[..events.len() - 1].iter().map(Event::json).collect();
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"])
    );
    let deltas: Vec<&Value> = chunks.iter().filter_map(|chunk| chunk["choices"].get(0)).collect();
    assert_eq!(deltas[0]["delta"], json!({"role": "assistant", "content": ""}));
    let text: String = deltas.iter().filter_map(|delta| delta["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Hey\n\n");
    let reasons: Vec<&Value> = deltas.iter().map(|delta| &delta["finish_reason"]).collect();
    assert_eq!(reasons, [&Value::Null, &Value::Null, &Value::Null, &json!("stop")]);
    let last = chunks.last().expect("usage");
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(3)));
}

type Change = fn(&mut Value);

#[tokio::test]
async fn bad_requests_name_the_field() {
    let network = Network::start().await;
    let cases: [(Change, &str); 12] = [
        (|b| b["messages"] = json!([]), "messages"),
        (|b| b["messages"] = json!("hi"), "messages"),
        (|b| b["messages"] = Value::Null, "messages"),
        (|b| b["messages"][0]["role"] = json!("king"), "messages.0.role"),
        (|b| b["messages"][0]["content"] = json!(1), "messages.0.content"),
        (|b| b["messages"][0]["content"] = json!([{"type": "image_url"}]), "messages.0.content"),
        (|b| b["temperature"] = json!(2.1), "temperature"),
        (|b| b["temperature"] = json!("hot"), "temperature"),
        (|b| b["max_tokens"] = json!(0), "max_tokens"),
        (|b| b["max_tokens"] = json!(1.5), "max_tokens"),
        (|b| b["stream"] = json!("yes"), "stream"),
        (|b| b["stop"] = json!(5), "stop"),
    ];
    for (change, param) in cases {
        let (status, error) = problem(chat(&network, change)).await;
        assert_eq!((status, &error["param"]), (422, &json!(param)), "{error}");
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!("validation_error"), &json!("invalid_request_error"))
        );
    }
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0);
}

#[tokio::test]
async fn a_missing_key_is_reported_in_the_form_of_the_chat_api() {
    let network = Network::start().await;
    let request = network.http.post(format!("{}/chat/completions", network.url)).json(&json!({}));
    let (status, error) = problem(request).await;
    assert_eq!((status, &error["type"]), (401, &json!("authentication_error")));
}

#[tokio::test]
async fn an_unknown_model_is_not_an_error() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    for model in ["gpt-4o", "no such model", "parrot", ""] {
        let request = chat(&network, |body| body["model"] = json!(model));
        let (answer, ()) = tokio::join!(request.send(), async {
            let assignment = island.take().await;
            island.end(assignment.key, assignment.first_event, completed(1, 0)).await;
        });
        let body: Value = answer.expect("answer").json().await.expect("json");
        assert_eq!(body["model"], "echo", "{model}");
    }
}

#[tokio::test]
async fn a_busy_island_is_waited_for_and_the_job_is_cancelled_without_a_charge() {
    let network = Network::start_with(|config| config.jobs.chat_wait_s = 1).await;
    let mut island = Island::start(&network).await;
    island.slots = 0;
    island.beat(&[]).await;
    let (status, error) = loop {
        let (status, error) = problem(chat(&network, |_| {})).await;
        // The heartbeat may arrive after the first request.
        if error["message"].as_str().is_some_and(|message| message.contains("is busy")) {
            break (status, error);
        }
    };
    assert_eq!((status, &error["code"]), (503, &json!("no_island_available")));
    assert_eq!(error["message"], "no Island can serve echo now: 1 Island is busy");
    let jobs = network.get("/jobs").await;
    let id = jobs["data"][0]["id"].as_str().expect("id").to_owned();
    let events = network.stream(&id, 0).await.rest().await;
    assert_eq!(events.last().expect("end").json()["code"], "cancelled_by_user");
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_cargo_that_no_island_can_serve_is_refused_at_once_with_the_reason() {
    // The wait is longer than the test may take.
    let network = Network::start_with(|config| {
        config.jobs.chat_wait_s = 3_600;
        add_cargo(
            config,
            "far",
            &ECHO
                .replace("aliases = [\"parrot\"]", "")
                .replace("ram_mb = 100", "ram_mb = 200\nmodel_url = \"hf://o/far:m.gguf\""),
        );
    })
    .await;
    let refused = |model: &'static str| {
        let network = &network;
        async move { problem(chat(network, |body| body["model"] = json!(model))).await }
    };
    let (status, error) = refused("echo").await;
    assert_eq!((status, &error["code"]), (503, &json!("no_island_available")));
    assert_eq!(error["message"], "no Island can serve echo now: no Island is online");
    assert_eq!(error["retry_after"], 10);

    let mut island = Island::start(&network).await;
    network.served("echo").await;
    // `far` has a file that this Island, which reaches no hub, does not have; unknown names get `echo`.
    let (status, error) = refused("far").await;
    assert_eq!((status, &error["code"]), (503, &json!("no_island_available")));
    assert_eq!(error["message"], "no Island can serve far now: 1 Island cannot reach the model's hub");
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0, "no job was created");
    for model in ["gpt-4o", "no such model"] {
        let (answer, ()) = tokio::join!(chat(&network, |body| body["model"] = json!(model)).send(), async {
            let assignment = island.take().await;
            island.end(assignment.key, assignment.first_event, completed(1, 0)).await;
        });
        let body: Value = answer.expect("answer").json().await.expect("json");
        assert_eq!(body["model"], "echo", "{model}");
    }
}

#[tokio::test]
async fn embeddings_and_images_that_no_island_can_serve_are_refused_with_the_reason() {
    let network = Network::start_with(|config| {
        config.jobs.chat_wait_s = 3_600;
        let onnx = "runtime_type = \"onnx\"\nonnx_task_type = \"feature-extraction\"";
        add_cargo(config, "vectors", &COUNT.replace("runtime_type = \"llmcpp\"", onnx));
        let paint = COUNT.replace("llmcpp", "diffusers").replace("[\"text\"]", "[\"prompt\"]");
        add_cargo(config, "paint", &paint.replace("{ text = ", "{ prompt = "));
    })
    .await;
    let _island = Island::start(&network).await;
    network.served("echo").await;
    for (path, model, body) in [
        ("/embeddings", "vectors", json!({"model": "vectors", "input": "x"})),
        ("/images/generations", "paint", json!({"model": "paint", "prompt": "x"})),
    ] {
        let (status, error) = problem(network.call(Method::POST, path).json(&body)).await;
        assert_eq!((status, &error["code"]), (503, &json!("no_island_available")), "{path}");
        let message = format!("no Island can serve {model} now: 1 Island has no working engine for it");
        assert_eq!((&error["message"], &error["retry_after"]), (&json!(message), &Value::Null));
    }
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0, "no job was created");
}

#[tokio::test]
async fn a_failure_before_the_first_chunk_is_an_http_error_and_a_later_one_is_not() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let streamed = || chat(&network, |body| body["stream"] = json!(true));
    let (early, ()) = tokio::join!(problem(streamed()), async {
        let assignment = island.take().await;
        let failure = Failure::of_job(FailureCode::ContextLengthExceeded, "the prompt has 5000 tokens");
        island.end(assignment.key, assignment.first_event, Outcome::failed(failure)).await;
    });
    assert_eq!((early.0, &early.1["code"]), (422, &json!("context_length_exceeded")));

    let (answer, assignment) = tokio::join!(streamed().send(), async {
        let assignment = island.take().await;
        island.send(assignment.key, assignment.first_event, vec![token("half")]).await;
        assignment
    });
    let answer = answer.expect("answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let failure = Failure::of_job(FailureCode::OutputLimit, "too much");
    island.end(assignment.key, assignment.first_event + 1, Outcome::failed(failure)).await;
    let events = Events::of(answer).rest().await;
    let last = events.last().expect("error").json();
    assert_eq!(last["error"]["code"], "job_failed");
    assert!(events.iter().all(|event| event.data != "[DONE]"));
    let left = network.credits(&network.consumer).await;
    assert!((left - 9.5).abs() < 1e-9, "its own fault after text was delivered costs half: {left}");
}

/// A proxy gives a response up that sends nothing for a minute, and a model may take longer to load.
#[tokio::test]
async fn a_stream_begins_before_the_first_token() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    for fails in [false, true] {
        let request = chat(&network, |body| body["stream"] = json!(true));
        let (answer, assignment) = tokio::join!(request.send(), island.take());
        let mut answer = answer.expect("headers, although there is no token");
        assert_eq!(answer.status(), StatusCode::OK);
        let first = answer.chunk().await.expect("a piece").expect("bytes");
        assert_eq!(&first[..], b": keep-alive\n\n");
        let (key, n) = (assignment.key, assignment.first_event);
        if fails {
            let failure = Failure::of_job(FailureCode::ContextLengthExceeded, "the prompt has 5000 tokens");
            island.end(key, n, Outcome::failed(failure)).await;
            let events = Events::of(answer).rest().await;
            assert_eq!(events.last().expect("error").json()["error"]["code"], "context_length_exceeded");
        } else {
            island.send(key, n, vec![token("late")]).await;
            island.end(key, n + 1, completed(1, 1)).await;
            let events = Events::of(answer).rest().await;
            let text: Vec<_> = events[..events.len() - 1].iter().map(Event::json).collect();
            assert_eq!(text[1]["choices"][0]["delta"]["content"], "late");
            assert_eq!(events.last().expect("end").data, "[DONE]");
        }
    }
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_job() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let request = chat(&network, |body| body["stream"] = json!(true));
    let (answer, assignment) = tokio::join!(request.send(), async {
        let assignment = island.take().await;
        island.send(assignment.key, assignment.first_event, vec![token("a")]).await;
        assignment
    });
    drop(answer);
    let cancel = island.cancelled().await;
    assert_eq!((cancel.key, cancel.code), (assignment.key, FailureCode::CancelledByUser));
    let id = assignment.key.job_id.to_string();
    assert_eq!(network.stream(&id, 0).await.rest().await.last().expect("end").name, "error");
    assert!((network.credits(&network.owner).await - 0.5).abs() < 1e-9, "at least half once text was delivered");
    network.audit().await;
}

#[tokio::test]
async fn invalid_formats_and_functions_are_refused() {
    let network = Network::start().await;
    let function = json!({"type": "function", "function": {"name": "f"}});
    for (param, value) in [
        ("n", json!(9)),
        ("response_format", json!("json")),
        ("response_format", json!({"type": "yaml"})),
        ("tools", json!({})),
        ("tool_choice", json!("required")),
    ] {
        let (status, problem) = problem(chat(&network, |body| body[param] = value.clone())).await;
        assert_eq!(
            (status, &problem["code"], &problem["param"]),
            (422, &json!("validation_error"), &json!(param))
        );
    }
    for (path, tools, choice) in [
        ("tools.0.function", json!([{"type": "function"}]), json!("auto")),
        ("tool_choice", json!([function, {"type": "search"}]), json!({"type": "search"})),
        (
            "tools.1.function.name",
            json!([function, {"type": "function", "function": {"name": "a b"}}]),
            json!("auto"),
        ),
        ("tool_choice", json!([function]), json!({"type": "function", "function": {"name": "g"}})),
    ] {
        let (status, problem) = problem(chat(&network, |body| {
            body["tools"] = tools.clone();
            body["tool_choice"] = choice.clone();
        }))
        .await;
        assert_eq!((status, &problem["param"]), (422, &json!(path)), "{problem}");
    }
}

/// Starts a network with a Cargo that takes a temperature and no other setting.
async fn with_plain_model() -> Network {
    Network::start_with(|config| {
        let plain = ECHO.replace("max_tokens = { type = \"integer\", minimum = 1 }", "");
        add_cargo(config, "plain", &plain.replace("aliases = [\"parrot\"]", ""));
    })
    .await
}

#[tokio::test]
async fn settings_that_a_model_does_not_take_are_refused() {
    let network = with_plain_model().await;
    let chat = json!({"model": "plain", "messages": [{"role": "user", "content": "hi"}]});
    let function = json!([{"type": "function", "function": {"name": "f"}}]);
    let form = json!({"type": "json_schema", "schema": {"type": "object"}});
    for (path, setting, value, param) in [
        ("/chat/completions", "max_tokens", json!(99), "max_tokens"),
        ("/chat/completions", "max_completion_tokens", json!(1), "max_completion_tokens"),
        ("/chat/completions", "top_k", json!(3), "top_k"),
        ("/chat/completions", "top_p", json!(0.5), "top_p"),
        ("/chat/completions", "stop", json!("END"), "stop"),
        ("/chat/completions", "seed", json!(0), "seed"),
        ("/chat/completions", "tools", function, "tools"),
        ("/chat/completions", "response_format", json!({"type": "json_object"}), "response_format"),
        ("/responses", "max_output_tokens", json!(16), "max_output_tokens"),
        ("/messages", "stop_sequences", json!(["END"]), "stop_sequences"),
        ("/messages", "output_config", json!({"format": form}), "output_config.format"),
    ] {
        let mut body = match path {
            "/responses" => json!({"model": "plain", "input": "hi"}),
            "/messages" => json!({"model": "plain", "max_tokens": 100, "messages": chat["messages"]}),
            _ => chat.clone(),
        };
        body[setting] = value;
        let (status, problem) = problem(network.call(Method::POST, path).json(&body)).await;
        let message = format!("the model plain does not support {param}");
        let found = (status, &problem["code"], &problem["param"], &problem["message"]);
        assert_eq!(found, (422, &json!("validation_error"), &json!(param), &json!(message)));
    }
    let models = network.get("/models").await;
    let plain = models["data"].as_array().expect("a list").iter().find(|model| model["id"] == "plain");
    assert_eq!(plain.expect("the model")["supported_sampling_parameters"], json!(["temperature"]));
}

#[tokio::test]
async fn settings_without_effect_are_accepted_and_others_go_to_a_model_that_takes_them() {
    let network = with_plain_model().await;
    let mut island = Island::start(&network).await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    let values = json!({
        "max_tokens": 100, "top_p": 1, "presence_penalty": 0.0, "stop": [], "logit_bias": {}, "logprobs": false,
        "response_format": {"type": "text"}, "tools": [], "parallel_tool_calls": true, "reasoning_effort": "low",
    });
    let without_effect = values.as_object().expect("an object").clone();
    let other = json!({"models": ["echo"], "max_tokens": 7}).as_object().expect("an object").clone();
    for (settings, expected) in [
        (without_effect, json!({"messages": messages})),
        (other, json!({"messages": messages, "max_tokens": 7})),
    ] {
        let request = chat(&network, |body| {
            body["model"] = json!("plain");
            body.as_object_mut().expect("an object").extend(settings);
        });
        let (answer, ()) = tokio::join!(request.send(), async {
            let assignment = island.take().await;
            assert_eq!(assignment.input, expected);
            island.send(assignment.key, assignment.first_event, vec![token("Hi")]).await;
            island.end(assignment.key, assignment.first_event + 1, completed(7, 1)).await;
        });
        assert_eq!(answer.expect("answer").status(), StatusCode::OK);
    }
}

/// A part of a call; the first one has its id and function.
fn part(begins: bool, arguments: &str, text: &str) -> AttemptEvent {
    let part = CallDelta {
        index: 0,
        id: begins.then(|| "call_1".to_owned()),
        name: begins.then(|| "f".to_owned()),
        arguments: arguments.to_owned(),
        text: text.to_owned(),
    };
    let (content, call) = (String::new(), Some(Box::new(part)));
    AttemptEvent::Token { content, count: 1, reasoning: false, logprobs: Vec::new(), call }
}

fn calls(arguments: &str) -> Value {
    json!([{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}])
}

fn called(arguments: &str) -> Outcome {
    Outcome::Completed {
        usage: island_protocol::job::Usage::tokens(1, 3),
        output: Some(json!({"content": null, "tool_calls": calls(arguments)})),
        finish_reason: Some(island_protocol::job::FinishReason::ToolCalls),
        stop_text: None,
    }
}

#[tokio::test]
async fn arguments_of_a_call_arrive_as_they_are_written_and_go_on_elsewhere() {
    let hasty = |config: &mut Config| {
        config.jobs.heartbeat_ms = 300;
        config.jobs.lease_ms = 1_000;
        config.jobs.stall_ms = 300;
        add_input(config, "tools = { type = \"array\" }");
    };
    let network = Network::start_with(hasty).await;
    let mut island = Island::start(&network).await;
    let request = chat(&network, |body| {
        body["stream"] = json!(true);
        body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    });
    let (answer, assignment) = tokio::join!(request.send(), async {
        let assignment = island.take().await;
        let events = vec![token("So: "), part(true, "{\"a\":", "<call>f {a")];
        island.send(assignment.key, assignment.first_event, events).await;
        assignment
    });
    let mut events = Events::of(answer.expect("answer"));
    let first = loop {
        let chunk = events.next().await.expect("an event").json();
        if let Some(calls) = chunk["choices"][0]["delta"]["tool_calls"].as_array() {
            break calls[0].clone();
        }
    };
    let expected = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":"}});
    assert_eq!(first, expected, "before the job has ended");
    // The Island is lost: the next attempt continues what the model wrote.
    assert_eq!(island.cancelled().await.key, assignment.key, "the lease ran out");
    island.beat(&[]).await;
    let again = island.take().await;
    assert_eq!((again.key.job_id, again.continues.as_deref()), (assignment.key.job_id, Some("So: <call>f {a")));
    island.send(again.key, again.first_event, vec![part(false, "1}", ":1}")]).await;
    island.end(again.key, again.first_event + 1, called("{\"a\":1}")).await;
    let rest: Vec<Event> = events.rest().await;
    let chunks: Vec<Value> = rest[..rest.len() - 1].iter().map(Event::json).collect();
    let deltas: Vec<&Value> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
    assert_eq!(deltas, [&json!({"index": 0, "function": {"arguments": "1}"}})]);
    assert_eq!(chunks.last().expect("an end")["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn a_call_that_was_sent_cannot_be_changed() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    for stream in [false, true] {
        let request = chat(&network, |body| body["stream"] = json!(stream));
        let (answer, ()) = tokio::join!(request.send(), async {
            let assignment = island.take().await;
            island.send(assignment.key, assignment.first_event, vec![part(true, "{\"a\":", "<call>f {a")]).await;
            island.end(assignment.key, assignment.first_event + 1, called("{\"b\":1}")).await;
        });
        let text = answer.expect("answer").text().await.expect("a body");
        assert!(text.contains("changed a call") && !text.contains("[DONE]"), "{text}");
    }
}

#[tokio::test]
async fn tool_calls_reach_the_client() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    for stream in [false, true] {
        let request = chat(&network, |body| body["stream"] = json!(stream));
        let (answer, ()) = tokio::join!(request.send(), async {
            let assignment = island.take().await;
            let output = json!({"content": null, "tool_calls": [call]});
            let usage = island_protocol::job::Usage::tokens(1, 2);
            let finish_reason = Some(island_protocol::job::FinishReason::ToolCalls);
            let outcome = Outcome::Completed { usage, output: Some(output), finish_reason, stop_text: None };
            island.send(assignment.key, assignment.first_event, vec![token("")]).await;
            island.end(assignment.key, assignment.first_event + 1, outcome).await;
        });
        let answer = answer.expect("answer");
        if stream {
            let events = Events::of(answer).rest().await;
            let chunks: Vec<Value> = events[..events.len() - 1].iter().map(Event::json).collect();
            let told: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]).collect();
            let calls =
                told.iter().find_map(|choice| choice["delta"]["tool_calls"].as_array()).expect("calls");
            assert_eq!((&calls[0]["index"], &calls[0]["id"]), (&json!(0), &json!("call_1")));
            assert_eq!(told.last().expect("an end")["finish_reason"], "tool_calls");
        } else {
            let body: Value = answer.json().await.expect("json");
            let choice = &body["choices"][0];
            assert_eq!(
                (&choice["message"]["tool_calls"], &choice["message"]["content"]),
                (&json!([call]), &Value::Null)
            );
            assert_eq!(choice["finish_reason"], "tool_calls");
        }
    }
}
