//! A worker is killed: jobs that delivered nothing run again, others fail and are refunded; the agent lives.

use island_coordinator_client::protocol::job::JobStatus;
use island_integration::{
    Network,
    expect::{Story, eventually, final_job},
    processes,
};
use serde_json::json;

#[tokio::test]
async fn after_the_first_token_the_job_fails_and_is_refunded() {
    let network = Network::start();
    let client = network.client();
    let before = client.account().await.expect("account").credits;
    let input = json!({ "prompt": "on the way", "max_tokens": 400, "delay_ms": 20 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 3).await;
    let agent = network.pid("island-1");
    for worker in processes::workers(network.folder()) {
        processes::kill(worker.pid);
    }
    let story = story.read_to_end(&mut events).await;
    story.assert_whole();
    assert_eq!(story.error_code(), Some("runtime_crashed"));
    let job = final_job(&client, job.id).await;
    assert_eq!(job.status, JobStatus::Failed);
    assert_eq!(client.account().await.expect("account").credits, before, "refunded in full");
    assert_eq!(network.pid("island-1"), agent, "the agent lives");

    let input = json!({ "prompt": "again", "max_tokens": 5, "delay_ms": 0 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    assert!(story.is_done(), "the Island works on: {:?}", story.last);
}

#[tokio::test]
async fn before_the_first_token_the_job_runs_again_silently() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "slow to begin", "max_tokens": 5, "delay_ms": 2000 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    eventually("the job runs", || async {
        let job = client.job(job.id).await.expect("job");
        (job.status == JobStatus::Running).then_some(())
    })
    .await;
    let workers = processes::workers(network.folder());
    assert_eq!(workers.len(), 1, "{workers:?}");
    processes::kill(workers[0].pid);
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
}
