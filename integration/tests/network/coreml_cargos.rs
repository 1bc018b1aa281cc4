//! Core ML Cargos on an Island without Apple: a language model that keeps a state streams its reply, a classifier answers, three models together
//! transcribe; through HTTP, SQL, NATS, agent and worker. The models are the engine's fixtures.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_coordinator_client::protocol::job::JobStatus;
use island_integration::{
    Network, Options,
    expect::{Story, final_job},
    fixture_cargos::{self, coreml_cases, coreml_fixture},
};
use tempfile::TempDir;

fn network(names: &[&str]) -> (TempDir, Network) {
    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
    for name in names {
        fixture_cargos::add_coreml(folder.path(), name);
    }
    let network =
        Network::start_with(&Options { cargos: Some(folder.path().to_owned()), ..Options::default() });
    (folder, network)
}

#[tokio::test]
async fn a_language_model_with_a_state_streams_what_the_reference_says() {
    let (_cargos, network) = network(&["llama"]);
    let client = network.client();
    let cases = coreml_cases("llama");
    let answers = cases["answers"].as_array().expect("answers");
    assert!(!answers.is_empty());
    for answer in answers {
        let job = client.submit_job("llama", answer["input"].clone(), 0).await.expect("submit");
        let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
        story.assert_whole();
        assert!(story.is_done(), "{:?}", story.last);
        assert_eq!(story.text, answer["output"]["text"].as_str().expect("a text"), "{}", answer["input"]);
        let job = final_job(&client, job.id).await;
        let written = job.usage.expect("usage").completion_tokens;
        assert_eq!(Some(written), answer["output"]["tokens"].as_u64());
    }
}

#[tokio::test]
async fn what_is_heard_is_written_while_it_is_heard() {
    let (_cargos, network) = network(&["whisperkit"]);
    let client = network.client();
    let cases = coreml_cases("whisperkit");
    let answers = cases["answers"].as_array().expect("answers");
    for answer in answers.iter().filter(|answer| answer.get("without").is_none()) {
        let mut input = answer["input"].clone();
        let file = input["audio"]["file"].as_str().expect("a file").to_owned();
        input["audio"] =
            STANDARD.encode(fs::read(coreml_fixture("whisperkit").join(file)).expect("a sound")).into();
        let job = client.submit_job("whisperkit", input, 0).await.expect("submit");
        let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
        story.assert_whole();
        assert!(story.is_done(), "{:?}", story.last);
        assert_eq!(
            story.text.trim(),
            answer["output"]["text"].as_str().expect("a text"),
            "{}",
            answer["name"]
        );
        let output = final_job(&client, job.id).await.output.expect("an output");
        assert_eq!(output["language"], answer["output"]["language"], "{}", answer["name"]);
    }
}

#[tokio::test]
async fn a_classifier_knows_what_it_sees() {
    let (_cargos, network) = network(&["resnet"]);
    let client = network.client();
    let cases = coreml_cases("resnet");
    for answer in cases["answers"].as_array().expect("answers") {
        let job = client.submit_job("resnet", answer["input"].clone(), 0).await.expect("submit");
        let job = final_job(&client, job.id).await;
        assert_eq!(job.status, JobStatus::Completed, "{:?}", job.error);
        let output = job.output.expect("an output");
        assert_eq!(output["label"], answer["output"]["label"]);
    }
}
