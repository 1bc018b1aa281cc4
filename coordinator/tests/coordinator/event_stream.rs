//! The stream of job events on a server whose storage is small.

use async_nats::jetstream;
use bytes::Bytes;
use island_protocol::{
    fabric::JobEvents,
    ids::JobId,
    subjects::{JOB_EVENTS_STREAM, job_events},
};
use uuid::Uuid;

use crate::support::{
    island::{Island, completed, token},
    network::Network,
    soon,
};

const MIB: usize = 1 << 20;

async fn max_bytes(jetstream: &jetstream::Context) -> i64 {
    let stream = jetstream.get_stream(JOB_EVENTS_STREAM).await.expect("the stream");
    stream.cached_info().config.max_bytes
}

#[tokio::test]
async fn a_full_stream_accepts_the_events_of_new_jobs() {
    let mut network = Network::start().await;
    network.down().await;
    // Less than the account may use, which the server does not report.
    network.nats.shrink(16);
    network.up().await;
    let jetstream = network.jetstream().await;
    assert_eq!(max_bytes(&jetstream).await, 8 * MIB as i64);
    let payload = Bytes::from(vec![b'x'; MIB]);
    for message in 0..32 {
        let subject = job_events(JobId(Uuid::new_v4()));
        let sent = jetstream.publish(subject, payload.clone()).await.expect("sent");
        let stored = sent.await;
        assert!(stored.is_ok(), "message {message}: {:?}", stored.err());
    }
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    let subject = job_events(id.parse().expect("an id"));
    let published = async {
        loop {
            let stream = jetstream.get_stream_no_info(JOB_EVENTS_STREAM).await.expect("the stream");
            if let Ok(message) = stream.direct_get_last_for_subject(&subject).await {
                let last: JobEvents = serde_json::from_slice(&message.payload).expect("json");
                if last.events.last().expect("events").n == 4 {
                    return;
                }
            }
            tokio::task::yield_now().await;
        }
    };
    soon("the end in the stream", published).await;
}

#[tokio::test]
async fn a_stream_without_a_limit_gets_one() {
    let mut network = Network::start().await;
    let jetstream = network.jetstream().await;
    let limited = max_bytes(&jetstream).await;
    assert_eq!(limited, 128 * MIB as i64, "half of what the account may store");
    // As an earlier version created it.
    let mut config =
        jetstream.get_stream(JOB_EVENTS_STREAM).await.expect("the stream").cached_info().config.clone();
    config.max_bytes = -1;
    jetstream.update_stream(config).await.expect("changed");
    network.down().await;
    network.up().await;
    assert_eq!(max_bytes(&jetstream).await, limited);
}

#[tokio::test]
async fn the_events_of_an_ended_job_leave_the_stream_and_remain_in_sql() {
    let network = Network::start().await;
    let jetstream = network.jetstream().await;
    let mut island = Island::start(&network).await;
    let (ended, open) = (network.submit().await, network.submit().await);
    for _ in 0..2 {
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        if run.key.job_id.to_string() == *ended {
            island.end(run.key, run.first_event + 1, completed(1, 1)).await;
        }
    }
    let count = async |id: &str| {
        let stream = jetstream.get_stream(JOB_EVENTS_STREAM).await.expect("the stream");
        let subject = job_events(id.parse().expect("an id"));
        let info = stream.info_with_subjects(subject).await.expect("information");
        futures::StreamExt::count(info).await
    };
    let is_published = async { while count(&ended).await == 0 || count(&open).await == 0 {} };
    soon("the events in the stream", is_published).await;
    let is_purged = async { while count(&ended).await > 0 {} };
    // They remain for ten seconds.
    tokio::time::timeout(std::time::Duration::from_secs(30), is_purged).await.expect("they are removed");
    assert_eq!(count(&open).await, 1, "those of an open job remain");
    assert_eq!(network.stream(&ended, 0).await.rest().await.last().expect("end").name, "done");
}

#[tokio::test]
async fn a_coordinator_starts_and_runs_jobs_while_jetstream_is_away() {
    let mut network = Network::start().await;
    network.down().await;
    network.nats.up_without_jetstream();
    network.up().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&id).await["output"], "a");
    // It comes back with an empty store.
    network.nats.down();
    std::fs::remove_dir_all(network.path("fabric/jetstream")).expect("removed");
    network.nats.up();
    let jetstream = network.jetstream().await;
    let created = async {
        while jetstream.get_stream(JOB_EVENTS_STREAM).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon("the stream", created).await;
}
