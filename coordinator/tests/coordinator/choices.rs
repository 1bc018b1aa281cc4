//! Several replies to one request, probabilities of tokens, and texts that are not conversations.

use island_protocol::{reply::{Logprob, TokenLogprob}, event::AttemptEvent, job::{Failure, FailureCode, Outcome}};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::image_edits::PAINT;
use crate::support::{
    answer,
    island::{Island, completed, token},
    network::{COUNT, ECHO, Event, Events, Network},
    soon,
};

type Change = fn(&mut Value);

/// A network with a Cargo that takes the settings of these tests.
async fn network() -> Network {
    Network::start_with(|config| {
        let text = ECHO.replace("slug = \"echo\"", "slug = \"writer\"").replace("aliases = [\"parrot\"]", "").replace(
            "[input_schema.properties]",
            "[input_schema.properties]\nseed = { type = \"integer\" }\nlogprobs = { type = \"boolean\" }\n\
             top_logprobs = { type = \"integer\" }\nlogit_bias = { type = \"object\" }\nraw_prompt = { type = \"string\" }\n\
             suffix = { type = \"string\" }",
        );
        std::fs::write(config.catalogue.dir.join("writer.toml"), text).expect("cargo file");
    })
    .await
}

fn chat(network: &Network, change: impl FnOnce(&mut Value)) -> RequestBuilder {
    let mut body = json!({"model": "writer", "messages": [{"role": "user", "content": "hi"}]});
    change(&mut body);
    network.call(Method::POST, "/chat/completions").json(&body)
}

fn likely(text: &str, logprob: f64) -> TokenLogprob {
    let one = |text: &str, logprob| Logprob { token: text.to_owned(), logprob, bytes: text.as_bytes().to_vec() };
    TokenLogprob { token: one(text, logprob), top_logprobs: vec![one(text, logprob), one("x", -3.5)] }
}

fn token_with(text: &str, logprob: f64) -> AttemptEvent {
    let logprobs = vec![likely(text, logprob)];
    AttemptEvent::Token { content: text.to_owned(), count: 1, reasoning: false, logprobs, call: None }
}

/// Runs jobs until each has written its seed, and returns their inputs in the order of the seeds.
async fn write_seeds(island: &mut Island, jobs: usize) -> Vec<Value> {
    let mut inputs = Vec::new();
    for _ in 0..jobs {
        let assignment = island.take().await;
        let seed = assignment.input["seed"].to_string();
        island.send(assignment.key, assignment.first_event, vec![token("s"), token(&seed)]).await;
        island.end(assignment.key, assignment.first_event + 2, completed(5, 2)).await;
        inputs.push(assignment.input);
    }
    inputs.sort_by_key(|input| input["seed"].as_i64());
    inputs
}

#[tokio::test]
async fn several_replies_are_jobs_of_their_own() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let request = chat(&network, |body| {
        body["n"] = json!(3);
        body["seed"] = json!(7);
    });
    let (answer, inputs) = tokio::join!(answer(request), write_seeds(&mut island, 3));
    assert_eq!(answer.0, 200, "{}", answer.1);
    assert_eq!(inputs.iter().map(|input| input["seed"].clone()).collect::<Vec<_>>(), [7, 8, 9]);
    let choices = answer.1["choices"].as_array().expect("choices");
    let texts: Vec<&str> =
        choices.iter().map(|choice| choice["message"]["content"].as_str().expect("a text")).collect();
    assert_eq!(texts, ["s7", "s8", "s9"]);
    assert_eq!(choices[2]["index"], 2);
    let usage = &answer.1["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(15), &json!(6)));
    assert_eq!(usage["credits_used"], 3);
    assert!((network.credits(&network.consumer).await - 7.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn several_replies_are_streamed_together_and_end_once() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let request = chat(&network, |body| {
        body["n"] = json!(2);
        body["seed"] = json!(1);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    });
    let (answer, _) = tokio::join!(request.send(), write_seeds(&mut island, 2));
    let events = Events::of(answer.expect("answer")).rest().await;
    let (last, chunks) = events.split_last().expect("events");
    assert_eq!(last.data, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(Event::json).collect();
    let (usage, chunks) = chunks.split_last().expect("chunks");
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(14)));
    for index in 0..2 {
        let of = chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index);
        let text: String =
            of.clone().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, format!("s{}", index + 1));
        let ends = of.filter(|chunk| chunk["choices"][0]["finish_reason"] == "stop").count();
        assert_eq!(ends, 1);
    }
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
}

#[tokio::test]
async fn when_one_of_several_replies_fails_the_stream_ends_with_what_the_others_used() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let request = chat(&network, |body| {
        body["n"] = json!(2);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    });
    let (answer, runs) = tokio::join!(request.send(), async {
        let runs = [island.take().await, island.take().await];
        for run in &runs {
            island.send(run.key, run.first_event, vec![token("a")]).await;
        }
        runs
    });
    let events = Events::of(answer.expect("answer"));
    let failure = Failure::of_job(FailureCode::ContextLengthExceeded, "too long");
    // Whether it is the first or the last to end, its end ends nothing but itself.
    island.end(runs[1].key, runs[1].first_event + 1, completed(5, 1)).await;
    island.end(runs[0].key, runs[0].first_event + 1, Outcome::failed(failure)).await;
    let events = events.rest().await;
    let (last, chunks) = events.split_last().expect("events");
    assert_eq!(last.data, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(Event::json).collect();
    assert_eq!(chunks.iter().filter(|chunk| chunk["error"].is_object()).count(), 1);
    let (usage, _) = chunks.split_last().expect("chunks");
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(6)));
}

#[tokio::test]
async fn a_repeated_request_for_several_replies_gets_the_same_ones() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let request = || {
        let body = |body: &mut Value| {
            body["n"] = json!(2);
            body["seed"] = json!(1);
        };
        chat(&network, body).header("Idempotency-Key", "twice")
    };
    let (first, _) = tokio::join!(answer(request()), write_seeds(&mut island, 2));
    let second = answer(request()).await;
    assert_eq!(first.1["choices"], second.1["choices"]);
    assert!((network.credits(&network.consumer).await - 8.0).abs() < 1e-9, "paid once");
}

#[tokio::test]
async fn a_reply_that_has_begun_outlives_a_client_with_a_key_although_another_has_not() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let request = || chat(&network, |body| body["n"] = json!(2)).header("Idempotency-Key", "k");
    let waiting = tokio::spawn(request().send());
    let (begun, other) = (island.take().await, island.take().await);
    island.send(begun.key, begun.first_event, vec![token("early")]).await;
    let id = begun.key.job_id.to_string();
    let delivered = async {
        while network.job(&id).await["first_output_at"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    soon("the first token", delivered).await;
    waiting.abort();
    assert_eq!(island.cancelled().await.key, other.key);
    island.end(begun.key, begun.first_event + 1, completed(5, 1)).await;
    assert_eq!(network.job(&id).await["status"], "completed");

    let served = async {
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("late")]).await;
        island.end(run.key, run.first_event + 1, completed(5, 1)).await;
    };
    let (again, ()) = tokio::join!(answer(request()), served);
    let choices = again.1["choices"].as_array().expect("choices");
    let mut texts: Vec<&str> =
        choices.iter().map(|choice| choice["message"]["content"].as_str().expect("a text")).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["early", "late"]);
    network.audit().await;
}

#[tokio::test]
async fn probabilities_are_answered_with_their_tokens() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    for stream in [false, true] {
        let request = chat(&network, |body| {
            body["logprobs"] = json!(true);
            body["top_logprobs"] = json!(2);
            body["logit_bias"] = json!({"5": -100});
            body["stream"] = json!(stream);
        });
        let (answer, input) = tokio::join!(request.send(), async {
            let assignment = island.take().await;
            let events = vec![token_with("He", -0.5), token_with("y", -0.25)];
            island.send(assignment.key, assignment.first_event, events).await;
            island.end(assignment.key, assignment.first_event + 2, completed(1, 2)).await;
            assignment.input
        });
        assert_eq!((&input["logprobs"], &input["top_logprobs"]), (&json!(true), &json!(2)));
        assert_eq!(input["logit_bias"], json!({"5": -100.0}));
        let expected = [json!(likely("He", -0.5)), json!(likely("y", -0.25))];
        let answer = answer.expect("answer");
        if stream {
            let events = Events::of(answer).rest().await;
            let chunks = events[..events.len() - 1].iter().map(Event::json);
            let found: Vec<Value> = chunks
                .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array().cloned())
                .flatten()
                .collect();
            assert_eq!(found, expected);
        } else {
            let body: Value = answer.json().await.expect("json");
            assert_eq!(body["choices"][0]["logprobs"]["content"], json!(expected));
        }
    }
    let cases: [(Change, &str); 4] = [
        (|body| body["top_logprobs"] = json!(2), "top_logprobs"),
        (|body| body["logit_bias"] = json!({"x": 1}), "logit_bias"),
        (|body| body["logit_bias"] = json!({"1": 101}), "logit_bias"),
        (
            |body| {
                body["logprobs"] = json!(true);
                body["model"] = json!("echo");
            },
            "logprobs",
        ),
    ];
    for (change, param) in cases {
        let (status, refusal) = answer_of(chat(&network, change)).await;
        assert_eq!((status, &refusal["error"]["param"]), (422, &json!(param)), "{refusal}");
    }
}

async fn answer_of(request: RequestBuilder) -> (u16, Value) {
    answer(request).await
}

#[tokio::test]
async fn texts_are_continued_and_gaps_filled() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let complete = |change: fn(&mut Value)| {
        let mut body = json!({"model": "writer", "prompt": "fn a() {", "max_tokens": 9});
        change(&mut body);
        network.call(Method::POST, "/completions").json(&body)
    };
    let (whole, input) = tokio::join!(
        answer(complete(|body| {
            body["suffix"] = json!("}");
            body["echo"] = json!(true);
            body["logprobs"] = json!(1);
        })),
        async {
            let assignment = island.take().await;
            let events = vec![token_with(" 1", -0.5), token_with(" ", -0.25)];
            island.send(assignment.key, assignment.first_event, events).await;
            island.end(assignment.key, assignment.first_event + 2, completed(6, 2)).await;
            assignment.input
        }
    );
    assert_eq!(
        input,
        json!({"raw_prompt": "fn a() {", "suffix": "}", "max_tokens": 9, "logprobs": true, "top_logprobs": 1})
    );
    assert_eq!(whole.0, 200, "{}", whole.1);
    let choice = &whole.1["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("fn a() { 1 "), &json!("stop")));
    assert_eq!(choice["logprobs"]["tokens"], json!([" 1", " "]));
    assert_eq!(choice["logprobs"]["text_offset"], json!([8, 10]));
    assert_eq!(choice["logprobs"]["token_logprobs"], json!([-0.5, -0.25]));
    assert_eq!((&whole.1["object"], &whole.1["usage"]["total_tokens"]), (&json!("text_completion"), &json!(8)));

    let (streamed, ()) = tokio::join!(complete(|body| body["stream"] = json!(true)).send(), async {
        let assignment = island.take().await;
        island.send(assignment.key, assignment.first_event, vec![token("a"), token("b")]).await;
        island.end(assignment.key, assignment.first_event + 2, completed(1, 2)).await;
    });
    let events = Events::of(streamed.expect("answer")).rest().await;
    assert_eq!(events.last().expect("an event").data, "[DONE]");
    let text: String = events[..events.len() - 1]
        .iter()
        .map(|event| event.json()["choices"][0]["text"].as_str().expect("a text").to_owned())
        .collect();
    assert_eq!(text, "ab");
    let (status, refusal) = answer(complete(|body| body["model"] = json!("echo"))).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("model")), "{refusal}");
}

#[tokio::test]
async fn models_are_listed_with_what_aggregators_need() {
    let network = network().await;
    let list = network.get("/models").await;
    let writer = list["data"].as_array().expect("a list").iter().find(|model| model["id"] == "writer").expect("it");
    assert_eq!((&writer["context_length"], &writer["max_output_length"]), (&json!(4096), &json!(100)));
    assert_eq!(writer["pricing"], json!({"prompt": "0", "completion": "0", "request": "1"}));
    assert_eq!((&writer["input_modalities"], &writer["output_modalities"]), (&json!(["text"]), &json!(["text"])));
    assert_eq!(writer["supported_sampling_parameters"], json!(["temperature", "seed", "max_tokens", "logit_bias"]));
    assert_eq!(writer["supported_features"], json!(["logprobs"]));
}

#[tokio::test]
async fn models_of_other_endpoints_are_listed_for_those_who_ask_for_what_they_make() {
    let network = Network::start_with(|config| {
        let write = |slug: &str, text: String| {
            std::fs::write(config.catalogue.dir.join(format!("{slug}.toml")), text).expect("cargo file");
        };
        let onnx = "runtime_type = \"onnx\"\nonnx_task_type = \"feature-extraction\"";
        let vectors = COUNT.replace("runtime_type = \"llmcpp\"", onnx).replace("slug = \"count\"", "slug = \"vectors\"");
        write("vectors", vectors);
        write("paint", PAINT.to_owned());
    })
    .await;
    let ids = async |query: &str| {
        let list = network.get(&format!("/models{query}")).await;
        let models = list["data"].as_array().expect("a list").clone();
        models.iter().map(|model| model["id"].as_str().expect("a slug").to_owned()).collect::<Vec<_>>()
    };
    // `count` is served by no endpoint of another API.
    for (query, expected) in [
        ("", vec!["echo"]),
        ("?output_modalities=text", vec!["echo"]),
        ("?output_modalities=embeddings", vec!["vectors"]),
        ("?output_modalities=image,%20embeddings", vec!["paint", "vectors"]),
        ("?output_modalities=speech", vec![]),
        ("?output_modalities=all", vec!["echo", "paint", "vectors"]),
    ] {
        assert_eq!(ids(query).await, expected, "{query}");
    }
    let vectors = network.get("/models/vectors").await;
    assert_eq!((&vectors["input_modalities"], &vectors["output_modalities"]), (&json!(["text"]), &json!(["embeddings"])));
    assert_eq!((&vectors["context_length"], &vectors["max_output_length"]), (&json!(0), &json!(0)));
    assert_eq!(network.get("/models/paint").await["output_modalities"], json!(["image"]));
    let (status, refusal) = answer(network.call(Method::GET, "/models?output_modalities=video")).await;
    assert_eq!((status, &refusal["error"]["param"]), (422, &json!("output_modalities")), "{refusal}");
    assert_eq!(answer(network.call(Method::GET, "/models/count")).await.0, 404);
}
