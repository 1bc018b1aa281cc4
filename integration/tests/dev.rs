//! `island dev` itself: what it leaves behind, and what a second start finds.

use island_integration::{
    Network, Options,
    expect::{Story, eventually},
    processes,
};
use serde_json::json;

#[tokio::test]
async fn stops_everything_and_finds_its_data_again() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "remember me", "max_tokens": 4, "delay_ms": 0 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let first = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    let (key, host) = (network.info("api_key").to_owned(), network.info("host_id").to_owned());
    let (status, folder) = network.stop();
    assert!(status.success(), "{status}");
    assert_eq!(processes::of(folder.path()), [], "no process is left behind");
    assert!(!folder.path().join("dev.json").exists());

    let network = Network::start_in(folder, &Options::default());
    assert_eq!((network.info("api_key"), network.info("host_id")), (key.as_str(), host.as_str()));
    let client = network.client();
    let again = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    assert_eq!(again.text, first.text);
}

#[tokio::test]
async fn several_islands_share_the_work() {
    let network = Network::start_with(&Options { islands: 2, ..Options::default() });
    let client = network.client();
    let hosts = client.hosts().await.expect("hosts");
    assert_eq!(hosts.len(), 2);
    eventually("both are online", || async {
        let hosts = client.hosts().await.expect("hosts");
        hosts.iter().all(|host| host.status == "online").then_some(())
    })
    .await;
}
