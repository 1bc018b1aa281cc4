//! NATS is killed and started again in the middle of a stream.

use island_integration::{Network, expect::Story};
use serde_json::json;

#[tokio::test]
async fn no_gap_and_no_repeat() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "through the storm", "max_tokens": 300, "delay_ms": 20 });
    let reference = client.submit_job("sim-chat", input.clone(), 0).await.expect("submit");
    let reference = Story::default().read_to_end(&mut client.job_events(reference.id, None)).await;

    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 10).await;
    network.kill("nats-server");
    let story = story.read_to_end(&mut events).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    assert_eq!(story.text, reference.text);
}
