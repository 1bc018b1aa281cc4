//! A job on a GPU through the whole network. The GPU is one that the processor emulates, with the driver and the module that real ones use.

use std::{collections::BTreeMap, process::Command, time::Duration};

use island_coordinator_client::api::JobView;
use island_integration::{
    Network, Options,
    expect::{Story, eventually, final_job},
    processes, program,
};
use island_testing::vulkan;
use serde_json::{Value, json};

/// Time for a job whose worker has to compile its shaders.
const SHADERS: Duration = Duration::from_mins(5);

/// A network whose Island has the emulated GPU.
fn with_a_gpu(what: &str) -> Option<Network> {
    let environment = vulkan::software(what)?;
    Some(Network::start_with(&Options { environment, ..Options::default() }))
}

fn agent(network: &Network, command: &[&str]) -> String {
    agent_in(network, &vulkan::software("a command").expect("the driver is there"), command)
}

fn agent_in(network: &Network, environment: &BTreeMap<String, String>, command: &[&str]) -> String {
    let state = network.folder().join("island-1");
    let mut program = Command::new(program("island-agent"));
    let ran = program.args(command).arg("--state-dir").arg(state).envs(environment).output();
    String::from_utf8(ran.expect("run island-agent").stdout).expect("text")
}

async fn chat(network: &Network, prompt: &str) -> (String, JobView) {
    let client = network.client();
    let input = json!({ "prompt": prompt, "max_tokens": 16, "temperature": 0.0 });
    let job = client.submit_job("llm-chat", input, 0).await.expect("submit");
    let (mut story, mut events) = (Story::default(), client.job_events(job.id, None));
    let read = async {
        while let Some(event) = events.next().await {
            story.push(event.expect("the stream goes on"));
        }
    };
    tokio::time::timeout(SHADERS, read).await.expect("the job ends in time");
    assert!(story.is_done(), "{:?}", story.last);
    (story.text, final_job(&client, job.id).await)
}

fn device(job: &JobView) -> String {
    job.usage.clone().expect("usage").device.expect("the device is in the usage")
}

/// Whether a worker of this network has a library mapped whose path contains `name`.
fn maps(network: &Network, name: &str) -> bool {
    let contains =
        |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(name));
    processes::workers(network.folder()).iter().any(|worker| contains(worker.pid))
}

/// One test, because Mesa compiles the shaders of each worker for most of a minute.
#[tokio::test]
async fn a_chat_runs_on_the_gpu_until_the_owner_pauses() {
    let Some(network) = with_a_gpu("a chat on a GPU") else { return };
    let (on_gpu, job) = chat(&network, "Tell me about the sea.").await; // words: ok
    assert!(device(&job).starts_with("vulkan: llvmpipe"), "{}", device(&job));
    assert!(!device(&job).contains("cpu"), "all layers are on the GPU");

    let status: Value = serde_json::from_str(&agent(&network, &["status", "--json"])).expect("a status");
    assert!(status.to_string().contains("llvmpipe"), "{status}");
    let doctor = agent(&network, &["doctor"]);
    let named = doctor.lines().any(|line| line.contains("llmcpp") && line.contains("llvmpipe"));
    assert!(named, "doctor names the device of llmcpp:\n{doctor}");

    assert!(maps(&network, "libvulkan"));
    agent(&network, &["pause"]);
    eventually("the worker that holds GPU memory ends", || async {
        processes::workers(network.folder()).is_empty().then_some(())
    })
    .await;

    // Greedy replies of an Island without a GPU.
    let processor = Network::start();
    let (on_processor, job) = chat(&processor, "Tell me about the sea.").await; // words: ok
    assert_eq!(device(&job), "cpu");
    assert!(!maps(&processor, "libvulkan"), "a worker without a GPU loads no driver");
    assert_eq!(on_gpu, on_processor);
}

#[tokio::test]
async fn a_driver_that_fails_costs_the_gpu_and_not_the_job() {
    let Some(mut environment) = vulkan::software("a driver that fails") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = folder.path().join("broken.json");
    let broken = json!({"file_format_version": "1.0.0", "ICD": {"library_path": "./absent.so", "api_version": "1.3.0"}});
    std::fs::write(&manifest, broken.to_string()).expect("written");
    environment.insert("VK_DRIVER_FILES".to_owned(), manifest.display().to_string());
    let network = Network::start_with(&Options { environment: environment.clone(), ..Options::default() });
    let (_, job) = chat(&network, "one two three").await;
    assert_eq!(device(&job), "cpu");
    let probe = Command::new(program("island-worker-llmcpp"))
        .arg("--probe")
        .envs(&environment)
        .output()
        .expect("a probe");
    let report: Value = serde_json::from_slice(&probe.stdout).expect("a report");
    let reason = report["details"]["module.vulkan"].as_str().unwrap_or_default();
    assert!(reason.contains("driver"), "{report}");
    let doctor = agent_in(&network, &environment, &["doctor"]);
    let line = doctor.lines().find(|line| line.contains("engine llmcpp")).expect("a finding");
    assert!(line.starts_with("ok") && line.contains("processor"), "the engine works without it:\n{doctor}");
}
