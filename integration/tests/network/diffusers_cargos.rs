//! A Stable Diffusion through the whole network: HTTP, SQL, NATS, agent, worker. The model is the engine's fixture, small and of random weights.

use std::{collections::BTreeMap, fs, process::Command};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use island_coordinator_client::protocol::job::JobStatus;
use island_integration::{Network, Options, expect::final_job, fixture_cargos, program};
use island_protocol::event::JobEvent;
use serde_json::json;
use tempfile::TempDir;

fn network() -> (TempDir, Network) {
    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
    fixture_cargos::add_diffusion(folder.path());
    let network =
        Network::start_with(&Options { cargos: Some(folder.path().to_owned()), ..Options::default() });
    (folder, network)
}

#[tokio::test]
async fn a_picture_is_painted_step_by_step_and_the_same_seed_paints_it_again() {
    let (_cargos, network) = network();
    let client = network.client();
    let input = json!({"prompt": "a fox in the snow", "width": 64, "height": 96, "num_inference_steps": 4, "seed": 7});
    let mut painted = Vec::new();
    for _ in 0..2 {
        let job = client.submit_job("sd-tiny", input.clone(), 0).await.expect("submit");
        let mut events = client.job_events(job.id, None);
        let (mut steps, mut pictures) = (Vec::new(), Vec::new());
        while let Some(event) = events.next().await {
            match event.expect("the stream goes on").event {
                JobEvent::Progress { step, total, phase } if phase.as_deref() != Some("load") => {
                    steps.push((step, total));
                }
                JobEvent::Image(image) => pictures.push(image),
                _ => {}
            }
        }
        let job = final_job(&client, job.id).await;
        assert_eq!(job.status, JobStatus::Completed, "{:?}", job.error);
        let output = job.output.expect("an output");
        assert_eq!(output["seed"], 7, "{output}");
        // The repository's scheduler takes one step twice.
        assert!(steps.ends_with(&[(0, 5), (1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]), "{steps:?}");
        let png = BASE64_STANDARD.decode(&pictures.last().expect("a picture").data).expect("base64");
        assert_eq!(&png[1..4], b"PNG");
        let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((side(16), side(20)), (64, 96));
        let text = String::from_utf8_lossy(&png);
        assert!(text.contains("a fox in the snow") && text.contains('7'), "its parameters are in it");
        painted.push(png);
    }
    assert_eq!(painted[0], painted[1], "a seed decides");
}

#[tokio::test]
async fn the_command_line_saves_it() {
    let (_cargos, network) = network();
    let folder = tempfile::tempdir().expect("a folder");
    let ran = Command::new(program("island"))
        .args(["jobs", "submit", "--workload", "sd-tiny", "--stream", "--input"])
        .arg(r#"{"prompt": "a fox", "width": 64, "height": 64, "num_inference_steps": 2}"#)
        .arg("--output")
        .arg(folder.path())
        .envs(BTreeMap::from([
            ("SERVICE_API_URL", network.info("api_url")),
            ("SERVICE_API_KEY", network.info("api_key")),
        ]))
        .output()
        .expect("run island");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let saved: Vec<_> =
        fs::read_dir(folder.path()).expect("list").flatten().map(|entry| entry.path()).collect();
    assert!(saved.iter().any(|path| path.extension().is_some_and(|kind| kind == "png")), "{saved:?}");
}

#[tokio::test]
async fn sizes_and_numbers_that_make_no_sense_are_refused_by_name() {
    let (_cargos, network) = network();
    let client = network.client();
    for (input, word) in [
        (json!({"prompt": "x", "width": 100_000}), "width"),
        (json!({"prompt": "x", "width": 65}), "width"),
        (json!({"prompt": "x", "num_inference_steps": -1}), "steps"),
        (json!({"prompt": "x", "scheduler": "magic"}), "scheduler"),
        (json!({"prompt": "x", "tint": "red"}), "tint"),
    ] {
        let job = client.submit_job("sd-tiny", input.clone(), 0).await.expect("submit");
        let job = final_job(&client, job.id).await;
        let error = job.error.unwrap_or_else(|| panic!("{input} was taken"));
        assert_eq!(
            (job.status, error.code.as_str()),
            (JobStatus::Failed, "invalid_input"),
            "{input}: {error:?}"
        );
        assert!(error.message.contains(word), "{input}: {}", error.message);
    }
}

#[tokio::test]
async fn openai_clients_get_pictures() {
    let network = Network::start_with(&Options::default());
    let root = island_testing::workspace();
    let output = Command::new(root.join(".tools/venv/bin/python"))
        .arg(root.join("integration/clients/openai_images.py"))
        .args([&format!("{}/api/v1", network.info("api_url")), network.info("api_key")])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("run the client");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (preview, picture) = ("image_generation.partial_image", "image_generation.completed");
    let (unknown, invalid) = (json!([404, "workload_not_found"]), json!([422, "validation_error"]));
    let wanted = json!({
        "sizes": [[64, 96], [64, 96]],
        "are_different": true,
        "are_the_same_again": true,
        "url_is_the_first": true,
        "streamed": [[preview, [8, 12], 0], [preview, [8, 12], 1], [picture, [64, 96], null]],
        "edited": [[64, 96], true],
        // With a mask, the size of the model unless another one is requested.
        "part": ["tiny-paint", [64, 64]],
        "painted": [["image_edit.completed", [64, 96]]],
        "refused": [unknown, invalid, [422, "invalid_input"], invalid, invalid, [422, "invalid_input"]],
    });
    assert_eq!(output, wanted, "{output:#}");
}
