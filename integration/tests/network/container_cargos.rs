//! Container Cargos through the whole network, on a Docker daemon of the test's own.

use island_coordinator_client::protocol::{
    event::JobEvent,
    job::{FailureCode, JobStatus},
};
use island_integration::{
    Network, Options, examples,
    expect::{Story, eventually, final_job},
};
use island_runtimes_container::testing::Dockerd;
use serde_json::json;

/// Entries of the catalogue that run in containers.
const ENTRIES: usize = 26;

/// A network whose Island has Docker; none where no daemon can be started.
async fn start(allowed: &str) -> Option<(Dockerd, Network)> {
    match Dockerd::start().await {
        Ok(docker) => {
            let socket = docker.socket().display().to_string();
            let agent = vec![("CONTAINERS__SOCKET", socket), ("CONTAINERS__MAX_TIER", allowed.to_owned())];
            let network = Network::start_with(&Options { agent, ..Options::default() });
            Some((docker, network))
        }
        Err(reason) => {
            island_testing::skip("container Cargos", &reason);
            None
        }
    }
}

/// Every entry's example, with its image; `None` where images are missing.
fn examples() -> Option<Vec<examples::Example>> {
    let all = examples::of("container");
    assert!(all.len() >= ENTRIES, "{} entries run in containers", all.len());
    let missing = all.iter().filter(|example| !example.is_built);
    let missing: Vec<&str> = missing.map(|example| example.slug.as_str()).collect();
    if missing.is_empty() {
        return Some(all);
    }
    island_testing::skip(
        "container Cargos",
        &format!("`make cargos` built no image for {}", missing.join(", ")),
    );
    None
}

#[tokio::test]
async fn every_example_gives_what_its_entry_says() {
    let Some(examples) = examples() else { return };
    let Some((docker, network)) = start("elevated").await else { return };
    let wrong = examples::run_all(&network, &examples, 2).await;
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), examples.len(), wrong.join("\n"));
    drop(network);
    docker.stop().await;
}

#[tokio::test]
async fn a_tier_above_the_owners_is_not_run_and_says_why() {
    let Some(examples) = examples() else { return };
    let Some((docker, network)) = start("restricted").await else { return };
    let example = examples.iter().find(|example| example.slug == "video-thumbnail").expect("an entry");
    let client = network.client();
    let job = client.submit_job(&example.slug, example.input.clone(), 0).await.expect("submit");
    let waiting = eventually("the job waits", || async {
        client.job(job.id).await.expect("read the job").waiting.filter(|reasons| !reasons.is_empty())
    })
    .await;
    assert_eq!(waiting.get("no_tier"), Some(&json!(1)), "{waiting:?}");
    client.cancel_job(job.id).await.expect("cancel");
    assert_eq!(final_job(&client, job.id).await.status, JobStatus::Cancelled);
    drop(network);
    docker.stop().await;
}

#[tokio::test]
async fn input_that_is_no_picture_is_the_jobs_failure() {
    let Some(examples) = examples() else { return };
    let Some((docker, network)) = start("elevated").await else { return };
    assert!(examples.iter().any(|example| example.slug == "image-metadata"));
    let client = network.client();
    let input = json!({ "image": "bm8gcGljdHVyZQ==" });
    let job = client.submit_job("image-metadata", input, 0).await.expect("submit");
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    let Some(JobEvent::Error { code, error }) = &story.last else { panic!("it must fail: {story:?}") };
    assert_eq!(code, FailureCode::InvalidInput.as_str(), "{error}");
    drop(network);
    docker.stop().await;
}
