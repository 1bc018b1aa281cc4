//! Wrong keys, forged Islands, other people's epochs: nothing changes.

use island_coordinator_client::{
    api::HostCredentials,
    protocol::{
        FABRIC_VERSION,
        event::{AttemptEvent, Numbered},
        fabric::Output,
        ids::{AttemptKey, HostId},
        subjects::HostTopic,
    },
};
use island_integration::{
    Network,
    expect::Story,
    scripted_island::{enrollment, options},
};
use nkeys::KeyPair;
use serde_json::json;

#[tokio::test]
async fn a_wrong_key_opens_nothing() {
    let network = Network::start();
    for key in [None, Some("ak_wrong".to_owned()), Some("nonsense".to_owned())] {
        let error = network.client_with(key).account().await.expect_err("refused");
        assert!(matches!(error.code(), Some("missing_api_key" | "invalid_api_key")), "{error}");
    }
}

#[tokio::test]
async fn an_id_belongs_to_the_key_that_enrolled_it() {
    let network = Network::start();
    let host: HostId = network.info("host_id").parse().expect("host id");
    let thief = KeyPair::new_user();
    let error = network.client().enroll(&enrollment(&thief, host)).await.expect_err("refused");
    assert_eq!(error.code(), Some("host_conflict"));
}

#[tokio::test]
async fn an_island_cannot_speak_for_another() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "mine alone", "max_tokens": 100, "delay_ms": 20 });
    let job = client.submit_job("sim-chat", input.clone(), 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 3).await;

    let key = KeyPair::new_user();
    let own = HostId(uuid::Uuid::new_v4());
    let credentials = client.enroll(&enrollment(&key, own)).await.expect("enrol");
    let (nats, mut violations) = connect(key, own, &credentials).await;
    let victim: HostId = network.info("host_id").parse().expect("host id");
    let forged = |epoch| Output {
        v: FABRIC_VERSION,
        key: AttemptKey { job_id: job.id, attempt: 1, epoch },
        events: (1..200).map(|n| Numbered { n, event: AttemptEvent::token("forged".into(), 1) }).collect(),
    };
    for epoch in 0..20 {
        let payload = serde_json::to_vec(&forged(epoch)).expect("json");
        nats.publish(HostTopic::Output.of(own), payload.into()).await.expect("publish on its own subject");
    }
    let payload = serde_json::to_vec(&forged(1)).expect("json");
    nats.publish(HostTopic::Output.of(victim), payload.into()).await.expect("hand to the server");
    nats.flush().await.expect("flush");
    let violation = violations.recv().await.expect("the server refuses");
    assert!(violation.contains("Permissions Violation"), "{violation}");

    let story = story.read_to_end(&mut events).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    assert!(!story.text.contains("forged"));
}

async fn connect(
    key: KeyPair,
    host: HostId,
    credentials: &HostCredentials,
) -> (async_nats::Client, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (sender, violations) = tokio::sync::mpsc::unbounded_channel();
    let client = options(key, host, credentials)
        .event_callback(move |event| {
            let sender = sender.clone();
            async move {
                if let async_nats::Event::ServerError(error) = event {
                    let _ = sender.send(error.to_string());
                }
            }
        })
        .connect(&credentials.nats_url)
        .await
        .expect("connect");
    (client, violations)
}
