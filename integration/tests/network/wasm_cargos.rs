//! Wasm Cargos through the whole network: every one that `make cargos` builds gives the output of its entry.

use std::time::Duration;

use island_coordinator_client::protocol::{event::JobEvent, job::JobStatus};
use island_integration::{
    Network, examples,
    expect::{Story, final_job},
};
use serde_json::json;

#[tokio::test]
async fn every_example_gives_what_its_entry_says() {
    let network = Network::start();
    let examples = examples::of("wasm");
    assert!(examples.len() >= 22, "only {} entries", examples.len());
    let wrong = examples::run_all(&network, &examples, 4).await;
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), examples.len(), wrong.join("\n"));
}

#[tokio::test]
async fn output_streams_while_the_program_runs() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "text": "one two three four five six", "delay_ms": 300 });
    let job = client.submit_job("wasm-echo", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 2).await;
    let running = client.job(job.id).await.expect("read the job");
    assert_eq!(running.status, JobStatus::Running, "tokens come before the end");
    let story = story.read_to_end(&mut events).await;
    story.assert_whole();
    assert!(story.is_done() && story.text.contains("six"), "{story:?}");
}

#[tokio::test]
async fn a_cancelled_program_ends_and_the_next_one_runs() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "text": "word ".repeat(500), "delay_ms": 1000 });
    let job = client.submit_job("wasm-echo", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let _ = Story::default().read_tokens(&mut events, 1).await;
    client.cancel_job(job.id).await.expect("cancel");
    assert_eq!(final_job(&client, job.id).await.status, JobStatus::Cancelled);
    let input = json!({ "text": "still here" });
    let next = client.submit_job("wasm-echo", input, 0).await.expect("submit");
    let ended = tokio::time::timeout(Duration::from_secs(30), final_job(&client, next.id)).await;
    assert_eq!(ended.expect("in time").status, JobStatus::Completed);
}

#[tokio::test]
async fn bad_input_is_the_jobs_failure_with_a_word_on_it() {
    let network = Network::start();
    let client = network.client();
    let before = client.account().await.expect("account").credits;
    // Valid under the schema: only the program can detect that the filter is invalid.
    let input = json!({ "json": {"a": 1}, "query": ".a | ][" });
    let job = client.submit_job("wasm-json", input, 0).await.expect("submit");
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    let Some(JobEvent::Error { code, error }) = &story.last else { panic!("it must fail: {story:?}") };
    assert_eq!(code, "invalid_input", "{error}");
    assert!(!error.is_empty());
    assert_eq!(client.account().await.expect("account").credits, before, "a failed job costs nothing");
}
