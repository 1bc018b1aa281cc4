//! A job that is read while it changes is shown in one consistent state.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use island_protocol::job::Outcome;
use serde_json::{Value, json};

use crate::support::{
    island::{Island, token},
    network::Network,
    soon,
};

/// Readers of each job.
const READERS: usize = 6;

/// Whether a job has ended. Checks that an ended job has all parts of an end and an open one none.
fn has_ended(job: &Value) -> bool {
    let ended = job["status"] == "completed";
    for part in ["output", "usage", "completed_at", "started_at", "duration_ms"] {
        let is_there = !job[part].is_null();
        assert!(is_there || !ended, "completed without {part}: {job}");
        assert!(ended || !is_there || part == "started_at", "{part} of an open job: {job}");
    }
    ended
}

/// The same for an entry of the list.
fn has_ended_in_list(job: &Value) -> bool {
    let ended = job["status"] == "completed";
    for part in ["completed_at", "duration_ms"] {
        assert_eq!(!job[part].is_null(), ended, "{job}");
    }
    ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completed_job_always_has_all_its_parts() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 0).await;
    let mut island = Island::start(&network).await;
    // An input that takes long to parse leaves time for an end between two reads.
    let input = json!({"text": "a b", "list": vec![0; 20_000]});
    for _ in 0..20 {
        let body = json!({"workload": "count", "input": input});
        let request = network.call(reqwest::Method::POST, "/jobs").json(&body);
        let (status, body) = crate::support::answer(request).await;
        assert_eq!(status, 201, "{body}");
        let id = body["data"]["id"].as_str().expect("id").to_owned();
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("2")]).await;
        let (ready, id) = (AtomicBool::new(false), id.as_str());
        let readers = (0..READERS).map(|reader| {
            let (network, ready) = (&network, &ready);
            async move {
                loop {
                    let ended = if reader % 2 == 0 {
                        has_ended(&network.job(id).await)
                    } else {
                        let list = network.get("/jobs?limit=1").await;
                        assert_eq!(list["data"][0]["id"], id);
                        has_ended_in_list(&list["data"][0])
                    };
                    if ended {
                        return;
                    }
                    ready.store(true, Ordering::Relaxed);
                }
            }
        });
        let end = async {
            while !ready.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            let outcome = Outcome::Completed {
                usage: island_protocol::job::Usage::default(),
                output: Some(json!({"count": 2})),
                finish_reason: None,
                stop_text: None,
            };
            assert!(island.end(run.key, run.first_event + 1, outcome).await.committed);
            island.beat(&[]).await;
        };
        soon("the end of the job", async { tokio::join!(join_all(readers), end) }).await;
    }
    network.audit().await;
}
