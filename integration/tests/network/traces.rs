//! One trace shows a job in every program that it passes through, and the logs name it.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use island_integration::{
    Network, Options,
    expect::{eventually, final_job},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value as Text, trace::v1::Span,
};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A span and the program that it is about.
type Received = (String, Span);

/// A collector that passes on what it is sent, span by span.
async fn collector() -> (String, mpsc::UnboundedReceiver<Received>) {
    let (sender, received) = mpsc::unbounded_channel();
    let take = async move |headers: axum::http::HeaderMap, body: axum::body::Bytes| {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let message = ExportTraceServiceRequest::decode(body).expect("a message of OTLP");
        for resource in message.resource_spans {
            let about = resource.resource.expect("a resource").attributes;
            let name = about.into_iter().find(|attribute| attribute.key == "service.name").expect("a name");
            let Some(Text::StringValue(service)) = name.value.and_then(|value| value.value) else {
                panic!("the name is a text")
            };
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let _ = sender.send((service.clone(), span));
            }
        }
    };
    let router = axum::Router::new().route("/v1/traces", axum::routing::post(take));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, received)
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.clone()?.value? {
        Text::StringValue(text) => Some(text),
        other => panic!("{name} is {other:?}"),
    }
}

/// Submits a job with this `traceparent` and returns its id and that of the request.
async fn submit(network: &Network, traceparent: &str) -> (Value, String) {
    let input = json!({ "prompt": "once upon a time", "max_tokens": 5, "delay_ms": 2 });
    let request = reqwest::Client::new()
        .post(format!("{}/api/v1/jobs", network.info("api_url")))
        .bearer_auth(network.info("api_key"))
        .header("traceparent", traceparent)
        .json(&json!({ "workload": "sim-chat", "input": input }));
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 201);
    let id = answer.headers()["x-request-id"].to_str().expect("text").to_owned();
    let body: Value = answer.json().await.expect("JSON");
    (body["data"]["id"].clone(), id)
}

#[tokio::test]
async fn one_trace_shows_a_job_in_three_programs() {
    let (url, mut received) = collector().await;
    let network = Network::start_with(&Options {
        coordinator: vec![("OTLP__ENDPOINT", url.clone())],
        // Its metrics would fail: this collector takes spans only.
        agent: vec![("OTLP__ENDPOINT", url), ("OTLP__EVERY_S", "3600".to_owned())],
        ..Options::default()
    });
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let (job, request) = submit(&network, &format!("00-{trace}-{parent}-01")).await;
    let id = serde_json::from_value(job.clone()).expect("an id");
    final_job(&network.client(), id).await;

    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    let expected = [
        ("island-coordinator", "POST /api/v1/jobs"),
        ("island-coordinator", "accept"),
        ("island-coordinator", "assign"),
        ("island-coordinator", "end"),
        ("island-coordinator", "job"),
        ("island-coordinator", "place"),
        ("island-agent", "admit"),
        ("island-agent", "attempt"),
        ("island-agent", "download"),
        ("island-agent", "first output"),
        ("island-agent", "load"),
        ("island-agent", "prepare"),
        ("island-agent", "run"),
        ("island-worker", "prompt"),
        ("island-worker", "run"),
    ];
    let mut spans = BTreeMap::new();
    let collected = async {
        while !expected
            .iter()
            .all(|(service, name)| spans.contains_key(&((*service).to_owned(), (*name).to_owned())))
        {
            let (service, span) = received.recv().await.expect("the collector runs");
            if hex(&span.trace_id) == trace {
                spans.insert((service, span.name.clone()), span);
            }
        }
    };
    let collected = tokio::time::timeout(std::time::Duration::from_mins(1), collected).await;
    assert!(collected.is_ok(), "{:?}", spans.keys());

    let span = |service: &str, name: &str| &spans[&(service.to_owned(), name.to_owned())];
    let is_inside = |inner: (&str, &str), outer: (&str, &str)| {
        let (inner, outer) = (span(inner.0, inner.1), span(outer.0, outer.1));
        assert_eq!(inner.parent_span_id, outer.span_id, "{} in {}", inner.name, outer.name);
        assert!(inner.start_time_unix_nano <= inner.end_time_unix_nano, "{inner:?}");
    };
    let (coordinator, agent, worker) = ("island-coordinator", "island-agent", "island-worker");
    let root = span(coordinator, "POST /api/v1/jobs");
    assert_eq!(hex(&root.parent_span_id), parent);
    assert_eq!(attribute(root, "island.request.id"), Some(request), "the answer names the request");
    for (inner, outer) in [
        ((coordinator, "job"), (coordinator, "POST /api/v1/jobs")),
        ((coordinator, "accept"), (coordinator, "job")),
        ((coordinator, "place"), (coordinator, "job")),
        ((coordinator, "assign"), (coordinator, "job")),
        ((coordinator, "end"), (coordinator, "job")),
        ((agent, "admit"), (coordinator, "assign")),
        ((agent, "attempt"), (agent, "admit")),
        ((agent, "prepare"), (agent, "attempt")),
        ((agent, "download"), (agent, "prepare")),
        ((agent, "load"), (agent, "prepare")),
        ((agent, "run"), (agent, "attempt")),
        ((agent, "first output"), (agent, "run")),
        ((worker, "prompt"), (agent, "run")),
        ((worker, "run"), (agent, "run")),
    ] {
        is_inside(inner, outer);
    }
    assert_eq!(attribute(span(coordinator, "job"), "island.job.id"), job.as_str().map(str::to_owned));
    assert_eq!(attribute(span(coordinator, "job"), "island.job.status"), Some("completed".to_owned()));
    assert_eq!(attribute(span(agent, "attempt"), "island.job.id"), job.as_str().map(str::to_owned));

    // What is not a place in a trace begins a new one.
    submit(&network, &format!("00-{trace}-{}-01", "0".repeat(16))).await;
    let begun = async {
        loop {
            let (_, span) = received.recv().await.expect("the collector runs");
            if span.name == "POST /api/v1/jobs" {
                return span;
            }
        }
    };
    let begun = tokio::time::timeout(std::time::Duration::from_mins(1), begun).await.expect("a span");
    assert_ne!(hex(&begun.trace_id), trace);
    assert!(begun.parent_span_id.is_empty());
}

/// The lines of a log of JSON whose message is this.
fn logged(network: &Network, log: &str, message: &str) -> Vec<Value> {
    let text = fs::read_to_string(network.folder().join("logs").join(log)).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["fields"]["message"] == message).collect()
}

#[tokio::test]
async fn log_lines_have_the_ids_of_request_account_job_and_island() {
    let network = Network::start_with(&Options {
        coordinator: vec![("LOG__FORMAT", "json".to_owned())],
        agent: vec![("LOG", "json".to_owned())],
        environment: [("ISLAND_LOG".to_owned(), "info,island_coordinator=debug".to_owned())].into(),
        ..Options::default()
    });
    let (job, request) = submit(&network, "").await;
    final_job(&network.client(), serde_json::from_value(job.clone()).expect("an id")).await;
    let account = network.client().account().await.expect("the account").id.to_string();

    let answered = eventually("the answer is logged", || async {
        let lines = logged(&network, "coordinator.log", "answered");
        lines.into_iter().find(|line| line["span"]["request"] == request)
    })
    .await;
    let span = &answered["span"];
    assert_eq!((&span["account"], &span["method"]), (&json!(account), &json!("POST")), "{answered}");
    assert_eq!(
        (&span["route"], &answered["fields"]["status"]),
        (&json!("/api/v1/jobs"), &json!(201)),
        "{answered}"
    );
    let ended = eventually("the end is logged", || async {
        logged(&network, "coordinator.log", "ended").into_iter().find(|line| line["span"]["job"] == job)
    })
    .await;
    assert_eq!(ended["span"]["account"], account, "{ended}");
    let finished = eventually("the end of the attempt is logged", || async {
        let lines = logged(&network, "island-1.log", "an attempt is finished");
        lines.into_iter().find(|line| line["span"]["job"] == job)
    })
    .await;
    assert_eq!(finished["span"]["cargo"], "sim-chat", "{finished}");
}
