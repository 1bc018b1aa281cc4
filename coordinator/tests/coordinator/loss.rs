//! Lost Islands, runs and messages.

use std::time::Duration;

use island_coordinator_storage::Store;
use island_protocol_api::{HostCredentials, claim::ClaimVerb};
use island_protocol::{event::AttemptEvent, fabric::{Assignment, Status}, host::CONTINUES_FORMS, ids::{AttemptKey, InstanceId}, job::{Failure, FailureCode, Outcome}, subjects::HostTopic};
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    answer,
    island::{Island, completed, connect, output, signed, token},
    network::{ECHO, Event, Network, account},
    soon,
};

/// A network with short leases.
async fn hasty() -> Network {
    Network::start_with(|config| {
        config.jobs.heartbeat_ms = 300;
        config.jobs.lease_ms = 1_000;
        config.jobs.stall_ms = 300;
    })
    .await
}

fn text(events: &[Event]) -> String {
    events.iter().filter_map(|event| event.json()["content"].as_str().map(str::to_owned)).collect()
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.id.expect("id")).collect()
}

#[tokio::test]
async fn a_refused_job_is_offered_to_the_next_island() {
    let network = Network::start().await;
    let mut one = Island::start(&network).await;
    let mut two = Island::start(&network).await;
    let id = network.submit().await;
    let (refuser, taker, offer) = tokio::select! {
        offer = one.offer() => (&one, &mut two, offer),
        offer = two.offer() => (&two, &mut one, offer),
    };
    refuser.refuse(&offer).await;
    let assignment = taker.take().await;
    assert!(assignment.key.epoch > offer.assignment.key.epoch);
    assert_eq!(assignment.first_event, offer.assignment.first_event, "no event was published meanwhile");
    taker.end(assignment.key, assignment.first_event, completed(1, 0)).await;
    assert_eq!(network.job(&id).await["status"], "completed");
}

#[tokio::test]
async fn an_island_lost_before_any_output_is_replaced_silently() {
    let network = hasty().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let lost = island.take().await;
    let progress = AttemptEvent::Progress { step: 1, total: 2, phase: Some("load".into()) };
    island.send(lost.key, lost.first_event, vec![progress]).await;
    assert_eq!(island.cancelled().await.key, lost.key, "the lease ran out");
    island.beat(&[]).await;
    let again = island.take().await;
    assert_eq!(again.key.attempt, 2);
    island.send(lost.key, lost.first_event + 1, vec![token("stale")]).await;
    let stale = island.end(lost.key, lost.first_event + 2, completed(1, 1)).await;
    assert!(stale.committed, "nobody waits for it any more");
    island.send(again.key, again.first_event, vec![token("fresh")]).await;
    island.end(again.key, again.first_event + 1, completed(1, 1)).await;
    let events = network.stream(&id, 0).await.rest().await;
    assert_eq!(text(&events), "fresh");
    assert_eq!(numbers(&events), (1..=events.len() as u64).collect::<Vec<_>>());
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn a_reply_whose_island_is_lost_continues_after_the_delivered_text() {
    let network = hasty().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let stream = network.stream(&id, 0).await;
    let lost = island.take().await;
    assert_eq!(lost.continues, None);
    island.send(lost.key, lost.first_event, vec![token("half")]).await;
    assert_eq!(island.cancelled().await.key, lost.key, "the lease ran out");
    island.beat(&[]).await;
    let again = island.take().await;
    assert_eq!((again.key.attempt, again.continues.as_deref()), (2, Some("half")));
    island.send(lost.key, lost.first_event + 1, vec![token(" stale")]).await;
    island.send(again.key, again.first_event, vec![token("way")]).await;
    island.end(again.key, again.first_event + 1, completed(1, 2)).await;
    let events = stream.rest().await;
    assert_eq!(text(&events), "halfway");
    assert_eq!(numbers(&events), (1..=events.len() as u64).collect::<Vec<_>>());
    let job = network.job(&id).await;
    assert_eq!((&job["status"], &job["usage"]["completion_tokens"]), (&json!("completed"), &json!(2)));
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9, "paid once");
    network.audit().await;
}

#[tokio::test]
async fn an_island_lost_after_output_fails_the_job_and_refunds_it() {
    let network = hasty().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let stream = network.stream(&id, 0).await;
    for attempt in 1..=3 {
        island.beat(&[]).await;
        let assignment = island.take().await;
        assert_eq!(assignment.key.attempt, attempt);
        island.send(assignment.key, assignment.first_event, vec![token("half ")]).await;
        assert_eq!(island.cancelled().await.key, assignment.key, "the lease ran out");
    }
    let events = stream.rest().await;
    assert_eq!(events.last().expect("end").json()["code"], "island_lost");
    let job = network.job(&id).await;
    assert_eq!((&job["status"], &job["error"]["code"]), (&json!("failed"), &json!("island_lost")));
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    network.audit().await;
}

/// A network with a job whose reply has a required format, of which the only Island has sent a part: its id, and the attempt.
async fn with_a_form() -> (Network, Island, String, Assignment) {
    let network = Network::start_with(|config| {
        let text = ECHO.replace("\"echo\"", "\"formed\"").replace("aliases = [\"parrot\"]\n", "");
        let text = text.replace("messages = {", "response_format = { type = \"object\" }\nmessages = {");
        std::fs::write(config.catalogue.dir.join("formed.toml"), text).expect("cargo file");
    })
    .await;
    let mut island = Island::start(&network).await;
    let input = json!({"prompt": "hi", "response_format": {"type": "json_object"}});
    let body = json!({"workload": "formed", "input": input});
    let (status, accepted) = answer(network.call(Method::POST, "/jobs").json(&body)).await;
    assert_eq!(status, 201, "{accepted}");
    let taken = island.take().await;
    island.send(taken.key, taken.first_event, vec![token("{\"a\"")]).await;
    (network, island, accepted["data"]["id"].as_str().expect("id").to_owned(), taken)
}

fn handed_back() -> Outcome {
    Outcome::failed(Failure::interrupted(FailureCode::HandedBack, "the owner is back"))
}

#[tokio::test]
async fn a_reply_with_a_required_format_continues_where_the_engine_can() {
    let (network, older, id, lost) = Box::pin(with_a_form()).await;
    let mut newer = Island::start(&network).await;
    newer.features = vec![CONTINUES_FORMS.to_owned()];
    newer.register(&[]).await;
    newer.beat(&[]).await;
    // It reports more free slots, and the same agent would be offered the job first.
    let mut other = Island::start(&network).await;
    other.slots = 9;
    other.beat(&[]).await;
    older.end(lost.key, lost.first_event + 1, handed_back()).await;
    let again = newer.take().await;
    assert_eq!((again.key.attempt, again.continues.as_deref()), (2, Some("{\"a\"")));
    newer.send(again.key, again.first_event, vec![token(": 1}")]).await;
    newer.end(again.key, again.first_event + 1, completed(1, 2)).await;
    let job = network.job(&id).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("completed"), &json!("{\"a\": 1}")));
    network.audit().await;
}

#[tokio::test]
async fn a_reply_with_a_required_format_that_no_engine_can_continue_is_refunded() {
    let (network, older, id, lost) = Box::pin(with_a_form()).await;
    let _other = Island::start(&network).await;
    let stream = network.stream(&id, 0).await;
    older.end(lost.key, lost.first_event + 1, handed_back()).await;
    let events = stream.rest().await;
    assert_eq!(events.last().expect("end").json()["code"], "island_lost");
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn attempts_handed_back_by_owners_do_not_count_as_failures() {
    let network = Network::start().await;
    let (one, two) = (Island::start(&network).await, Island::start(&network).await);
    let mut islands = [one, two];
    let id = network.submit().await;
    let mut text = String::new();
    for attempt in 1..=5_u32 {
        let (one, two) = islands.split_at_mut(1);
        let (island, assignment) = tokio::select! {
            taken = one[0].take() => (&one[0], taken),
            taken = two[0].take() => (&two[0], taken),
        };
        assert_eq!(assignment.key.attempt, attempt, "more than failures may cost");
        assert_eq!(assignment.continues.unwrap_or_default(), text);
        text.push_str("word ");
        island.send(assignment.key, assignment.first_event, vec![token("word ")]).await;
        let end = if attempt < 5 {
            Outcome::failed(Failure::interrupted(FailureCode::HandedBack, "the owner is back"))
        } else {
            completed(1, 5)
        };
        island.end(assignment.key, assignment.first_event + 1, end).await;
        if attempt < 5 {
            for island in &islands {
                island.beat(&[]).await;
            }
        }
    }
    let job = network.job(&id).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("completed"), &json!(text)));
    network.audit().await;
}

#[tokio::test]
async fn a_renewed_lease_is_valid_and_a_stalled_run_is_lost() {
    let network = hasty().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    island.send(assignment.key, assignment.first_event, vec![token("x")]).await;
    let mut renewals = 0;
    let cancel = loop {
        tokio::select! {
            cancel = island.cancelled() => break cancel,
            () = tokio::time::sleep(std::time::Duration::from_millis(100)) => {}
        }
        let reply = island.renew(assignment.key, "run", 7, assignment.first_event).await;
        renewals += u32::from(reply.leases.iter().any(|lease| lease.held));
    };
    assert!(renewals > 0);
    assert_eq!(cancel.code, FailureCode::RuntimeStalled);
    island.beat(&[]).await;
    let again = island.take().await;
    assert_eq!((again.key.attempt, again.continues.as_deref()), (2, Some("x")), "another goes on with it");
    let of_job = Failure::of_job(FailureCode::InvalidOutput, "enough");
    island.end(again.key, again.first_event, Outcome::failed(of_job)).await;
    assert_eq!(network.job(&id).await["error"]["code"], "invalid_output");
}

#[tokio::test]
async fn a_fault_of_the_job_is_final_and_one_of_the_host_is_retried_at_most_twice() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let first = island.take().await;
    let of_job = Failure::of_job(FailureCode::ContextLengthExceeded, "too long");
    island.end(first.key, first.first_event, Outcome::failed(of_job)).await;
    assert_eq!(network.job(&id).await["error"]["code"], "context_length_exceeded");

    let id = network.submit().await;
    for attempt in 1..=3 {
        let assignment = island.take().await;
        assert_eq!(assignment.key.attempt, attempt);
        let of_host = Failure::of_host(FailureCode::RuntimeCrashed, "aborted");
        island.end(assignment.key, assignment.first_event, Outcome::failed(of_host)).await;
    }
    let job = network.job(&id).await;
    assert_eq!((&job["status"], &job["error"]["code"]), (&json!("failed"), &json!("runtime_crashed")));
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn a_lost_message_is_requested_again_and_a_repeated_one_is_dropped() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    island.send(key, first, vec![token("a")]).await;
    island.send(key, first, vec![token("a"), token("b")]).await;
    // Event first + 2 is lost.
    island.send(key, first + 3, vec![token("d")]).await;
    let reply = island.end(key, first + 4, completed(1, 4)).await;
    assert_eq!((reply.committed, reply.replay_from), (false, Some(first + 2)));
    let lease = island.renew(key, "ended", 1, first + 4).await.leases.remove(0);
    assert_eq!((lease.held, lease.replay_from), (true, Some(first + 2)));
    island.send(key, first + 2, vec![token("c"), token("d")]).await;
    assert!(island.end(key, first + 4, completed(1, 4)).await.committed);
    let events = network.stream(&id, 0).await.rest().await;
    assert_eq!(text(&events), "abcd");
    assert_eq!(numbers(&events), (1..=events.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn another_island_another_epoch_or_another_job_changes_nothing() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    let mut intruder = Island::start(&network).await;
    intruder.send(key, first, vec![token("forged")]).await;
    assert!(intruder.end(key, first, completed(1, 0)).await.committed, "the attempt is reported as ended");
    assert!(!intruder.renew(key, "run", 1, 1).await.leases[0].held);
    for forged in [AttemptKey { epoch: key.epoch + 1, ..key }, AttemptKey { attempt: key.attempt + 1, ..key }]
    {
        island.send(forged, first, vec![token("forged")]).await;
        assert!(!island.renew(forged, "run", 1, 1).await.leases[0].held);
    }
    // The fabric refuses subjects of other Islands.
    let payload = serde_json::to_vec(&output(key, first, vec![token("forged")])).expect("json");
    intruder.client.publish(HostTopic::Output.of(island.id), payload.into()).await.expect("queued locally");
    intruder.client.flush().await.expect("flush");
    island.send(key, first, vec![token("true")]).await;
    assert!(island.end(key, first + 1, completed(1, 1)).await.committed);
    assert_eq!(text(&network.stream(&id, 0).await.rest().await), "true");
    let _ = &mut intruder;
}

#[tokio::test]
async fn a_reply_goes_only_to_the_senders_own_inbox() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let mut victim = Island::start(&network).await;
    let ended = output(
        assignment.key,
        assignment.first_event,
        vec![AttemptEvent::Ended { outcome: completed(1, 0) }],
    );
    // The committed end would be sent to the victim as if it were an assignment.
    let payload = serde_json::to_vec(&ended).expect("json");
    let (subject, aim) = (HostTopic::Output.of(island.id), HostTopic::Jobs.of(victim.id));
    island.client.publish_with_reply(subject, aim, payload.into()).await.expect("publish");
    assert!(island.end(assignment.key, assignment.first_event, completed(1, 0)).await.committed);
    assert_eq!(network.job(&id).await["status"], "completed");
    // The first message that the victim receives is a real assignment.
    drop(island);
    let next = network.submit().await;
    let heard = victim.offer().await;
    assert!([next, id].contains(&heard.assignment.key.job_id.to_string()));
}

#[tokio::test]
async fn an_agent_that_restarted_without_the_attempt_has_lost_it() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let kept = island.take().await;
    let status = Status {
        v: 1,
        key: kept.key,
        state: "started".into(),
        code: None,
        timestamp: island_protocol::time::Timestamp::from_unix_ms(0),
    };
    island.publish(HostTopic::Status, &status).await;
    island.instance = InstanceId(Uuid::new_v4());
    assert!(island.register(&[kept.key]).await.drop.is_empty(), "it held on to it");
    island.instance = InstanceId(Uuid::new_v4());
    let unknown = AttemptKey { job_id: island_protocol::ids::JobId(Uuid::new_v4()), attempt: 1, epoch: 1 };
    assert_eq!(island.register(&[unknown]).await.drop, [unknown]);
    assert_eq!(island.cancelled().await.key, kept.key);
    island.beat(&[]).await;
    let again = island.take().await;
    assert_eq!(again.key.attempt, 2);
    island.end(again.key, again.first_event, completed(1, 0)).await;
    assert_eq!(network.job(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_deadline_reported_by_the_engine_is_a_timeout_and_not_retried() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let faults: [fn(FailureCode, String) -> Failure; 2] = [Failure::of_job, Failure::interrupted];
    for fault in faults {
        let id = network.submit().await;
        let assignment = island.take().await;
        let late = Outcome::failed(fault(FailureCode::DeadlineExceeded, "too slow".to_owned()));
        assert!(island.end(assignment.key, assignment.first_event, late).await.committed);
        assert_eq!(network.job(&id).await["status"], "timeout");
        assert_eq!(network.job(&id).await["error"]["code"], "deadline_exceeded");
    }
    network.audit().await;
}

#[tokio::test]
async fn a_run_past_its_time_limit_times_out() {
    let network = Network::start().await;
    std::fs::write(
        network.path("cargos/echo.toml"),
        crate::support::network::ECHO.replace("timeout_s = 60", "timeout_s = 1"),
    )
    .expect("cargo file");
    let mut network = network;
    network.down().await;
    network.up().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    assert_eq!(island.cancelled().await.code, FailureCode::DeadlineExceeded);
    let events = network.stream(&id, 0).await.rest().await;
    assert_eq!(events.last().expect("end").json()["code"], "deadline_exceeded");
    assert_eq!(network.job(&id).await["status"], "timeout");
    assert!(island.end(assignment.key, assignment.first_event, completed(1, 0)).await.committed);
    assert_eq!(network.job(&id).await["status"], "timeout", "a final state never changes");
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    network.audit().await;
}

/// A copied virtual machine: both agents get the messages of the Island, and one of them is meant.
#[tokio::test]
async fn of_two_agents_with_one_identity_one_gets_the_jobs() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    let mut copy = island.copied().await;
    assert!(!copy.register(&[]).await.duplicate, "it may be a restart");
    copy.beat(&[]).await;
    assert!(island.register(&[]).await.duplicate, "a run that was replaced does not come back");
    island.beat(&[]).await;
    let id = network.submit().await;
    let assignment = copy.take().await;
    assert_eq!(assignment.instance, Some(copy.instance()));
    copy.send(assignment.key, assignment.first_event, vec![token("a")]).await;
    copy.end(assignment.key, assignment.first_event + 1, completed(1, 1)).await;
    assert_eq!(network.stream(&id, 0).await.rest().await.last().expect("end").name, "done");
}

#[tokio::test]
async fn a_step_of_the_coordinators_clock_loses_no_lease() {
    let mut network = Network::start_process(|config| {
        config.jobs.heartbeat_ms = 300;
        config.jobs.lease_ms = 2_000;
    })
    .await;
    let clock = network.path("clock");
    let steps = |ms: &str| std::fs::write(&clock, ms).expect("the error of the clock");
    steps("0");
    network.kill();
    assert!(network.start_failing(&format!("wall_clock=return({})", clock.display())).await);
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    let renew = async |body: &serde_json::Value| {
        answer(network.http.post(format!("{}/island/credentials", network.url)).json(body)).await
    };
    let mut claims = Vec::new();
    for (work, ms) in ["3600000", "-3600000", "0"].into_iter().enumerate() {
        steps(ms);
        let reply = island.renew_until_answered(run.key, "run", work as u64, run.first_event - 1).await;
        assert!(reply.leases[0].held, "{ms}");
        // A claim is accepted, and the credentials are valid for the fabric, whose clock is right.
        let claim = signed(island.id, &island.key, ClaimVerb::Credentials);
        let (status, body) = renew(&claim).await;
        assert_eq!(status, 200, "{ms}: {body}");
        let credentials: HostCredentials = serde_json::from_value(body["data"].clone()).expect("credentials");
        connect(&credentials, island.id, &island.key).await.flush().await.expect("connected");
        claims.push(claim);
        for claim in &claims {
            let (status, body) = renew(claim).await;
            assert_eq!((status, &body["error"]["param"]), (422, &json!("nonce")), "{ms}: once only");
        }
    }
    steps("3600000");
    assert!(island.register(&[run.key]).await.drop.is_empty());
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    // A new job is assigned with a time that the Island accepts.
    network.submit().await;
    let sent_at = island.take().await.sent_at;
    let age_ms = island_coordinator_domain::clock::Clock::System.now().unix_ms() - sent_at.unix_ms();
    assert!(age_ms.abs() < island_protocol::fabric::SIGNATURE_WINDOW_MS, "{age_ms}");
    steps("0");
    assert_eq!(network.job(&id).await["output"], "a");
}

#[tokio::test]
async fn a_coordinator_that_started_while_its_clock_was_wrong_assigns_jobs() {
    let mut network = Network::start_process(|_| {}).await;
    let clock = network.path("clock");
    let steps = |ms: &str| std::fs::write(&clock, ms).expect("the error of the clock");
    let mut island = Island::start(&network).await;
    for ms in ["-3600000", "3600000"] {
        steps(ms);
        network.kill();
        assert!(network.start_failing(&format!("wall_clock=return({})", clock.display())).await);
        // The clock that does not step is set by the first message of an Island, which is refused.
        let refused = async {
            let log = network.path("coordinator.log");
            while !std::fs::read_to_string(&log).expect("a log").contains("message dropped") {
                island.try_stay(None, 0).await;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon("the refusal of a message", refused).await;
        steps("0");
        island.try_stay(None, 0).await;
        let id = network.submit().await;
        let run = island.take().await;
        let age_ms = island_coordinator_domain::clock::Clock::System.now().unix_ms() - run.sent_at.unix_ms();
        assert!(age_ms.abs() < island_protocol::fabric::SIGNATURE_WINDOW_MS, "{ms}: {age_ms}");
        island.end(run.key, run.first_event, completed(1, 1)).await;
        assert_eq!(network.job(&id).await["status"], "completed");
    }
}

#[tokio::test]
async fn a_running_job_is_cancelled_while_the_fabric_is_away() {
    let mut network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    let mut stream = network.stream(&id, 0).await;
    while stream.next().await.expect("the stream goes on").name != "token" {}
    network.nats.down();
    let cancelled = answer(network.call(reqwest::Method::DELETE, &format!("/jobs/{id}"))).await;
    assert_eq!(cancelled, (200, json!({"data": {"id": id, "status": "cancelled"}})));
    assert_eq!(stream.rest().await.last().expect("an end").name, "error");
    let job = network.job(&id).await;
    assert!(job["status"] == "cancelled" && job["usage"]["credits_used"].as_f64() > Some(0.0), "{job}");
}

/// The entry or the address is wrong then, and each Island would download the file for nothing.
#[tokio::test]
async fn a_cargo_pauses_if_three_owners_report_its_file() {
    let mut network = Network::start().await;
    let store = Store::open(&network.config.database).await.expect("database");
    let failure = || Failure::of_host(FailureCode::ModelHashMismatch, "model has another hash");
    for owner in ["a@example.org", "b@example.org", "c@example.org"] {
        assert_eq!(network.get("/workloads/echo").await["data"]["is_enabled"], true);
        network.owner = account(&store, owner, 0).await;
        let mut island = Island::start(&network).await;
        let id = network.submit().await;
        loop {
            let run = island.take().await;
            island.end(run.key, run.first_event, Outcome::failed(failure())).await;
            if network.job(&id).await["status"] == "failed" {
                break;
            }
        }
        let left = signed(island.id, &island.key, ClaimVerb::Leave);
        let left = network.http.post(format!("{}/island/leave", network.url)).json(&left).send().await;
        assert_eq!(left.expect("answer").status(), 200);
    }
    store.close().await;
    let paused = async {
        while network.get("/workloads/echo").await["data"]["is_enabled"] == true {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("the pause", paused).await;
    let body = json!({"workload": "echo", "input": {"prompt": "hello"}});
    let (status, body) = answer(network.call(reqwest::Method::POST, "/jobs").json(&body)).await;
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(status >= 400 && message.contains("model has another hash"), "{body}");
}

#[tokio::test]
async fn a_result_that_lacks_what_the_cargo_promises_is_not_paid() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let body = json!({"workload": "count", "input": {"text": "a b"}});
    let sent = network.call(reqwest::Method::POST, "/jobs").json(&body).send().await.expect("answer");
    let body: serde_json::Value = sent.json().await.expect("json");
    let id = body["data"]["id"].as_str().expect("id").to_owned();
    for attempt in 1..=2 {
        let run = island.take().await;
        assert_eq!(run.key.attempt, attempt);
        // It claims to have completed an object and has none.
        island.end(run.key, run.first_event, completed(1, 1)).await;
    }
    let job = network.job(&id).await;
    assert_eq!((&job["status"], &job["error"]["code"]), (&json!("failed"), &json!("invalid_output")));
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    network.audit().await;
}
