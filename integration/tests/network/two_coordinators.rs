//! Two coordinators on one PostgreSQL and one NATS: one is killed in the middle of a stream.

use island_coordinator_client::Client;
use island_integration::{
    Network, Options,
    expect::{Story, final_job},
    has_postgres,
};
use serde_json::json;

#[tokio::test]
async fn a_stream_outlives_its_coordinator() {
    if !has_postgres() {
        island_testing::skip("a_stream_outlives_its_coordinator", "PostgreSQL is not installed");
        return;
    }
    let coordinator = vec![("JOBS__TAKEOVER_MS", "1500".to_owned())];
    let options = Options { postgres: true, coordinator, ..Options::default() };
    let mut network = Network::start_with(&options);
    let other = network.another_coordinator();
    let client = network.client();
    let elsewhere = Client::new(&other, Some(network.info("api_key").to_owned())).expect("client");
    let input = json!({ "prompt": "patient", "max_tokens": 300, "delay_ms": 20 });
    let reference = client.submit_job("sim-chat", input.clone(), 0).await.expect("submit");
    let reference = Story::default().read_to_end(&mut elsewhere.job_events(reference.id, None)).await;
    assert!(reference.is_done(), "{:?}", reference.last);

    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let mut watched = elsewhere.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 10).await;
    network.kill("coordinator");
    drop(events);
    let mut resumed = elsewhere.job_events(job.id, story.numbers.last().copied());
    let story = story.read_to_end(&mut resumed).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    assert_eq!(story.text, reference.text);

    let watched = Story::default().read_to_end(&mut watched).await;
    watched.assert_whole();
    assert_eq!(watched.text, reference.text, "who read at the other all along saw nothing of it");
    let ended = final_job(&elsewhere, job.id).await;
    assert_eq!(ended.usage.expect("usage").completion_tokens, 300);
}
