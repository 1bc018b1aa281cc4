//! A thousand Islands lose the fabric at one time, and return.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_nats::{Client, Event};
use futures::{StreamExt as _, stream};
use island_agent::link::session::reconnect_delay;
use island_coordinator_client::protocol::ids::HostId;
use island_integration::{
    Network, Options,
    expect::{Story, eventually},
    scripted_island::{enrollment, options},
};
use nkeys::KeyPair;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::alone;

const ISLANDS: usize = 1_000;

/// Enrolls an Island and connects it as its agent would. Counts its connections.
async fn connect(client: &island_coordinator_client::Client, connections: Arc<AtomicUsize>) -> Client {
    let (key, host) = (KeyPair::new_user(), HostId(uuid::Uuid::new_v4()));
    let credentials = client.enroll(&enrollment(&key, host)).await.expect("enroll");
    options(key, host, &credentials)
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            if matches!(event, Event::Connected) {
                connections.fetch_add(1, Ordering::Relaxed);
            }
            async {}
        })
        .connect(&credentials.nats_url)
        .await
        .expect("connect")
}

/// Waits until each has connected this many times.
async fn connected(counts: &[Arc<AtomicUsize>], times: usize) {
    eventually("all Islands are connected", || async {
        counts.iter().all(|count| count.load(Ordering::Relaxed) >= times).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_them_return() {
    let _alone = alone().await;
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })
        .expect("allow many connections");
    let no_limit = vec![("LIMITS__ISLANDS", "0".to_owned())];
    let network = Network::start_with(&Options { coordinator: no_limit, ..Options::default() });
    let client = network.client();
    let counts: Vec<Arc<AtomicUsize>> = (0..ISLANDS).map(|_| Arc::default()).collect();
    let islands: Vec<Client> = stream::iter(counts.clone())
        .map(|count| connect(&client, count))
        .buffer_unordered(16)
        .collect()
        .await;
    connected(&counts, 1).await;
    network.kill("nats-server");
    connected(&counts, 2).await;
    assert!(
        islands.iter().all(|island| island.connection_state() == async_nats::connection::State::Connected)
    );

    // The fabric is usable, also for the Island that works.
    let input = json!({ "prompt": "still here", "max_tokens": 5 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    assert!(story.is_done(), "{:?}", story.last);
}
