//! One Island against all others: floods of messages, refusals, output for jobs of others.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use island_protocol::{
    FABRIC_VERSION,
    fabric::{LeaseRenewal, LeasedJob, RefusalReason},
    host::Capabilities,
    ids::{AttemptKey, HostId, InstanceId, JobId},
    job::FailureCode,
    subjects::LEASE,
};
use island_testing::port::free_port;
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    island::{Island, completed, token},
    network::{ECHO, Network},
    soon,
};

/// Less than the coordinator's client keeps for one subscription.
const FLOOD: usize = 50_000;

#[tokio::test]
async fn renewals_of_made_up_islands_cost_no_lease() {
    let network = Network::start_with(|config| {
        config.jobs.heartbeat_ms = 300;
        // A debug build reads the flood in one to three seconds; one look-up in the database for each message would take a minute.
        config.jobs.lease_ms = 6_000;
    })
    .await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    let flooder = Island::start(&network).await;
    let made_up = || {
        let sent_at = island_coordinator_domain::clock::Clock::System.now();
        let (host_id, instance) = (HostId(Uuid::new_v4()), InstanceId(Uuid::new_v4()));
        let renewal = LeaseRenewal { v: FABRIC_VERSION, host_id, instance, jobs: Vec::new(), sent_at };
        serde_json::to_vec(&renewal).expect("json").into()
    };
    let messages: Vec<bytes::Bytes> = (0..FLOOD).map(|_| made_up()).collect();
    assert!(island.renew(run.key, "run", 1, run.first_event - 1).await.leases[0].held);
    for message in messages {
        flooder.client.publish(LEASE, message).await.expect("published");
    }
    flooder.client.flush().await.expect("flushed");
    let reply = island.renew_until_answered(run.key, "run", 2, run.first_event - 1).await;
    assert!(reply.leases[0].held, "it was renewed in time, behind the flood");
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&id).await["output"], "a");
}

#[tokio::test]
async fn a_registration_that_reports_too_much_or_control_characters_is_not_answered() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    // The reply to the second registration names it, as nobody knows it.
    let unknown = AttemptKey { job_id: JobId(Uuid::from_u128(1)), attempt: 1, epoch: 1 };
    let changes: [fn(&mut Capabilities); 3] = [
        |capabilities| capabilities.cpu_model = "x".repeat(64 << 10),
        |capabilities| capabilities.cpu_model = "\u{1b}[2J".to_owned(),
        |capabilities| capabilities.no_gpu_reason = Some("\0".to_owned()),
    ];
    for change in changes {
        assert_eq!(island.register_changed(change, &[unknown]).await.drop, [unknown]);
    }
    let several_lines = json!("no driver:\n\tnot found");
    let answer =
        island.register_or_refused(|message| message["capabilities"]["no_gpu_reason"] = several_lines).await;
    assert_eq!(answer.refused, None);
}

#[tokio::test]
async fn a_renewal_may_list_many_attempts_that_nobody_knows() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    network.submit().await;
    let run = island.take().await;
    let unknown = |n: u128| LeasedJob {
        key: AttemptKey { job_id: JobId(Uuid::from_u128(n)), attempt: 1, epoch: 1 },
        phase: "run".into(),
        work: 0,
        last_event: 0,
    };
    let own = LeasedJob { key: run.key, phase: "run".into(), work: 0, last_event: run.first_event - 1 };
    let jobs: Vec<_> = (1..1_000).map(unknown).chain([own]).collect();
    let expected = jobs.len();
    let mut replies = island.renew_all(jobs).await;
    let mut leases = Vec::new();
    while leases.len() < expected {
        leases.extend(soon("a reply", replies.next()).await.leases);
    }
    let held: Vec<_> = leases.iter().filter(|lease| lease.held).map(|lease| lease.key).collect();
    assert_eq!(held, [run.key]);
}

#[tokio::test]
async fn an_island_that_refuses_every_job_of_a_cargo_comes_last() {
    let network = Network::start().await;
    let (mut picky, mut willing) = (Island::start(&network).await, Island::start(&network).await);
    // The freest Island comes first.
    picky.slots = 20;
    picky.beat(&[]).await;
    let mut refusals = 0;
    while refusals < 3 {
        let id = network.submit().await;
        let run = loop {
            tokio::select! {
                offer = picky.offer() => {
                    picky.refuse_for(&offer, RefusalReason::WeakSandbox).await;
                    refusals += 1;
                }
                run = willing.take() => break run,
            }
        };
        willing.end(run.key, run.first_event, completed(1, 0)).await;
        assert_eq!(network.job(&id).await["status"], "completed");
        picky.beat(&[]).await;
    }
    network.submit().await;
    let first = tokio::select! {
        offer = picky.offer() => panic!("offered {} again", offer.assignment.key),
        run = willing.take() => run,
    };
    assert_eq!(first.key.epoch, 1, "nobody was offered it before");
}

#[tokio::test]
async fn output_that_is_repeated_without_end_does_not_postpone_the_deadline() {
    let mut network = Network::start().await;
    let cargo = ECHO.replace("timeout_s = 60", "timeout_s = 1");
    std::fs::write(network.path("cargos/echo.toml"), cargo).expect("Cargo file");
    network.down().await;
    network.up().await;
    let mut island = Island::start(&network).await;
    network.submit().await;
    let run = island.take().await;
    let flooder = island.copied().await;
    let flood = async {
        loop {
            flooder.send(run.key, run.first_event, vec![token("a"); 50]).await;
        }
    };
    let cancel = tokio::select! {
        cancel = island.cancelled() => cancel,
        () = flood => unreachable!("it does not end"),
    };
    assert_eq!(cancel.code, FailureCode::DeadlineExceeded);
}

#[tokio::test]
async fn output_of_others_is_counted_and_reaches_no_job() {
    let port = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let network = Network::start_with(|config| config.http.metrics = Some(port)).await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    let intruder = Island::start(&network).await;
    for _ in 0..3 {
        intruder.send(run.key, run.first_event, vec![token("forged")]).await;
    }
    assert!(intruder.end(run.key, run.first_event, completed(1, 0)).await.committed, "it may forget it");
    // Larger than any heartbeat.
    let large = json!({"host_id": island.id, "name": "x".repeat(2 << 20)});
    intruder.publish(island_protocol::subjects::HostTopic::Heartbeat, &large).await;
    let counted = async {
        loop {
            let page = reqwest::get(format!("http://{port}/metrics")).await.expect("answer").text().await;
            let page = page.expect("text");
            let has = |line: &str| page.lines().any(|found| found == line);
            if has("island_coordinator_stale_messages_total 4")
                && has("island_coordinator_dropped_messages_total 1")
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the counts", counted).await;
    island.send(run.key, run.first_event, vec![token("true")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&id).await["output"], "true");
}
