//! The coordinator is killed and started again: clients resume after their last event.

use island_integration::{
    Network,
    expect::{Story, final_job},
};
use serde_json::json;

#[tokio::test]
async fn a_client_resumes_by_last_event_id() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "patient", "max_tokens": 300, "delay_ms": 20 });
    let reference = client.submit_job("sim-chat", input.clone(), 0).await.expect("submit");
    let reference = Story::default().read_to_end(&mut client.job_events(reference.id, None)).await;

    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 10).await;
    network.kill("coordinator");
    let story = story.read_to_end(&mut events).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    assert_eq!(story.text, reference.text);

    let replay = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    replay.assert_whole();
    assert_eq!(replay.text, reference.text, "the replay is what was streamed");
}

#[tokio::test]
async fn a_job_that_ends_meanwhile_is_not_lost() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "quick", "max_tokens": 60, "delay_ms": 10 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 2).await;
    network.kill("coordinator");
    let story = story.read_to_end(&mut events).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    let job = final_job(&client, job.id).await;
    assert_eq!(job.usage.expect("usage").completion_tokens, 60);
}
