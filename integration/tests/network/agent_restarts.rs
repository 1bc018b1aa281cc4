//! The agent is killed and started again: it finds the same worker, and the stream goes on.

use island_integration::{
    Network,
    expect::{Story, eventually},
    processes,
};
use serde_json::json;

#[tokio::test]
async fn the_stream_goes_on_from_the_same_worker() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "steady", "max_tokens": 300, "delay_ms": 20 });
    let reference = client.submit_job("sim-chat", input.clone(), 0).await.expect("submit");
    let reference = Story::default().read_to_end(&mut client.job_events(reference.id, None)).await;

    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 10).await;
    let workers = processes::workers(network.folder());
    let agent = network.pid("island-1");
    network.kill("island-1");
    eventually("the agent is back", || async { (network.pid("island-1") != agent).then_some(()) }).await;
    let story = story.read_to_end(&mut events).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    assert_eq!(story.text, reference.text, "byte for byte what an undisturbed run gives");
    assert_eq!(processes::workers(network.folder()), workers, "the same worker, the same pid");
}
