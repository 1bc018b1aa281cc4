//! Reasoning and pictures in `POST /chat/completions`.

use island_protocol::{
    event::AttemptEvent,
    job::{CompletionTokensDetails, Outcome, Usage},
};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed, token},
    network::{ECHO, Event, Events, Network},
};

const PIXEL: &str = "data:image/png;base64,AAAA";

/// A network with a Cargo that takes settings of reasoning, and pictures.
async fn network() -> Network {
    Network::start_with(|config| {
        std::fs::write(config.catalogue.dir.join("mmproj.gguf"), "a projector").expect("its file");
        let text = ECHO
            .replace("slug = \"echo\"", "slug = \"seer\"")
            .replace("aliases = [\"parrot\"]", "[[artifacts]]\nname = \"mmproj\"\nurl = \"file://mmproj.gguf\"")
            .replace("[input_schema.properties]", "[input_schema.properties]\nreasoning_effort = { type = \"string\" }\nmax_reasoning_tokens = { type = \"integer\" }");
        std::fs::write(config.catalogue.dir.join("seer.toml"), text).expect("cargo file");
    })
    .await
}

fn chat(network: &Network, change: impl FnOnce(&mut Value)) -> RequestBuilder {
    let mut body = json!({"model": "seer", "messages": [{"role": "user", "content": "hi"}]});
    change(&mut body);
    network.call(Method::POST, "/chat/completions").json(&body)
}

fn thought(content: &str) -> AttemptEvent {
    AttemptEvent::Token { content: content.to_owned(), count: 2, reasoning: true, logprobs: Vec::new(), call: None }
}

#[tokio::test]
async fn reasoning_is_a_field_of_its_own_and_counted() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let (answer, ()) = tokio::join!(chat(&network, |_| {}).send(), async {
        let assignment = island.take().await;
        let events = vec![thought("Hm"), thought("."), token("Yes"), token(".")];
        island.send(assignment.key, assignment.first_event, events).await;
        island.end(assignment.key, assignment.first_event + 4, completed(7, 6)).await;
    });
    let body: Value = answer.expect("answer").json().await.expect("json");
    let message = &body["choices"][0]["message"];
    assert_eq!(*message, json!({"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}));
    assert_eq!(body["usage"]["completion_tokens"], 6);
    assert_eq!(body["usage"]["completion_tokens_details"], json!({"reasoning_tokens": 4}));
    // The output of the job is the answer.
    let id = body["id"].as_str().expect("id").trim_start_matches("chatcmpl-").to_owned();
    let job = network.job(&id).await;
    assert_eq!(job["output"], "Yes.");
}

#[tokio::test]
async fn reasoning_is_streamed_before_the_answer_or_left_out() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    for excluded in [false, true] {
        let request = chat(&network, |body| {
            body["stream"] = json!(true);
            body["reasoning"] = json!({"exclude": excluded});
        });
        let (answer, assignment) = tokio::join!(request.send(), async {
            let assignment = island.take().await;
            let events = vec![thought("Hm"), token("Yes")];
            island.send(assignment.key, assignment.first_event, events).await;
            assignment
        });
        island.end(assignment.key, assignment.first_event + 2, completed(1, 3)).await;
        let events = Events::of(answer.expect("answer")).rest().await;
        let deltas: Vec<Value> = events[..events.len() - 1]
            .iter()
            .map(Event::json)
            .map(|chunk| chunk["choices"][0]["delta"].clone())
            .collect();
        let reasoning = json!({"reasoning_content": "Hm"});
        let expected = [
            json!({"role": "assistant", "content": ""}),
            reasoning.clone(),
            json!({"content": "Yes"}),
            json!({}),
        ];
        let shown: Vec<Value> =
            expected.into_iter().filter(|delta| !excluded || *delta != reasoning).collect();
        assert_eq!(deltas, shown);
    }
}

type Change = fn(&mut Value);

#[tokio::test]
async fn every_form_of_the_settings_reaches_the_cargo() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let cases: [(Change, Value); 9] = [
        (|_| {}, json!({})),
        (|b| b["reasoning_effort"] = json!("low"), json!({"reasoning_effort": "low"})),
        (|b| b["reasoning_effort"] = json!("max"), json!({"reasoning_effort": "xhigh"})),
        (|b| b["reasoning"] = json!({"effort": "max"}), json!({"reasoning_effort": "xhigh"})),
        (
            |b| b["reasoning"] = json!({"effort": "high", "max_tokens": 9}),
            json!({"reasoning_effort": "high", "max_reasoning_tokens": 9}),
        ),
        (|b| b["reasoning"] = json!({"enabled": false}), json!({"reasoning_effort": "none"})),
        (
            |b| b["chat_template_kwargs"] = json!({"enable_thinking": false}),
            json!({"reasoning_effort": "none"}),
        ),
        (|b| b["chat_template_kwargs"] = json!({"thinking": true}), json!({"reasoning_effort": "medium"})),
        (|b| b["max_reasoning_tokens"] = json!(0), json!({"max_reasoning_tokens": 0})),
    ];
    for (change, expected) in cases {
        let (answer, input) = tokio::join!(chat(&network, change).send(), async {
            let assignment = island.take().await;
            island.send(assignment.key, assignment.first_event, vec![token("x")]).await;
            island.end(assignment.key, assignment.first_event + 1, completed(1, 1)).await;
            assignment.input
        });
        assert!(answer.expect("answer").status().is_success());
        let settings = ["reasoning_effort", "max_reasoning_tokens"];
        let given = settings.iter().filter_map(|name| Some(((*name).to_owned(), input.get(*name)?.clone())));
        assert_eq!(Value::Object(given.collect()), expected);
    }
}

#[tokio::test]
async fn a_reply_that_lost_its_island_goes_on_after_its_reasoning() {
    let network = network().await;
    let (mut first, mut second) = (Island::start(&network).await, Island::start(&network).await);
    let (answer, ()) = tokio::join!(chat(&network, |_| {}).send(), async {
        let (lost, assignment, other) = tokio::select! {
            assignment = first.take() => (&mut first, assignment, &mut second),
            assignment = second.take() => (&mut second, assignment, &mut first),
        };
        lost.send(assignment.key, assignment.first_event, vec![thought("Hm."), token("Ye")]).await;
        let failure = island_protocol::job::Failure::of_host(
            island_protocol::job::FailureCode::RuntimeCrashed,
            "the worker ended",
        );
        lost.end(assignment.key, assignment.first_event + 2, Outcome::failed(failure)).await;
        let next = other.take().await;
        assert_eq!(
            (next.continues.as_deref(), next.continues_reasoning.as_deref()),
            (Some("Ye"), Some("Hm."))
        );
        other.send(next.key, next.first_event, vec![token("s")]).await;
        other.end(next.key, next.first_event + 1, completed(7, 4)).await;
    });
    let body: Value = answer.expect("answer").json().await.expect("json");
    let message = &body["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("Hm."), &json!("Yes")));
}

#[tokio::test]
async fn pictures_go_only_to_models_that_take_them() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let content = json!([{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}]);
    let messages = json!([{"role": "user", "content": content}]);
    // An unknown name means the model that takes pictures, too.
    for model in ["seer", "some-model"] {
        let request = chat(&network, |body| {
            body["model"] = json!(model);
            body["messages"] = messages.clone();
        });
        let (answer, input) = tokio::join!(request.send(), async {
            let assignment = island.take().await;
            island.send(assignment.key, assignment.first_event, vec![token("x")]).await;
            island.end(assignment.key, assignment.first_event + 1, completed(1, 1)).await;
            assignment.input
        });
        assert_eq!(answer.expect("answer").json::<Value>().await.expect("json")["model"], "seer");
        assert_eq!(input["messages"], messages);
    }
    let many = json!([{"role": "user", "content": vec![content[1].clone(); 17]}]);
    let elsewhere = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}]);
    for (model, messages, problem) in [
        ("echo", messages, "takes no pictures"),
        ("seer", many, "at most 16 pictures"),
        ("seer", elsewhere, "not fetched"),
    ] {
        let request = chat(&network, |body| {
            body["model"] = json!(model);
            body["messages"] = messages;
        });
        let answer = request.send().await.expect("answer");
        assert_eq!(answer.status().as_u16(), 422);
        let error: Value = answer.json().await.expect("json");
        assert!(error["error"]["message"].as_str().expect("message").contains(problem), "{error}");
    }
}

#[tokio::test]
async fn sounds_go_only_to_models_that_take_them() {
    let network = Network::start_with(|config| {
        std::fs::write(config.catalogue.dir.join("mmproj.gguf"), "a projector").expect("its file");
        let text = ECHO
            .replace("slug = \"echo\"", "slug = \"listener\"")
            .replace("aliases = [\"parrot\"]", "[[artifacts]]\nname = \"mmproj\"\nurl = \"file://mmproj.gguf\"")
            .replace("[input_schema]", "[engine]\ntask = \"audio-text-to-text\"\n[input_schema]");
        assert!(text.contains("audio-text"), "{text}");
        std::fs::write(config.catalogue.dir.join("listener.toml"), text).expect("cargo file");
    })
    .await;
    let mut island = Island::start(&network).await;
    let given = |part: Value| json!([{"role": "user", "content": [part, {"type": "text", "text": "What?"}]}]);
    let sound = json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}});
    let address = json!({"type": "audio_url", "audio_url": {"url": "data:audio/mpeg;base64,AAAA"}});
    let sent = given(json!({"type": "input_audio", "input_audio": {"data": "data:audio/mpeg;base64,AAAA"}}));
    for (model, part) in [("listener", sound.clone()), ("some-model", address)] {
        let request = chat(&network, |body| {
            body["model"] = json!(model);
            body["messages"] = given(part);
        });
        let (answer, input) = tokio::join!(request.send(), async {
            let assignment = island.take().await;
            island.send(assignment.key, assignment.first_event, vec![token("x")]).await;
            island.end(assignment.key, assignment.first_event + 1, completed(1, 1)).await;
            assignment.input
        });
        assert_eq!(answer.expect("answer").json::<Value>().await.expect("json")["model"], "listener");
        assert_eq!(input["messages"], sent);
    }
    let picture = json!({"type": "image_url", "image_url": {"url": PIXEL}});
    let elsewhere = json!({"type": "audio_url", "audio_url": {"url": "https://example.org/a.wav"}});
    let unnamed = json!({"type": "input_audio", "input_audio": {"data": "AAAA"}});
    for (model, messages, problem) in [
        ("echo", given(sound.clone()), "takes no sounds"),
        ("listener", given(picture), "takes no pictures"),
        ("listener", given(elsewhere), "not fetched"),
        ("listener", given(unnamed), "with its format"),
        ("listener", json!([{"role": "user", "content": vec![sound; 9]}]), "at most 8 sounds"),
    ] {
        let request = chat(&network, |body| {
            body["model"] = json!(model);
            body["messages"] = messages;
        });
        let answer = request.send().await.expect("answer");
        assert_eq!(answer.status().as_u16(), 422);
        let error: Value = answer.json().await.expect("json");
        assert!(error["error"]["message"].as_str().expect("message").contains(problem), "{error}");
    }
    let models: Value = network.call(Method::GET, "/models/listener").send().await.expect("answer").json().await.expect("json");
    assert_eq!(models["input_modalities"], json!(["text", "audio"]));
}

#[test]
fn details_of_usage_are_left_out_without_reasoning() {
    let plain = serde_json::to_value(Usage::tokens(1, 2)).expect("json");
    assert!(plain.get("completion_tokens_details").is_none());
    let details = Some(CompletionTokensDetails { reasoning_tokens: 1 });
    let reasoned = Usage { completion_tokens_details: details, ..Usage::tokens(1, 2) };
    assert_eq!(
        serde_json::to_value(reasoned).expect("json")["completion_tokens_details"]["reasoning_tokens"],
        1
    );
}
