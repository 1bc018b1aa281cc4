//! Interrupted streams are resumed; those that cannot be return an error.

use std::time::Duration;

use futures::StreamExt;
use island_coordinator_client::{
    Client, ClientError, RetryPolicy,
    api::chat::ChatRequest,
    protocol::{event::JobEvent, ids::JobId},
    stream::EventStream,
};

use crate::script::{Script, Step, frames, problem};

const JOB: JobId = JobId(uuid::Uuid::nil());
const TOTAL: u64 = 9;

async fn read(events: &mut EventStream) -> (Vec<u64>, Option<ClientError>) {
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if event.n < TOTAL {
                    assert_eq!(event.event, JobEvent::token(format!("t{}", event.n)));
                }
                seen.push(event.n);
            }
            Err(error) => return (seen, Some(error)),
        }
    }
    (seen, None)
}

#[tokio::test]
async fn resumes_without_a_gap_or_a_repeat() {
    let script = Script::play(vec![
        // Cut inside a frame.
        Step::Stream(frames(1, 3, TOTAL) + "id: 4\ndata: {\"type\":\"tok"),
        // A coordinator that restarts: connection refused, then starting, then a page of its proxy.
        Step::Hangup,
        Step::Answer(503, "retry-after: 0\r\n", problem("service_unavailable")),
        Step::Answer(502, "", "<html>".into()),
        // One that repeats events, one that leaves events out, one that sends nothing more.
        Step::Stream(frames(2, 5, TOTAL)),
        Step::Stream(frames(7, 8, TOTAL)),
        Step::Silent(frames(6, 7, TOTAL)),
        Step::Stream(frames(8, 9, TOTAL)),
    ])
    .await;
    let mut events = script.client().job_events(JOB, None);
    let (seen, error) = read(&mut events).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen, (1..=TOTAL).collect::<Vec<_>>());
    assert!(events.next().await.is_none());
    let asked = script.asked().await;
    let resumed: Vec<Option<&str>> = asked.iter().map(|asked| asked.header("last-event-id")).collect();
    let three = Some("3");
    assert_eq!(resumed, [None, three, three, three, three, Some("5"), Some("5"), Some("7")]);
}

#[tokio::test]
async fn starts_after_the_given_event() {
    let script = Script::play(vec![Step::Stream(frames(8, 9, TOTAL))]).await;
    let events = script.client().job_events(JOB, Some(7));
    let seen: Vec<u64> = events.into_stream().map(|event| event.expect("event").n).collect().await;
    assert_eq!(seen, [8, 9]);
    assert_eq!(script.asked().await[0].header("last-event-id"), Some("7"));
}

#[tokio::test]
async fn gives_up_after_enough_tries_without_an_event() {
    let mut steps = vec![Step::Stream(frames(1, 2, TOTAL))];
    steps.extend(std::iter::repeat_n(Step::Stream(String::new()), 5));
    let script = Script::play(steps).await;
    let (seen, error) = read(&mut script.client().job_events(JOB, None)).await;
    assert_eq!(seen, [1, 2]);
    let error = error.expect("lost");
    assert!(matches!(error, ClientError::StreamLost { job: JOB, last: 2, .. }), "{error:?}");
    assert!(error.advice().is_some_and(|advice| advice.contains("after event 2")));
}

/// A complete answer of events.
fn complete(frames: String) -> Step {
    Step::Answer(200, "content-type: text/event-stream\r\n", frames)
}

fn job(status: &str) -> Step {
    Step::Answer(200, "", format!(r#"{{"data":{{"status":"{status}"}}}}"#))
}

#[tokio::test]
async fn an_ended_job_without_further_events_ends_the_stream() {
    let nothing = || complete(String::new());
    let script = Script::play(vec![nothing(), job("completed"), nothing()]).await;
    let (seen, error) = read(&mut script.client().job_events(JOB, Some(TOTAL))).await;
    assert!(error.is_none() && seen.is_empty(), "{seen:?} {error:?}");
    assert_eq!(script.asked().await.len(), 3);
}

#[tokio::test]
async fn an_end_after_an_empty_stream_is_read() {
    let steps = vec![complete(String::new()), job("completed"), complete(frames(TOTAL, TOTAL, TOTAL))];
    let script = Script::play(steps).await;
    let (seen, error) = read(&mut script.client().job_events(JOB, Some(TOTAL - 1))).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen, [TOTAL]);
}

#[tokio::test]
async fn an_empty_stream_of_a_running_job_is_resumed() {
    let steps = vec![complete(String::new()), job("running"), Step::Stream(frames(1, TOTAL, TOTAL))];
    let script = Script::play(steps).await;
    let (seen, error) = read(&mut script.client().job_events(JOB, None)).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen, (1..=TOTAL).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_limit_of_streams_is_returned_at_once_but_waited_for_while_resuming() {
    let limit = || Step::Answer(429, "retry-after: 0\r\n", problem("concurrent_streams_exceeded"));
    let script = Script::play(vec![limit(), Step::Stream(frames(1, TOTAL, TOTAL))]).await;
    let (_, error) = read(&mut script.client().job_events(JOB, None)).await;
    assert!(matches!(error, Some(ClientError::Refused(_))), "{error:?}");
    assert_eq!(script.asked().await.len(), 1);

    let steps = vec![Step::Stream(frames(1, 2, TOTAL)), limit(), Step::Stream(frames(3, TOTAL, TOTAL))];
    let script = Script::play(steps).await;
    let (seen, error) = read(&mut script.client().job_events(JOB, None)).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen, (1..=TOTAL).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_unknown_job_is_not_retried() {
    let script = Script::play(vec![Step::Answer(404, "", problem("job_not_found"))]).await;
    let (_, error) = read(&mut script.client().job_events(JOB, None)).await;
    assert_eq!(error.expect("refused").code(), Some("job_not_found"));
}

#[tokio::test]
async fn malformed_frames_and_html_are_errors() {
    let garbage = Step::Stream("id: 1\ndata: not json\n\n".into());
    let script = Script::play(vec![garbage, Step::Answer(200, "", "<html>".into())]).await;
    let (_, error) = read(&mut script.client().job_events(JOB, None)).await;
    assert!(matches!(error, Some(ClientError::Decode { .. })), "{error:?}");
    let (_, error) = read(&mut script.client().job_events(JOB, None)).await;
    assert!(matches!(error, Some(ClientError::NotOurs { status: 200, .. })), "{error:?}");
}

fn chunk(content: &str) -> String {
    let body = serde_json::json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{ "index": 0, "delta": { "content": content }, "finish_reason": null }],
    });
    format!("data: {body}\n\n")
}

async fn chat(script: &Script) -> (String, Option<ClientError>) {
    let mut reply = script.client().chat_stream(&ChatRequest::default()).await.expect("a stream");
    let mut text = String::new();
    while let Some(chunk) = reply.next().await {
        match chunk {
            Ok(chunk) => text.push_str(chunk.choices[0].delta.content.as_deref().unwrap_or_default()),
            Err(error) => return (text, Some(error)),
        }
    }
    (text, None)
}

#[tokio::test]
async fn a_reply_is_requested_again_until_it_begins() {
    let script = Script::play(vec![
        Step::Hangup,
        Step::Answer(429, "retry-after: 0\r\n", problem("concurrent_streams_exceeded")),
        Step::Stream(chunk("Hel") + &chunk("lo") + "data: [DONE]\n\n"),
    ])
    .await;
    let (text, error) = chat(&script).await;
    assert!(error.is_none() && text == "Hello", "{text} {error:?}");
    let asked = script.asked().await;
    assert_eq!(asked.len(), 3);
    // The coordinator may have accepted the job of the first try.
    let first = asked[0].header("idempotency-key").expect("a key");
    assert!(asked.iter().all(|asked| asked.header("idempotency-key") == Some(first)));
}

#[tokio::test]
async fn a_coordinator_that_accepts_and_never_answers_is_not_waited_for_without_end() {
    let head = "HTTP/1.1 200 x\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\n<html>";
    for sent in ["", head] {
        let script = Script::play(vec![Step::Mute(sent)]).await;
        let builder = Client::builder(&script.url).key("ak_test").retry(RetryPolicy::NONE);
        let client = builder.opening_timeout(Duration::from_millis(200)).build().expect("client");
        let request = ChatRequest::default();
        let opening = tokio::time::timeout(Duration::from_mins(1), client.chat_stream(&request));
        let error = opening.await.expect("it ends").expect_err("no reply");
        assert!(matches!(error, ClientError::Silent { .. }) && error.is_transient(), "{sent:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_reply_is_cancelled_by_the_id_of_its_job() {
    let text = chunk("Hel").replace("chatcmpl-1", &format!("chatcmpl-{JOB}"));
    let cancelled = format!(r#"{{"data":{{"id":"{JOB}","status":"cancelled"}}}}"#);
    let script = Script::play(vec![Step::Silent(text), Step::Answer(200, "", cancelled)]).await;
    let client = script.client();
    let mut reply = client.chat_stream(&ChatRequest::default()).await.expect("a stream");
    reply.next().await.expect("a chunk").expect("the first one");
    reply.cancel().await.expect("cancelled");
    let asked = script.asked().await;
    assert_eq!(asked[1].line, format!("DELETE /api/v1/jobs/{JOB} HTTP/1.1"));
}

#[tokio::test]
async fn a_reply_that_has_begun_is_never_requested_again() {
    let script = Script::play(vec![
        Step::Stream(chunk("Hel")),
        Step::Stream(chunk("Hel") + &format!("data: {}\n\n", problem("job_failed"))),
    ])
    .await;
    let (text, error) = chat(&script).await;
    assert!(matches!(error, Some(ClientError::ReplyLost { .. })) && text == "Hel", "{text} {error:?}");
    assert_eq!(script.asked().await.len(), 1);
    let (text, error) = chat(&script).await;
    assert_eq!((text.as_str(), error.expect("failed").code()), ("Hel", Some("job_failed")));
}
