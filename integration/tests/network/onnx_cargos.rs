//! ONNX Cargos through the whole network: HTTP, SQL, NATS, agent, worker, ONNX Runtime. The models are the engine's fixtures, small
//! ones of every family; the schemas are those of the catalogue.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use island_coordinator_client::protocol::job::JobStatus;
use island_integration::{Network, Options, expect::final_job, fixture_cargos};
use island_runtimes_onnx_fixtures::{Fixture, agree, all};
use island_testing::vulkan;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A catalogue of fixtures that need this much GPU memory.
fn catalogue(fixtures: &[Fixture], vram_mb: u64) -> TempDir {
    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
    fixture_cargos::add_onnx(folder.path(), fixtures, vram_mb);
    folder
}

fn network(fixtures: &[Fixture]) -> (TempDir, Network) {
    let cargos = catalogue(fixtures, 0);
    let network =
        Network::start_with(&Options { cargos: Some(cargos.path().to_owned()), ..Options::default() });
    (cargos, network)
}

/// One model of every task, and voices of other kinds.
fn one_of_each() -> Vec<Fixture> {
    let mut by_task: BTreeMap<String, Fixture> = BTreeMap::new();
    for fixture in all() {
        for task in fixture.tasks() {
            if island_runtimes_onnx::task::names().contains(&task.as_str()) {
                let slug = format!("{}-{task}", fixture.name);
                by_task.entry(task.clone()).or_insert_with(|| Fixture {
                    name: slug,
                    task,
                    ..fixture.clone()
                });
            }
        }
    }
    let mut supertonic = Fixture::named("supertonic");
    // The others choose a voice, for which the schema of the task has no field.
    supertonic.cases.truncate(1);
    by_task.into_values().chain([Fixture::named("speecht5"), supertonic]).collect()
}

#[tokio::test]
async fn a_cargo_of_every_task_answers_as_the_reference_does() {
    let fixtures = one_of_each();
    let tasks: BTreeSet<&str> = fixtures.iter().map(|fixture| fixture.task.as_str()).collect();
    let known: BTreeSet<&str> = island_runtimes_onnx::task::names().into_iter().collect();
    assert_eq!(tasks, known, "there is a fixture of every task");
    let (_cargos, network) = network(&fixtures);
    let client = network.client();
    let mut wrong = Vec::new();
    for fixture in &fixtures {
        for case in fixture.cases.iter().filter(|case| fixture.task_of(case) == fixture.task) {
            let at = format!("{}/{}", fixture.name, case.name);
            let job = match client.submit_job(&fixture.name, fixture.input(case), 0).await {
                Ok(job) => final_job(&client, job.id).await,
                Err(error) => {
                    wrong.push(format!("{at}: not accepted: {error}"));
                    continue;
                }
            };
            match (&job.status, &job.output) {
                (JobStatus::Completed, Some(output)) => {
                    wrong.extend(agree(fixture, case, output).into_iter().map(|why| format!("{at}: {why}")));
                }
                _ => wrong.push(format!("{at}: {}: {:?}", job.status, job.error)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn a_gpu_runs_graphs_and_the_processor_quantized_ones() {
    let Some(environment) = vulkan::software("ONNX Cargos on a GPU") else { return };
    let fixtures = [Fixture::named("minilm"), Fixture::named("distilbert-quantized")];
    let cargos = catalogue(&fixtures, 64);
    let cargos = Some(cargos.path().to_owned());
    let network = Network::start_with(&Options { cargos, environment, ..Options::default() });
    let client = network.client();
    for (fixture, device) in fixtures.iter().zip(["webgpu: llvmpipe", "cpu"]) {
        let case = fixture.cases.first().expect("a case");
        let job = client.submit_job(&fixture.name, fixture.input(case), 0).await.expect("submit");
        let job = final_job(&client, job.id).await;
        let output = job.output.unwrap_or_else(|| panic!("{}: {:?}", fixture.name, job.error));
        assert_eq!(agree(fixture, case, &output), Vec::<String>::new(), "{}", fixture.name);
        let used = job.usage.and_then(|usage| usage.device).expect("the device is in the usage");
        assert!(used.starts_with(device), "{} ran on {used}", fixture.name);
    }
}

/// What a script of `clients/` prints.
fn printed(network: &Network, script: &str, arguments: &[&str]) -> Value {
    let root = island_testing::workspace();
    let output = Command::new(root.join(".tools/venv/bin/python"))
        .arg(root.join("integration/clients").join(script))
        .args([&format!("{}/api/v1", network.info("api_url")), network.info("api_key")])
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("run the client");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn embeddings_are_served_to_openai_clients() {
    let fixtures = [Fixture::named("minilm"), Fixture::named("distilbert-sst2")];
    let (_cargos, network) = network(&fixtures);
    let output = printed(&network, "openai_embeddings.py", &[]);
    let packed = output["packed"].as_array().expect("vectors");
    assert_eq!(output["model"], "minilm");
    assert!(output["tokens"].as_u64().is_some_and(|tokens| tokens > 10), "{output}");
    assert_eq!(output["short"].as_array().map(Vec::len), Some(8));
    let (unknown, unreadable) = (json!([404, "workload_not_found"]), json!([422, "validation_error"]));
    assert_eq!(output["refused"], json!([unknown, unknown, unreadable]));
    // The same texts as a job of the Cargo: one is packed into base64 on its way, the other is not.
    let client = network.client();
    let job = client.submit_job("minilm", json!({ "input": output["texts"] }), 0).await.expect("submit");
    let job = final_job(&client, job.id).await;
    let output = job.output.expect("an output");
    for (packed, plain) in packed.iter().zip(output["embeddings"].as_array().expect("vectors")) {
        let (packed, plain) = (packed.as_array().expect("numbers"), plain.as_array().expect("numbers"));
        assert_eq!(packed.len(), plain.len());
        for (one, other) in packed.iter().zip(plain) {
            let apart = one.as_f64().expect("a number") - other.as_f64().expect("a number");
            assert!(apart.abs() < 1e-6, "{one} is not {other}");
        }
    }
}

#[tokio::test]
async fn transcripts_are_served_to_openai_clients() {
    let fixtures = ["whisper", "wav2vec2", "moonshine", "whisper-timestamped"].map(Fixture::named);
    let (_cargos, network) = network(&fixtures);
    let sound = fixtures[0].folder.join("full.flac");
    let timed = fixtures[3].folder.join("words.flac");
    let output = printed(&network, "openai_audio.py", &[&sound.to_string_lossy(), &timed.to_string_lossy()]);
    let case = fixtures[0].cases.iter().find(|case| case.name == "segments").expect("a case with times");
    let verbose = &output["verbose"];
    assert_eq!(agree(&fixtures[0], case, verbose), Vec::<String>::new());
    assert_eq!((&verbose["task"], &verbose["language"]), (&json!("transcribe"), &json!("en")));
    assert_eq!(verbose["duration"], 4.9);
    assert_eq!(output["seconds"], verbose["duration"]);
    let segments = case.output["segments"].as_array().expect("segments").len();
    let arrows = |format: &str| output[format].as_str().expect("text").matches(" --> ").count();
    assert_eq!((arrows("srt"), arrows("vtt")), (segments, segments));
    assert!(output["vtt"].as_str().is_some_and(|text| text.starts_with("WEBVTT\n\n")), "{output}");
    assert_eq!(output["plain"], format!("{}\n", output["text"].as_str().expect("a text")));
    let words = output["words"]["words"].as_array().expect("words");
    let joined: Vec<&str> = words.iter().filter_map(|word| word["word"].as_str()).collect();
    assert_eq!(output["words"]["text"], joined.join(" "));
    let segments = output["words"]["segments"].as_array().expect("segments");
    let texts: Vec<&str> = segments.iter().filter_map(|segment| segment["text"].as_str()).collect();
    assert_eq!(texts.join(" "), joined.join(" "));
    let begins = |segment: &Value| words.iter().any(|word| word["start"] == segment["start"]);
    assert!(segments.iter().all(begins), "{segments:?}");
    let case = fixtures[3].cases.iter().find(|case| case.name == "words").expect("a case with words");
    let spans: Vec<Value> = output["timed"]["words"]
        .as_array()
        .expect("words")
        .iter()
        .map(|word| json!({"start": word["start"], "end": word["end"], "text": word["word"]}))
        .collect();
    let found = json!({"text": output["timed"]["text"], "segments": spans, "language": "en"});
    assert_eq!(agree(&fixtures[3], case, &found), Vec::<String>::new());
    let segments = output["timed"]["segments"].as_array().expect("segments").iter();
    let joined: Vec<&str> = segments.filter_map(|segment| segment["text"].as_str()).collect();
    let plain = |text: &str| text.replace(' ', "");
    assert_eq!(plain(&joined.concat()), plain(case.output["text"].as_str().expect("a text")));
    assert!(output["translated"].as_str().is_some_and(|text| !text.is_empty()), "{output}");
    let (cannot, stream) = (json!([422, "invalid_input"]), json!([422, "validation_error"]));
    assert_eq!(output["refused"], json!([cannot, cannot, stream, [404, "workload_not_found"]]));
}

#[tokio::test]
async fn documents_are_ranked_for_cohere_clients() {
    let fixture = Fixture::named("bert-rank");
    let (_cargos, network) = network(std::slice::from_ref(&fixture));
    let case = fixture.cases.first().expect("a case");
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).expect("texts") };
    let documents = texts(&case.input["documents"]);
    let query = case.input["query"].as_str().expect("a query");
    let arguments: Vec<&str> = [query].into_iter().chain(documents.iter().map(String::as_str)).collect();
    let output = printed(&network, "cohere_rerank.py", &arguments);
    let scores: Vec<f64> = serde_json::from_value(case.output["scores"].clone()).expect("scores");
    let mut best: Vec<usize> = (0..scores.len()).collect();
    best.sort_by(|&one, &other| scores[other].total_cmp(&scores[one]));
    let old = output["old"].as_array().expect("results");
    for (found, &index) in old.iter().zip(&best) {
        assert_eq!((&found[0], &found[2]), (&json!(index), &json!(documents[index])));
        let apart = found[1].as_f64().expect("a score") - scores[index];
        assert!(apart.abs() <= case.tolerance, "{found} instead of {}", scores[index]);
    }
    let new: Vec<Value> = old.iter().take(2).map(|found| json!([found[0], found[1]])).collect();
    assert_eq!((old.len(), &output["new"]), (scores.len(), &json!(new)));
    assert_eq!(output["named"], output["new"]);
    assert!(output["tokens"].as_f64().is_some_and(|tokens| tokens > 10.0), "{output}");
    assert_eq!(output["refused"], json!([404, "workload_not_found"]));
}
