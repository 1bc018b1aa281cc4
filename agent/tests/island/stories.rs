//! Tests of whole attempts.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use island_protocol::{
    artifact::Artifact,
    cargo::RuntimeType,
    event::{AttemptEvent, Numbered},
    fabric::{Heartbeat, Preload, RefusalReason},
    ids::AttemptKey,
    job::{FailureCode, Fault, Outcome},
    version::{VERSIONS, Versions, negotiate},
};
use island_protocol_api::recommendation::Recommendation;
use island_runtimes_api::simulated::reply;
use island_testing::port::free_port;
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::{
    coordinator::{Coordinator, Received, now},
    fixture::{AGENT, Island, Nats, assignment, kill_worker, spawn, wait_for, workers_dir},
    gpu::Gpu,
};

pub(crate) fn text(events: &[Numbered<AttemptEvent>]) -> String {
    let piece = |event: &Numbered<AttemptEvent>| match &event.event {
        AttemptEvent::Token { content, .. } => Some(content.clone()),
        _ => None,
    };
    events.iter().filter_map(piece).collect()
}

pub(crate) fn outcome(events: &[Numbered<AttemptEvent>]) -> &Outcome {
    let ends: Vec<_> = events
        .iter()
        .filter_map(
            |event| if let AttemptEvent::Ended { outcome } = &event.event { Some(outcome) } else { None },
        )
        .collect();
    assert_eq!(ends.len(), 1, "an attempt ends once");
    ends[0]
}

pub(crate) fn failure(events: &[Numbered<AttemptEvent>]) -> (Fault, FailureCode) {
    match outcome(events) {
        Outcome::Failed { failure, .. } => (failure.fault, failure.code),
        Outcome::Completed { .. } => panic!("it must fail: {events:?}"),
    }
}

pub(crate) fn assert_completed(events: &[Numbered<AttemptEvent>], prompt: &str, tokens: u64) {
    assert_eq!(text(events), reply(prompt, tokens));
    assert!(matches!(outcome(events), Outcome::Completed { .. }), "{:?}", events.last());
}

#[tokio::test]
async fn registers_its_capabilities_and_sends_heartbeats() {
    let island = Island::start().await;
    let beats = island.coordinator.wait("heartbeats", |seen| seen.heartbeats.get(1).cloned()).await;
    assert_eq!((beats.host_id, beats.status.as_str()), (island.host, "online"));
    assert!(beats.headroom.job_slots > 0 && beats.system.memory_total_mb > 0);
    let seen = island.coordinator.seen();
    let capabilities = &seen.registers[0].capabilities;
    assert!(capabilities.runtimes.iter().any(|runtime| runtime.simulated && runtime.available));
    assert!(capabilities.gpus.is_empty() == capabilities.no_gpu_reason.is_some());
}

#[tokio::test]
async fn a_job_streams_to_its_end_and_leaves_no_files() {
    let island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "one two three", "max_tokens": 20}))).await;
    let events = island.coordinator.end(key).await;
    assert_completed(&events, "one two three", 20);
    wait_for("clean folders", || {
        (island.files("spool").is_empty() && island.files("journal").is_empty()).then_some(())
    })
    .await;
    let states = island.coordinator.wait("statuses", |seen| {
        let states: Vec<String> = seen.statuses.iter().map(|status| status.state.clone()).collect();
        (states.last()? == "completed").then_some(states)
    });
    assert_eq!(states.await, ["preparing", "started", "completed"]);
}

#[tokio::test]
async fn many_jobs_share_one_worker() {
    let island = Island::start().await;
    let mut keys = Vec::new();
    for number in 0..8 {
        let input = json!({"prompt": format!("job {number}"), "max_tokens": 10, "delay_ms": 20});
        keys.push(island.run(&assignment(input)).await);
    }
    for (number, key) in keys.into_iter().enumerate() {
        assert_completed(&island.coordinator.end(key).await, &format!("job {number}"), 10);
    }
    assert_eq!(island.workers().len(), 1);
}

#[tokio::test]
async fn the_same_assignment_twice_runs_once_and_an_older_one_never() {
    let island = Island::start().await;
    let mut twice = assignment(json!({"prompt": "a", "max_tokens": 5, "delay_ms": 50}));
    twice.key.epoch = 7;
    island.run(&twice).await;
    island.run(&twice).await;
    let mut older = twice.clone();
    older.key.epoch = 6;
    let refused = island.coordinator.assign(island.host, &older).await.refusal.expect("refused");
    assert_eq!(refused.reason, RefusalReason::Invalid);
    assert_completed(&island.coordinator.end(twice.key).await, "a", 5);
    wait_for("the record to be removed", || island.files("journal").is_empty().then_some(())).await;
    let late = island.coordinator.assign(island.host, &twice).await;
    assert!(!late.accepted, "a late copy starts nothing");
}

#[tokio::test]
async fn only_the_coordinator_can_assign() {
    let island = Island::start().await;
    let job = assignment(json!({"prompt": "a"}));
    let reply = island.coordinator.assign_signed(island.host, &job, &KeyPair::new_account()).await;
    assert_eq!(reply.refusal.expect("refused").reason, RefusalReason::Invalid);
    let mut stale = job.clone();
    stale.sent_at = stale.sent_at.plus_ms(-600_000);
    assert!(!island.coordinator.assign(island.host, &stale).await.accepted);
    let mut unknown = job;
    unknown.cargo.engine = json!(null);
    unknown.cargo.runtime_type = "abacus".to_owned().into();
    let refusal = island.coordinator.assign(island.host, &unknown).await.refusal.expect("refused");
    assert_eq!(refusal.reason, RefusalReason::NoRuntime);
}

#[tokio::test]
async fn a_cancelled_job_ends_at_once() {
    let island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "a", "max_tokens": 100_000, "delay_ms": 10}))).await;
    island.coordinator.tokens(key, 3).await;
    island.coordinator.cancel(island.host, key).await;
    let events = island.coordinator.end(key).await;
    assert_eq!(failure(&events), (Fault::Interrupted, FailureCode::CancelledByUser));
}

#[tokio::test]
async fn a_cancellation_is_followed_only_if_a_coordinator_signed_it() {
    let island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "a", "max_tokens": 100_000, "delay_ms": 10}))).await;
    island.coordinator.tokens(key, 3).await;
    // Cancellations are taken in order: a forged one would decide the reason.
    for forger in [None, Some(KeyPair::new_account())] {
        let forged = FailureCode::RuntimeStalled;
        island.coordinator.cancel_signed(island.host, key, forged, forger.as_ref()).await;
    }
    island.coordinator.cancel(island.host, key).await;
    assert_eq!(failure(&island.coordinator.end(key).await).1, FailureCode::CancelledByUser);
}

#[tokio::test]
async fn a_job_past_its_deadline_ends() {
    let island = Island::start().await;
    let mut job = assignment(json!({"prompt": "a", "max_tokens": 100_000, "delay_ms": 10}));
    job.deadline = job.sent_at.plus_ms(1500);
    let key = island.run(&job).await;
    assert_eq!(failure(&island.coordinator.end(key).await).1, FailureCode::DeadlineExceeded);
}

#[tokio::test]
async fn a_crash_after_the_first_token_fails_the_job_and_the_next_one_runs() {
    let island = Island::start().await;
    let key = island
        .run(&assignment(json!({"prompt": "a", "max_tokens": 9, "delay_ms": 50, "crash_after": 4})))
        .await;
    let events = island.coordinator.end(key).await;
    assert_eq!(failure(&events), (Fault::Host, FailureCode::RuntimeCrashed));
    let delivered = text(&events);
    assert!(!delivered.is_empty() && reply("a", 4).starts_with(&delivered), "{delivered}");
    let next = island.run(&assignment(json!({"prompt": "b", "max_tokens": 3}))).await;
    assert_completed(&island.coordinator.end(next).await, "b", 3);
}

#[tokio::test]
async fn a_worker_killed_before_the_first_token_is_replaced_unnoticed() {
    let island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "a b", "max_tokens": 4, "delay_ms": 1500}))).await;
    island
        .coordinator
        .wait("the start", |seen| {
            seen.statuses.iter().find(|status| status.key == key && status.state == "started").map(drop)
        })
        .await;
    kill_worker(island.workers()[0]).await;
    assert_completed(&island.coordinator.end(key).await, "a b", 4);
}

#[tokio::test]
async fn a_stalled_worker_is_killed_and_its_job_fails() {
    let island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "a", "max_tokens": 9, "hang_after": 2}))).await;
    let events = island.coordinator.end(key).await;
    assert_eq!(failure(&events), (Fault::Host, FailureCode::RuntimeStalled));
    wait_for("the worker's end", || island.workers().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_cancelled_job_in_a_long_step_leaves_its_neighbor_alone() {
    let island = Island::start().await;
    let neighbor =
        island.run(&assignment(json!({"prompt": "x y z", "max_tokens": 350, "delay_ms": 20}))).await;
    island.coordinator.tokens(neighbor, 2).await;
    // The step takes longer than an engine has for the end of a cancelled job.
    let reading = island.run(&assignment(json!({"prompt": "a", "max_tokens": 9, "read_ms": 60_000}))).await;
    island
        .coordinator
        .wait("the start", |seen| {
            seen.statuses.iter().find(|status| status.key == reading && status.state == "started").map(drop)
        })
        .await;
    island.coordinator.cancel(island.host, reading).await;
    assert_eq!(failure(&island.coordinator.end(reading).await).1, FailureCode::CancelledByUser);
    assert_completed(&island.coordinator.end(neighbor).await, "x y z", 350);
    assert_eq!(island.launches().len(), 1, "both ran in one worker");
}

#[tokio::test]
async fn a_killed_agent_finds_its_worker_again_and_the_stream_continues() {
    let mut island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "x y z", "max_tokens": 150, "delay_ms": 20}))).await;
    island.coordinator.tokens(key, 10).await;
    let workers = island.workers();
    island.kill_agent();
    island.start_agent().await;
    assert_completed(&island.coordinator.end(key).await, "x y z", 150);
    assert_eq!(island.workers(), workers, "the same process");
    let seen = island.coordinator.seen();
    assert_eq!(seen.registers.last().expect("registered").holding, [key]);
}

#[tokio::test]
async fn a_worker_of_which_nothing_is_known_any_more_is_ended() {
    let mut island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "x y z", "max_tokens": 1000, "delay_ms": 20}))).await;
    island.coordinator.tokens(key, 3).await;
    island.kill_agent();
    for name in island.files("w").iter().filter(|name| name.ends_with(".key")) {
        fs::write(island.path("w").join(name), "{").expect("written");
    }
    island.start_agent().await;
    let events = island.coordinator.end(key).await;
    assert_eq!(failure(&events), (Fault::Host, FailureCode::RuntimeCrashed));
    wait_for("the worker's end", || island.workers().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_worker_of_one_isolated_job_ends_with_it_also_after_a_restart() {
    let mut island = Island::start().await;
    let mut job = assignment(json!({"prompt": "x y z", "max_tokens": 150, "delay_ms": 20}));
    job.isolated = true;
    let key = island.run(&job).await;
    island.coordinator.tokens(key, 10).await;
    island.kill_agent();
    island.start_agent().await;
    assert_completed(&island.coordinator.end(key).await, "x y z", 150);
    wait_for("the worker's end", || island.workers().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_worker_of_one_isolated_job_ends_also_if_the_job_never_ran_in_it() {
    let island = Island::start().await;
    let mut job = assignment(json!({"prompt": "a", "max_tokens": 5}));
    job.isolated = true;
    job.cargo.engine = json!({"simulated": true, "load_ms": 600_000});
    let key = island.run(&job).await;
    wait_for("its worker", || (!island.workers().is_empty()).then_some(())).await;
    island.coordinator.cancel(island.host, key).await;
    let events = island.coordinator.end(key).await;
    assert_eq!(failure(&events), (Fault::Interrupted, FailureCode::CancelledByUser));
    wait_for("the worker's end", || island.workers().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_worker_of_one_isolated_job_ends_also_if_the_job_is_dropped() {
    let island = Island::with_lease(1500).await;
    let mut job = assignment(json!({"prompt": "x", "max_tokens": 100_000, "delay_ms": 10}));
    job.isolated = true;
    let key = island.run(&job).await;
    island.coordinator.tokens(key, 3).await;
    island.coordinator.seen().denied.insert(key);
    wait_for("the worker's end", || island.workers().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_hint_to_preload_is_followed_only_if_the_coordinator_signed_it() {
    let island = Island::start().await;
    let hint = |slug: &str| {
        let recommended = recommended(&island, slug, slug.as_bytes(), 1, true);
        let (workload_slug, artifacts) = (recommended.workload_slug, recommended.artifacts);
        Preload { v: 1, workload_slug, artifacts, sent_at: Some(now()) }
    };
    let (forged, real) = (hint("forged"), hint("real"));
    let recorded = Preload { sent_at: Some(now().plus_ms(-600_000)), ..forged.clone() };
    island.coordinator.preload(island.host, &forged, None).await;
    island.coordinator.preload(island.host, &forged, Some(&KeyPair::new_account())).await;
    // Hints are taken in order.
    let own = island.coordinator.key();
    island.coordinator.preload(island.host, &recorded, Some(&own)).await;
    island.coordinator.preload(island.host, &real, Some(&own)).await;
    island.coordinator.wait("the file of the hint", |seen| (seen.files["real"].1 > 0).then_some(())).await;
    assert_eq!(island.coordinator.seen().files["forged"].1, 0);
}

#[tokio::test]
async fn a_killed_agent_whose_worker_also_died_fails_the_attempt() {
    let mut island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "x", "max_tokens": 1000, "delay_ms": 20}))).await;
    island.coordinator.tokens(key, 3).await;
    island.kill_agent();
    kill_worker(island.workers()[0]).await;
    island.start_agent().await;
    let events = island.coordinator.end(key).await;
    assert_eq!(failure(&events), (Fault::Host, FailureCode::RuntimeCrashed));
}

#[tokio::test]
async fn a_restarted_fabric_costs_no_event() {
    let mut island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "x y", "max_tokens": 200, "delay_ms": 10}))).await;
    island.coordinator.tokens(key, 5).await;
    island.nats.restart().await;
    assert_completed(&island.coordinator.end(key).await, "x y", 200);
}

#[tokio::test]
async fn credentials_are_renewed_before_they_end_and_the_stream_continues() {
    let island = Island::with(30_000, 1500).await;
    let key = island.run(&assignment(json!({"prompt": "x y", "max_tokens": 200, "delay_ms": 20}))).await;
    assert_completed(&island.coordinator.end(key).await, "x y", 200);
    assert!(island.coordinator.given() >= 3, "{}", island.coordinator.given());
}

#[tokio::test]
async fn an_island_follows_its_coordinator_to_another_fabric() {
    // Credentials, which contain the address, are renewed before they end.
    let mut island = Island::with(30_000, 1500).await;
    // Nothing listens there.
    island.coordinator.seen().nats_url = Some("nats://127.0.0.1:1".to_owned());
    let before = island.coordinator.given();
    wait_for("renewals", || (island.coordinator.given() >= before + 2).then_some(())).await;
    beats(&island, 1).await;

    let nats = Nats::start().await;
    let other = Coordinator::start(&nats.url(), 30_000, 3_600_000).await;
    island.nats.stop();
    island.coordinator.seen().nats_url = Some(nats.url());
    let host = other.wait("registration", |seen| Some(seen.registers.last()?.host_id)).await;
    assert_eq!(host, island.host);
}

#[tokio::test]
async fn lost_messages_are_sent_again_on_request() {
    let island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "x", "max_tokens": 60, "delay_ms": 10}))).await;
    island.coordinator.tokens(key, 5).await;
    island.coordinator.seen().lose_outputs = 3;
    assert_completed(&island.coordinator.end(key).await, "x", 60);
}

#[tokio::test]
async fn an_attempt_without_a_lease_is_dropped_without_an_event() {
    let island = Island::with_lease(1500).await;
    let key = island.run(&assignment(json!({"prompt": "x", "max_tokens": 100_000, "delay_ms": 10}))).await;
    island.coordinator.tokens(key, 3).await;
    island.coordinator.seen().denied.insert(key);
    wait_for("clean folders", || {
        (island.files("spool").is_empty() && island.files("journal").is_empty()).then_some(())
    })
    .await;
    let seen = island.coordinator.seen();
    assert!(!seen.events[&key].iter().any(|event| matches!(event.event, AttemptEvent::Ended { .. })));
}

#[tokio::test]
async fn an_island_that_cannot_renew_publishes_nothing_until_it_can() {
    let island = Island::with_lease(1500).await;
    let key = island.run(&assignment(json!({"prompt": "x", "max_tokens": 300, "delay_ms": 20}))).await;
    island.coordinator.tokens(key, 3).await;
    island.coordinator.seen().is_silent = true;
    // Heartbeats continue and serve as a clock: after five of them the lease has not been confirmed for over 2 s.
    beats(&island, 5).await;
    let before = island.coordinator.seen().outputs;
    beats(&island, 2).await;
    assert_eq!(island.coordinator.seen().outputs, before);
    island.coordinator.seen().is_silent = false;
    assert_completed(&island.coordinator.end(key).await, "x", 300);
}

#[tokio::test]
async fn a_renewal_does_not_wait_for_the_answers_to_the_last_one() {
    let island = Island::with_lease(1500).await;
    let key = island.run(&assignment(json!({"prompt": "x", "max_tokens": 300, "delay_ms": 20}))).await;
    island.coordinator.tokens(key, 3).await;
    island.coordinator.seen().is_late = true;
    // Without an answer in most of a lease it would publish nothing more.
    assert_completed(&island.coordinator.end(key).await, "x", 300);
}

#[tokio::test]
async fn an_agent_whose_coordinator_does_not_answer_starts_with_the_stored_credentials() {
    let mut island = Island::start().await;
    island.kill_agent();
    island.coordinator.seen().is_mute = true;
    let given = island.coordinator.given();
    island.start_agent().await;
    let key = island.run(&assignment(json!({"prompt": "x", "max_tokens": 5}))).await;
    assert_completed(&island.coordinator.end(key).await, "x", 5);
    assert_eq!(island.coordinator.given(), given);
}

/// Waits for `count` more heartbeats.
async fn beats(island: &Island, count: usize) {
    let wanted = island.coordinator.seen().heartbeats.len() + count;
    island.coordinator.wait("heartbeats", |seen| (seen.heartbeats.len() >= wanted).then_some(())).await;
}

#[tokio::test]
async fn stopping_lets_short_jobs_finish_hands_the_rest_back_and_leaves_no_process() {
    let mut island = Island::start().await;
    let short = island.run(&assignment(json!({"prompt": "s", "max_tokens": 30, "delay_ms": 20}))).await;
    let long = island.run(&assignment(json!({"prompt": "l", "max_tokens": 100_000, "delay_ms": 20}))).await;
    island.coordinator.tokens(long, 2).await;
    let status = island.stop_agent().await;
    assert!(status.success(), "{status}");
    assert_completed(&island.coordinator.end(short).await, "s", 30);
    assert_eq!(failure(&island.coordinator.end(long).await), (Fault::Interrupted, FailureCode::HandedBack));
    assert!(island.workers().is_empty());
    let drained = |key: AttemptKey| key == short || key == long;
    let seen = island.coordinator.seen();
    assert!(
        seen.heartbeats
            .iter()
            .any(|beat| beat.status == "draining" && beat.jobs.iter().any(|job| drained(job.key)))
    );
}

fn recommended(island: &Island, slug: &str, bytes: &[u8], demand_score: u64, pinned: bool) -> Recommendation {
    let url = format!("{}/files/{slug}", island.coordinator.url);
    island.coordinator.seen().files.insert(slug.to_owned(), (bytes.to_vec(), 0));
    let sha256 = pinned.then(|| island_cache::digest_of(bytes));
    let artifact =
        Artifact { name: "model".into(), url: url.clone(), sha256, size_bytes: Some(bytes.len() as u64) };
    Recommendation {
        workload_slug: slug.parse().expect("a slug"),
        model_url: url,
        model_hash: sha256.map(|digest| digest.to_string()),
        runtime_type: RuntimeType::Llmcpp,
        estimated_earnings_per_job: "0.5".into(),
        queued_demand: 0,
        demand_score,
        artifacts: vec![artifact],
    }
}

#[tokio::test]
async fn recommended_models_are_preloaded_once_and_unpinned_ones_never() {
    let island = Island::start().await;
    let wanted = vec![
        recommended(&island, "wanted", b"a model in demand", 40, true),
        recommended(&island, "unwanted", b"a model without demand", 0, true),
        recommended(&island, "unpinned", b"a file without a hash", 400, false),
    ];
    island.coordinator.seen().recommended = wanted;
    let beat = island.coordinator.wait("the model in a heartbeat", |seen| {
        let beat = seen.heartbeats.last()?;
        beat.models.iter().any(|model| model.url.ends_with("/wanted")).then(|| beat.clone())
    });
    assert_eq!(beat.await.models.len(), 1);
    let asked = island.coordinator.seen().asked;
    island.coordinator.wait("two more rounds", |seen| (seen.asked >= asked + 2).then_some(())).await;
    let seen = island.coordinator.seen();
    let fetched: Vec<_> = seen.files.iter().map(|(name, (_, times))| (name.as_str(), *times)).collect();
    assert_eq!(fetched, [("unpinned", 0), ("unwanted", 0), ("wanted", 1)]);
}

#[tokio::test]
async fn a_pause_ends_a_preload_until_the_owner_resumes() {
    let island = Island::start().await;
    let wanted = recommended(&island, "wanted", &vec![7; 1 << 20], 40, true);
    {
        let mut seen = island.coordinator.seen();
        (seen.is_slow, seen.recommended) = (true, vec![wanted]);
    }
    island.coordinator.wait("the download", |seen| (seen.sending == 1).then_some(())).await;
    island.agent(&["pause"]);
    island.coordinator.wait("its end", |seen| (seen.sending == 0).then_some(())).await;
    let (requests, beats) = {
        let mut seen = island.coordinator.seen();
        seen.is_slow = false;
        (seen.files["wanted"].1, seen.heartbeats.len())
    };
    // Heartbeats of at least two rounds.
    island.coordinator.wait("heartbeats", |seen| (seen.heartbeats.len() >= beats + 6).then_some(())).await;
    assert_eq!(island.coordinator.seen().files["wanted"].1, requests, "nothing is downloaded during a pause");
    island.agent(&["resume"]);
    let is_listed = |seen: &Received| {
        let models = &seen.heartbeats.last()?.models;
        models.iter().any(|model| model.url.ends_with("/wanted")).then_some(())
    };
    island.coordinator.wait("the model in a heartbeat", is_listed).await;
}

#[tokio::test]
async fn owners_are_shown_what_the_operators_announce() {
    let island = Island::start().await;
    // Without what a terminal would execute.
    wait_for("the notice", || island.agent(&["status"]).contains("update on [2J Sunday").then_some(())).await;
}

#[tokio::test]
async fn a_paused_island_frees_memory_refuses_with_its_reason_and_stays_paused() {
    let mut island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "long", "max_tokens": 5000, "delay_ms": 20}))).await;
    island.coordinator.tokens(key, 3).await;
    assert!(island.agent(&["pause"]).starts_with("paused: until `island-agent resume`"));
    assert_eq!(failure(&island.coordinator.end(key).await), (Fault::Interrupted, FailureCode::HandedBack));
    wait_for("its workers to end", || island.workers().is_empty().then_some(())).await;
    island
        .coordinator
        .wait("the word", |seen| (seen.heartbeats.last()?.status == "paused").then_some(()))
        .await;
    let job = assignment(json!({"prompt": "a", "max_tokens": 1}));
    let refusal = island.coordinator.assign(island.host, &job).await.refusal.expect("refused");
    assert_eq!(refusal.reason, RefusalReason::Draining);
    assert!(refusal.message.contains("resume"), "{}", refusal.message);
    // A restart, for example by an update, does not end a pause.
    island.kill_agent();
    island.start_agent().await;
    let status = island.agent(&["status"]);
    assert!(status.contains("paused: until `island-agent resume`"), "{status}");
    assert_eq!(island.agent(&["resume"]), "working\n");
    let events = island.coordinator.end(island.run(&job).await).await;
    assert_completed(&events, "a", 1);
}

#[tokio::test]
async fn an_engine_that_uses_more_of_a_gpu_than_its_owner_allows_is_ended() {
    let Some(gpu) = Gpu::of_mb(8000) else { return };
    let island = Island::with_gpu(&gpu, "[[policy.gpu]]\ngpu = 0\nmax_vram_mb = 4000").await;
    let mut endless = assignment(json!({"prompt": "one two three", "max_tokens": 1_000_000, "delay_ms": 20}));
    endless.cargo.required_vram_mb = 1000;
    let key = island.run(&endless).await;
    island.coordinator.tokens(key, 1).await;
    let worker = island.workers()[0];
    let registered = island.coordinator.seen().registers.last().expect("it registered").capabilities.clone();
    assert_eq!(registered.gpus.len(), 1);
    assert!(
        registered.runtimes.iter().all(|engine| engine.gpus.as_ref().is_some_and(Vec::is_empty)),
        "no engine has that GPU as a device: {:?}",
        registered.runtimes
    );

    gpu.take(worker, 4000);
    let is_end = |event: &Numbered<AttemptEvent>| matches!(event.event, AttemptEvent::Ended { .. });
    let reported = island.coordinator.wait("a heartbeat that reports it", |seen| {
        let last = seen.heartbeats.last()?;
        last.gpus.iter().any(|gpu| gpu.memory_used_mb == Some(4000)).then(|| seen.events[&key].clone())
    });
    assert!(!reported.await.iter().any(is_end), "it uses what its owner allows");

    gpu.take(worker, 4001);
    let events = island.coordinator.end(key).await;
    assert_eq!(failure(&events), (Fault::Host, FailureCode::OutOfMemory));
    wait_for("the worker's end", || (!island.workers().contains(&worker)).then_some(())).await;
}

#[tokio::test]
async fn an_idle_model_leaves_the_gpu_for_one_that_needs_its_memory() {
    let Some(gpu) = Gpu::of_mb(8000) else { return };
    let island = Island::on_gpu(&gpu).await;
    let large = |context_tokens| {
        let mut large = assignment(json!({"prompt": "a", "max_tokens": 1}));
        large.cargo.required_vram_mb = 5000;
        large.cargo.limits.context_tokens = context_tokens;
        large
    };
    let key = island.run(&large(1000)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 1);
    let first = island.workers()[0];
    gpu.take(first, 5000);
    island
        .coordinator
        .wait("a heartbeat in which it is in use, and could be freed", |seen| {
            let last = seen.heartbeats.last()?;
            let is_used = last.gpus.iter().any(|gpu| gpu.memory_used_mb == Some(5000));
            // A model that was loaded a moment ago is kept.
            let could_be_free = last.headroom.gpus.as_ref()?.get(&0).is_some_and(|mb| *mb >= 5000);
            (is_used && could_be_free).then_some(())
        })
        .await;

    let key = island.run(&large(2000)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 1);
    let workers = island.workers();
    assert!(workers.len() == 1 && workers[0] != first, "the idle one has ended: {workers:?}");
    assert_eq!(granted_mb(&island), [(0, 8000 - 256 - 384)], "all that jobs may use");

    island.agent(&["pause"]);
    wait_for("the worker's end", || island.workers().is_empty().then_some(())).await;
}

/// Two of the models fit into the GPU, and one into what its owner allows.
#[tokio::test]
async fn the_gpu_memory_that_an_owner_allows_goes_from_one_model_to_the_next_and_comes_back() {
    const ALLOWED_MB: u64 = 6000 - 256 - 384;
    const MODEL_MB: u64 = 5000;
    let Some(gpu) = Gpu::of_mb(24_000) else { return };
    let island = Island::on_gpu_with(&gpu, "[[policy.gpu]]\ngpu = 0\nmax_vram_mb = 6000").await;
    let model = |context_tokens| {
        let mut model = assignment(json!({"prompt": "a", "max_tokens": 1}));
        model.cargo.required_vram_mb = MODEL_MB;
        model.cargo.limits.context_tokens = context_tokens;
        model
    };
    let offered = |used_mb: u64| {
        island.coordinator.wait("a heartbeat that offers the memory of one model", move |seen| {
            let last = seen.heartbeats.last()?;
            let is_used = last.gpus.iter().any(|gpu| gpu.memory_used_mb == Some(used_mb));
            let free_mb = *last.headroom.gpus.as_ref()?.get(&0)?;
            (is_used && (MODEL_MB..=ALLOWED_MB).contains(&free_mb)).then_some(())
        })
    };
    let key = island.run(&model(1000)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 1);
    let first = island.workers()[0];
    gpu.take(first, MODEL_MB);
    offered(MODEL_MB).await;

    let key = island.run(&model(2000)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 1);
    let workers = island.workers();
    assert!(workers.len() == 1 && workers[0] != first, "the idle one has ended: {workers:?}");
    assert_eq!(granted_mb(&island), [(0, ALLOWED_MB)], "the memory of the first is that of the second");
    gpu.release(first);
    gpu.take(workers[0], MODEL_MB);
    offered(MODEL_MB).await;

    island.agent(&["pause"]);
    wait_for("the worker's end", || island.workers().is_empty().then_some(())).await;
    gpu.release(workers[0]);
    island.agent(&["resume"]);
    offered(0).await;
    let key = island.run(&model(3000)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 1);
    assert_eq!(granted_mb(&island), [(0, ALLOWED_MB)], "all of it has come back");
}

/// The program of an engine that a driver breaks down, and that answers where it finds no drivers.
const BROKEN_BY_A_DRIVER: &str = r#"#!/bin/sh
[ "$VK_DRIVER_FILES" = /nonexistent ] || kill -ABRT $$
echo '{"kind":"llmcpp","version":"1","devices":[],"sandbox":{"level":"full"}}'
"#;

#[test]
fn doctor_names_the_engine_that_a_driver_breaks_down() {
    let Some(gpu) = Gpu::of_mb(8000) else { return };
    let (programs, state) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let program = programs.path().join("island-worker-llmcpp");
    fs::write(&program, BROKEN_BY_A_DRIVER).expect("write");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
    // No other machine is reached: nothing listens there, and the model hub is not used.
    let coordinator = format!("http://127.0.0.1:{}", free_port());
    let mut doctor = gpu.around(AGENT.as_ref());
    doctor.args(["doctor", "--coordinator", &coordinator, "--state-dir"]).arg(state.path());
    doctor.env("ISLAND_AGENT_WORKERS__BIN_DIR", programs.path()).env("ISLAND_AGENT_CACHE__OFFLINE", "true");
    let ran = doctor.output().expect("run island-agent");
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let output = String::from_utf8_lossy(&ran.stdout).into_owned();
    let line = |name: &str| output.lines().find(|line| line.contains(name)).expect("a finding");
    let unused = line("GPU 0 is not used by llmcpp");
    assert!(unused.starts_with("PROBLEM") && unused.contains("SIGABRT"), "{output}");
    assert!(unused.contains("without the drivers of GPUs, so one of them is at fault"), "{output}");
    let engine = line("engine llmcpp");
    assert!(engine.starts_with("ok") && engine.contains("processor"), "it runs without the GPU: {output}");
}

// The coordinator must answer while a command waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_engine_that_does_not_use_a_gpu() {
    let Some(gpu) = Gpu::of_mb(8000) else { return };
    let island = Island::with_gpu(&gpu, "").await;
    let doctor = island.try_agent_with(&gpu, &["doctor", "--simulated", "true"]);
    let output = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let line = output.lines().find(|line| line.contains("GPU 0 is not used by llmcpp")).expect("a finding");
    assert!(line.starts_with("PROBLEM"), "no engine uses it: {output}");
    assert_eq!(doctor.status.code(), Some(1));
}

/// The memory in use of Intel's GPUs is hidden from the service, so its owner's limit is what jobs get, and all that a worker was granted is
/// taken until it ends.
#[tokio::test]
async fn jobs_use_a_gpu_whose_memory_in_use_is_hidden_as_far_as_its_owner_allows() {
    const ALLOWED_MB: u64 = 6000 - 256 - 384;
    let Some(gpu) = Gpu::of_intel_mb(16_000) else { return };
    let island = Island::on_gpu_with(&gpu, "[[policy.gpu]]\ngpu = 0\nmax_vram_mb = 6000").await;
    let registered = island.coordinator.seen().registers.last().expect("it registered").capabilities.clone();
    let vram_mb: Vec<_> = registered.gpus.iter().map(|gpu| gpu.vram_mb).collect();
    assert_eq!(vram_mb, [6000], "as much as its owner allows is advertised");
    let model = |context_tokens| {
        let mut model = assignment(json!({"prompt": "a", "max_tokens": 1}));
        model.cargo.required_vram_mb = 5000;
        model.cargo.limits.context_tokens = context_tokens;
        model
    };
    let key = island.run(&model(1000)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 1);
    let first = island.workers()[0];
    assert_eq!(granted_mb(&island), [(0, ALLOWED_MB)]);
    island
        .coordinator
        .wait("heartbeats in which it is all taken, and could be freed", |seen| {
            let free_mb = |beat: &Heartbeat| beat.headroom.gpus.as_ref()?.get(&0).copied();
            let taken = seen.heartbeats.iter().position(|beat| free_mb(beat) == Some(0))?;
            let later = &seen.heartbeats[taken..];
            later.iter().any(|beat| free_mb(beat) == Some(ALLOWED_MB)).then_some(())
        })
        .await;

    let key = island.run(&model(2000)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 1);
    let workers = island.workers();
    assert!(workers.len() == 1 && workers[0] != first, "the idle one has ended: {workers:?}");
    assert_eq!(granted_mb(&island), [(0, ALLOWED_MB)], "both together would exceed what its owner allows");
}

// The coordinator must answer while a command waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_rule_for_a_gpu_whose_memory_in_use_is_hidden() {
    let Some(gpu) = Gpu::of_intel_mb(16_000) else { return };
    let island = Island::on_gpu_with(&gpu, "").await;
    let registered = island.coordinator.seen().registers.last().expect("it registered").capabilities.clone();
    assert!(
        registered.runtimes.iter().all(|engine| engine.gpus.as_ref().is_some_and(Vec::is_empty)),
        "without a rule no engine uses it: {:?}",
        registered.runtimes
    );
    let doctor = island.try_agent_with(&gpu, &["doctor", "--simulated", "true"]);
    let output = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let line = output.lines().find(|line| line.contains("GPU 0 is not used by llmcpp")).expect("a finding");
    assert!(line.starts_with("PROBLEM"), "no engine uses it: {output}");
    assert!(line.contains("add a [[policy.gpu]] with `gpu = 0` and `max_vram_mb = 14000`"), "{output}");
}

#[tokio::test]
async fn models_are_loaded_onto_gpus_one_after_the_other() {
    let Some(gpu) = Gpu::of_mb(8000) else { return };
    let island = Island::on_gpu(&gpu).await;
    let model = |context_tokens, load_ms: u64| {
        let mut model = assignment(json!({"prompt": "a", "max_tokens": 1}));
        model.cargo.required_vram_mb = 1000;
        model.cargo.limits.context_tokens = context_tokens;
        model.cargo.engine = json!({"simulated": true, "load_ms": load_ms});
        model
    };
    let slow = island.run(&model(1000, 1500)).await;
    wait_for("the first worker", || (island.workers().len() == 1).then_some(())).await;
    let next = island.run(&model(2000, 0)).await;
    assert_completed(&island.coordinator.end(next).await, "a", 1);
    let seen = island.coordinator.seen().events.clone();
    let has_ended = seen[&slow].iter().any(|event| matches!(event.event, AttemptEvent::Ended { .. }));
    let streams = seen[&slow].iter().any(|event| matches!(event.event, AttemptEvent::Token { .. }));
    assert!(has_ended || streams, "the second model was loaded before the first was ready");
    assert_completed(&island.coordinator.end(slow).await, "a", 1);
}

/// The GPUs that the only worker was granted, each with its memory.
fn granted_mb(island: &Island) -> Vec<(u64, u64)> {
    let launches = island.launches();
    let number = |gpu: &Value, name: &str| gpu[name].as_u64().unwrap_or_default();
    let gpus = launches.iter().flat_map(|launch| launch["gpus"].as_array().expect("GPUs"));
    gpus.map(|gpu| (number(gpu, "index"), number(gpu, "memory_mb"))).collect()
}

// The coordinator must answer while a command waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn status_and_doctor_show_the_last_job_and_that_the_island_left() {
    let island = Island::start().await;
    let status = island.agent(&["status"]);
    assert!(status.contains("no job that this Island can run has arrived yet"), "{status}");
    let key = island.run(&assignment(json!({"prompt": "a", "max_tokens": 1}))).await;
    assert_completed(&island.coordinator.end(key).await, "a", 1);
    let status = wait_for("the job in the status", || {
        let status = island.agent(&["status"]);
        status.contains("the last job ended ").then_some(status)
    })
    .await;
    assert!(status.contains("no job was refused"), "{status}");

    assert!(
        island
            .agent(&["leave"])
            .ends_with("has left the network. Stop the agent: it gets no jobs any more.\n")
    );
    let status = island.agent(&["status"]);
    assert!(status.contains("state       left the network\n"), "{status}");
    assert!(!status.contains(", connected"), "{status}");
    let doctor = island.try_agent(&["doctor", "--simulated", "true"]);
    assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
    let output = String::from_utf8_lossy(&doctor.stdout);
    let line = output.lines().find(|line| line.contains(" agent  ")).expect("a finding about the agent");
    assert!(line.starts_with("PROBLEM") && line.contains("has left the network"), "{output}");
}

// The coordinator answers while the status is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_with_other_versions_only_is_reported_with_what_to_upgrade() {
    let mut island = Island::start().await;
    assert_eq!(island.coordinator.seen().registers[0].versions, Some(VERSIONS));
    let newer = Versions::new(8, 9).expect("a range");
    for (versions, upgrade) in
        [(newer, "upgrade island-agent"), (Versions::only(0), "upgrade the coordinator")]
    {
        island.coordinator.seen().versions = Some(versions);
        island.start_failing("").await;
        let error = negotiate(VERSIONS, versions).expect_err("nothing in common").to_string();
        assert!(error.ends_with(upgrade), "{error}");
        let status = wait_for("the refusal in the status", || {
            let status = island.try_agent(&["status"]).stdout;
            let status = String::from_utf8_lossy(&status).into_owned();
            status.contains("refused by the coordinator").then_some(status)
        })
        .await;
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&status).contains(&words(&error)), "{status}");
        let json: Value = serde_json::from_str(&island.agent(&["status", "--json"])).expect("JSON");
        assert_eq!((&json["connected"], &json["refusal"]), (&json!(false), &json!(error)));
        let log = fs::read_to_string(island.log()).expect("a log");
        assert!(log.contains(&error), "{log}");
    }
    // A coordinator from before versions were negotiated speaks the version of its message.
    island.coordinator.seen().versions = None;
    island.start_failing("").await;
    wait_for("a registration", || {
        let json: Value = serde_json::from_slice(&island.try_agent(&["status", "--json"]).stdout).ok()?;
        (json["connected"] == true && json.get("refusal").is_none()).then_some(())
    })
    .await;
}

// The coordinator answers while the doctor runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_is_refused_is_reported_with_the_reason() {
    let mut island = Island::start().await;
    assert!(island.coordinator.seen().registers[0].reads_refusals);
    let reason = "its region is not a line";
    island.coordinator.seen().refused = Some(reason.to_owned());
    island.start_failing("").await;
    wait_for("the refusal in the status", || {
        let json: Value = serde_json::from_slice(&island.try_agent(&["status", "--json"]).stdout).ok()?;
        (json["connected"] == false && json["refusal"] == reason).then_some(())
    })
    .await;
    let doctor = island.try_agent(&["doctor", "--simulated", "true"]);
    let output = String::from_utf8_lossy(&doctor.stdout);
    let line = output.lines().find(|line| line.contains(" agent  ")).expect("a finding about the agent");
    assert!(line.starts_with("PROBLEM") && line.contains(reason), "{output}");
    let log = fs::read_to_string(island.log()).expect("a log");
    assert!(log.contains(reason), "{log}");
    island.coordinator.seen().refused = None;
    island.start_failing("").await;
    wait_for("a registration", || {
        let json: Value = serde_json::from_slice(&island.try_agent(&["status", "--json"]).stdout).ok()?;
        (json["connected"] == true && json.get("refusal").is_none()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn heartbeats_that_cannot_be_read_are_reported_with_the_reason() {
    let mut island = Island::start().await;
    let reason = "missing field `system`";
    island.coordinator.seen().unread_heartbeat = Some(reason.to_owned());
    island.start_failing("").await;
    wait_for("the reason in the status", || {
        let json: Value = serde_json::from_slice(&island.try_agent(&["status", "--json"]).stdout).ok()?;
        let refusal = json["refusal"].as_str()?;
        (json["connected"] == true && refusal.ends_with(reason)).then_some(())
    })
    .await;
    let log = fs::read_to_string(island.log()).expect("a log");
    assert!(log.contains("cannot read the heartbeats"), "{log}");
}

#[tokio::test]
async fn a_second_agent_is_refused_with_the_process_id_of_the_first() {
    let island = Island::start().await;
    let second = island.try_agent(&["run"]);
    assert!(!second.status.success(), "{second:?}");
    let log = String::from_utf8_lossy(&second.stdout).into_owned() + &String::from_utf8_lossy(&second.stderr);
    assert!(log.contains(&format!("another agent (process {}) runs on ", island.pid())), "{log}");
}

/// Connections to 0.0.0.0 arrive on this machine, but it is not an address of loopback.
#[tokio::test]
async fn a_fabric_elsewhere_is_not_used_without_encryption() {
    let nats = Nats::start().await;
    let elsewhere = nats.url().replace("127.0.0.1", "0.0.0.0");
    let coordinator = Coordinator::start(&elsewhere, 30_000, 3_600_000).await;
    let folder = tempfile::tempdir().expect("temporary folder");
    let log = folder.path().join("agent.log");
    let start = |allowed: &str| {
        let mut agent = Command::new(AGENT);
        agent.env("ISLAND_AGENT_ALLOW_PLAINTEXT", allowed);
        agent.stderr(fs::File::create(&log).expect("create a log"));
        spawn(agent, folder.path(), workers_dir(), &coordinator.url)
    };
    let refused = start("false");
    let failed = format!("connect with TLS to the fabric at {elsewhere}");
    wait_for("a refused server", || fs::read_to_string(&log).ok()?.contains(&failed).then_some(())).await;
    drop(refused);
    assert!(coordinator.seen().registers.is_empty(), "nothing was sent");
    let _allowed = start("true");
    coordinator.wait("registration", |seen| seen.registers.last().map(drop)).await;
}

/// Without the line that passes on what the fabric states, these files would be requested.
#[tokio::test]
async fn nothing_is_fetched_from_the_address_under_which_the_fabric_sees_the_island() {
    let first = "9.9.9.9";
    let (island, router) = Island::behind_a_router(first).await;
    for address in [first, "149.112.112.112"] {
        if address != first {
            let before = island.coordinator.seen().registers.len();
            router.change(address);
            let is_back = |seen: &Received| (seen.registers.len() > before).then_some(());
            island.coordinator.wait("registration", is_back).await;
        }
        let mut job = assignment(json!({"prompt": "a", "max_tokens": 1}));
        job.cargo.artifacts = vec![Artifact {
            name: "model".into(),
            url: format!("https://{address}/model"),
            sha256: Some(island_cache::digest_of(b"x")),
            size_bytes: Some(1),
        }];
        let events = island.coordinator.end(island.run(&job).await).await;
        let Outcome::Failed { failure, .. } = outcome(&events) else { panic!("{events:?}") };
        let is_own = failure.message.contains("its address is that of this machine, as the internet sees it");
        assert!(is_own, "{address}: {failure:?}");
    }
}

#[tokio::test]
async fn a_job_is_refused_where_the_disk_has_less_than_stays_free() {
    let island = Island::with_variable("ISLAND_AGENT_CACHE__KEEP_FREE_GB", "1000000").await;
    let reply = island.coordinator.assign(island.host, &assignment(json!({}))).await;
    let refusal = reply.refusal.expect("a reason");
    assert_eq!(refusal.reason, RefusalReason::NoDisk, "{refusal:?}");
}
