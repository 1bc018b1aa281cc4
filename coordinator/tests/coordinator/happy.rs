//! A job from its acceptance to its end.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed, finished, token},
    network::{Event, Network},
};

fn shape(events: &[Event]) -> Vec<(u64, String, String)> {
    let part = |event: &Event| {
        let data = event.json();
        let text =
            data["content"].as_str().or(data["state"].as_str()).or(data["code"].as_str()).unwrap_or("");
        (event.id.expect("every event has an id"), event.name.clone(), text.to_owned())
    };
    events.iter().map(part).collect()
}

#[tokio::test]
async fn a_job_runs_streams_settles_and_replays() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9, "the price is held");
    let stream = network.stream(&id, 0).await;

    let assignment = island.take().await;
    assert_eq!(assignment.key.job_id.to_string(), id);
    let first = assignment.first_event;
    island.send(assignment.key, first, vec![token("Hel"), token("lo")]).await;
    let reply = island.end(assignment.key, first + 2, completed(3, 99)).await;
    assert!(reply.committed);

    let events = stream.rest().await;
    let expected = [
        (1, "status", "submitted"),
        (2, "status", "queued"),
        (3, "token", "Hel"),
        (4, "token", "lo"),
        (5, "done", ""),
    ];
    assert_eq!(shape(&events), expected.map(|(n, name, text)| (n, name.to_owned(), text.to_owned())));
    let usage = &events[4].json()["usage"];
    assert_eq!(
        usage,
        &json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "credits_used": 1})
    );

    let job = network.job(&id).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("completed"), &json!("Hello")));
    assert!(job["duration_ms"].is_u64());
    let times = ["created_at", "placed_at", "started_at", "first_output_at", "completed_at"];
    let times = times.map(|name| job[name].as_str().expect(name));
    assert!(times.is_sorted(), "{job}");
    assert_eq!(network.stream(&id, 0).await.rest().await, events, "an ended job replays whole");
    assert_eq!(network.stream(&id, 3).await.rest().await, events[3..], "and from any event on");
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9);
    assert!((network.credits(&network.owner).await - 1.0).abs() < 1e-9, "the Island's owner earns the price");
    network.audit().await;
}

#[tokio::test]
async fn a_repeated_end_is_confirmed_again_and_changes_nothing() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    for _ in 0..3 {
        let reply = island.end(assignment.key, assignment.first_event, finished(json!("done"))).await;
        assert!(reply.committed);
    }
    assert_eq!(network.job(&id).await["status"], "completed");
    assert!((network.credits(&network.owner).await - 1.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn an_object_result_is_checked_and_part_of_done() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let body = json!({"workload": "count", "input": {"text": "a b"}, "priority": 7});
    let answer: Value = network
        .call(Method::POST, "/jobs")
        .json(&body)
        .send()
        .await
        .expect("answer")
        .json()
        .await
        .expect("json");
    let id = answer["data"]["id"].as_str().expect("id").to_owned();
    let assignment = island.take().await;
    let outcome = |output: Value| island_protocol::job::Outcome::Completed {
        usage: island_protocol::job::Usage::default(),
        output: Some(output),
        finish_reason: None,
        stop_text: None,
    };
    let wrong = island.end(assignment.key, assignment.first_event, outcome(json!({"count": "two"}))).await;
    assert!(wrong.committed, "the attempt is over, the job is not");
    let again = island.take().await;
    assert_eq!((again.key.attempt, again.key.epoch > assignment.key.epoch), (2, true));
    island.end(again.key, again.first_event, outcome(json!({"count": 2}))).await;
    let events = network.stream(&id, 0).await.rest().await;
    assert_eq!(events.last().expect("done").json()["output"], json!({"count": 2}));
    assert_eq!(network.job(&id).await["output"], json!({"count": 2}));
    let output = network.get(&format!("/jobs/{id}/output")).await;
    assert_eq!(output["data"]["output"], json!({"count": 2}));
}

#[tokio::test]
async fn without_an_island_a_job_waits_with_a_reason() {
    let network = Network::start().await;
    let id = network.submit().await;
    let mut stream = network.stream(&id, 0).await;
    assert_eq!(stream.next().await.expect("event").json()["state"], "submitted");
    let pending = stream.next().await.expect("event").json();
    assert_eq!((&pending["state"], &pending["reason"]), (&json!("pending"), &json!("no Island is online")));
    let shown = network.job(&id).await;
    assert_eq!((&shown["waiting"], &shown["waiting_reason"]), (&json!({}), &json!("no Island is online")));
    let mut island = Island::start(&network).await;
    let assignment = island.take().await;
    assert_eq!(stream.next().await.expect("event").json()["state"], "queued");
    island.end(assignment.key, assignment.first_event, completed(1, 0)).await;
    assert_eq!(stream.rest().await.last().expect("end").name, "done");
    let listed = network.get("/jobs").await;
    assert_eq!((&listed["meta"]["total"], &listed["data"][0]["status"]), (&json!(1), &json!("completed")));
}

#[tokio::test]
async fn a_job_that_delivered_nothing_costs_nothing() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let reply = island.end(assignment.key, assignment.first_event, completed(1, 10)).await;
    assert_eq!(reply.earned.map(|earned| earned.0), Some(0), "an end without a text earns nothing");
    let job = network.job(&id).await;
    assert_eq!((&job["status"], &job["usage"]["credits_used"]), (&json!("completed"), &json!(0)), "{job}");
    assert_eq!(job["usage"]["completion_tokens"], 0, "no token without text: {job}");
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn a_cancelled_reply_costs_its_share_and_at_least_half() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let mut stream = network.stream(&id, 0).await;
    island.send(assignment.key, assignment.first_event, vec![token("a"), token("b")]).await;
    while stream.next().await.expect("event").data != r#"{"type":"token","content":"b"}"# {}

    let cancel = || network.call(Method::DELETE, &format!("/jobs/{id}")).send();
    let answer = cancel().await.expect("answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(
        answer.json::<Value>().await.expect("json"),
        json!({"data": {"id": id, "status": "cancelled"}})
    );
    assert_eq!(cancel().await.expect("answer").status(), StatusCode::OK, "repeating it is not an error");
    assert_eq!(island.cancelled().await.key, assignment.key);
    assert_eq!(stream.next().await.expect("end").json()["code"], "cancelled_by_user");
    assert!(stream.next().await.is_none());
    assert!((network.credits(&network.owner).await - 0.5).abs() < 1e-9, "two of ten tokens");
    assert!((network.credits(&network.consumer).await - 9.5).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn cancelling_before_any_output_is_free_and_a_completed_job_cannot_be_cancelled() {
    let network = Network::start().await;
    let waiting = network.submit().await;
    let cancel = |id: &str| network.call(Method::DELETE, &format!("/jobs/{id}")).send();
    assert_eq!(cancel(&waiting).await.expect("answer").status(), StatusCode::OK);
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    island.end(assignment.key, assignment.first_event, completed(1, 0)).await;
    let late = cancel(&id).await.expect("answer");
    assert_eq!(late.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(late.json::<Value>().await.expect("json")["error"]["code"], "job_already_final");
    network.audit().await;
}
