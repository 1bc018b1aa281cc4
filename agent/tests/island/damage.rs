//! Files of models that change on the disk after they were verified.

use std::fs;

use island_protocol::{
    artifact::Artifact,
    fabric::Assignment,
    job::{FailureCode, Fault, Outcome},
};
use serde_json::json;

use crate::{
    fixture::{Island, assignment, wait_for},
    stories::{assert_completed, failure, outcome},
};

/// A job of a model in one file, which the coordinator serves. `context` distinguishes models.
fn job(island: &Island, bytes: &[u8], context: u64) -> Assignment {
    let url = format!("{}/files/model", island.coordinator.url);
    let sha256 = Some(island_cache::digest_of(bytes));
    island.coordinator.seen().files.entry("model".to_owned()).or_insert((bytes.to_vec(), 0));
    let size_bytes = Some(bytes.len() as u64);
    let mut job = assignment(json!({"prompt": "a", "max_tokens": 3}));
    job.cargo.artifacts = vec![Artifact { name: "model".into(), url, sha256, size_bytes }];
    job.cargo.engine = json!({"simulated": true, "reads_header": true});
    job.cargo.limits.context_tokens = context;
    job
}

fn downloads(island: &Island) -> usize {
    island.coordinator.seen().files["model"].1
}

/// Overwrites the only file of the cache with zeros, as a disk may: its length and its time stay.
fn damage(island: &Island) {
    let name = island.files("cache/blobs").pop().expect("a file");
    let path = island.path("cache/blobs").join(name);
    let about = fs::metadata(&path).expect("a file");
    fs::write(&path, vec![0; about.len() as usize]).expect("write");
    let times = fs::FileTimes::new().set_modified(about.modified().expect("a time"));
    fs::File::options().append(true).open(&path).and_then(|file| file.set_times(times)).expect("its time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_model_is_downloaded_again() {
    let island = Island::start().await;
    let model = b"a model".repeat(1000);
    let key = island.run(&job(&island, &model, 1)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 3);
    assert_eq!(downloads(&island), 1);
    damage(&island);
    // Another worker, which loads the file.
    let key = island.run(&job(&island, &model, 2)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 3);
    assert_eq!(downloads(&island), 2);
    let status = island.agent(&["status"]);
    assert!(status.contains("1 damaged files of models were found"), "{status}");
}

#[tokio::test]
async fn a_model_that_is_as_stated_is_refused_as_before() {
    let island = Island::start().await;
    let key = island.run(&job(&island, &[0; 5000], 1)).await;
    let events = island.coordinator.end(key).await;
    assert_eq!(failure(&events), (Fault::Job, FailureCode::ModelRejected));
    assert_eq!(downloads(&island), 1, "its publisher states these bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_another_hash_is_downloaded_once() {
    let island = Island::start().await;
    let (stated, sent) = (b"a model".repeat(1000), b"another".repeat(1000));
    island.coordinator.seen().files.insert("model".to_owned(), (sent.clone(), 0));
    for _ in 0..5 {
        let key = island.run(&job(&island, &stated, 1)).await;
        let Outcome::Failed { failure, .. } = outcome(&island.coordinator.end(key).await).clone() else {
            panic!("it must fail")
        };
        assert_eq!((failure.fault, failure.code), (Fault::Host, FailureCode::ModelHashMismatch));
        for hash in [&stated, &sent].map(|bytes| island_cache::digest_of(bytes).to_string()) {
            assert!(failure.message.contains(&hash), "{failure:?}");
        }
        assert!(failure.message.contains("/files/model"), "{failure:?}");
    }
    assert_eq!(downloads(&island), 1);
    let status = island.agent(&["status"]);
    assert!(status.contains("it is not downloaded again before"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_hashed_again_after_a_kill() {
    let mut island = Island::start().await;
    let model = b"a model".repeat(1000);
    let key = island.run(&job(&island, &model, 1)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 3);
    island.kill_agent();
    damage(&island);
    island.start_agent().await;
    wait_for("the removal", || island.files("cache/blobs").is_empty().then_some(())).await;
    let key = island.run(&job(&island, &model, 2)).await;
    assert_completed(&island.coordinator.end(key).await, "a", 3);
}
