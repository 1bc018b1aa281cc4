//! The worker program on a GPU that the processor emulates, in the sandbox, against the same program on the processor.

use std::{collections::BTreeMap, fs, process::Command, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::{
    event::AttemptEvent,
    host::{CPU, Device, SandboxLevel},
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, Fault, Outcome},
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host,
    launch::{GpuGrant, Launch, ProbeReport},
};
use island_testing::vulkan;
use serde_json::{Value, json};

use crate::support::Fixture;

const BINARY: &str = env!("CARGO_BIN_EXE_island-worker-diffusers");
/// Seconds of one job: the emulated GPU compiles each shader when it is first used.
const MOST: Duration = Duration::from_mins(3);

type Environment = BTreeMap<String, String>;

/// What a worker showed in one job.
#[derive(Debug)]
struct Played {
    output: Value,
    device: String,
    sandbox: SandboxLevel,
    version: String,
    /// Libraries that the worker had mapped when it had answered.
    libraries: String,
}

fn grant() -> Vec<GpuGrant> {
    vec![GpuGrant { index: 0, address: None, memory_mb: 2048 }]
}

/// Runs one job, or returns why the model was not loaded.
async fn run(
    fixture: &Fixture,
    input: Value,
    gpus: Vec<GpuGrant>,
    environment: &Environment,
) -> Result<Played, Failure> {
    let dir = tempfile::tempdir().expect("a folder");
    let launch = Launch {
        artifacts: fixture.files(),
        memory_limit_mb: 6144,
        threads: 2,
        slots: 1,
        orphan_timeout_s: 30,
        gpus,
        environment: environment.clone(),
        ..Launch::new(InstanceId(uuid::Uuid::now_v7()), fixture.cargo())
    };
    let mut worker = host::spawn(BINARY.as_ref(), dir.path(), &launch).await.expect("a worker");
    let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
    let request = Box::new(RunRequest {
        cargo: launch.cargo.clone(),
        input,
        artifacts: launch.artifacts.clone(),
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    });
    worker
        .connection
        .commands
        .send(ToWorker::Run { key, first_event: 1, request, reports_steps: false })
        .await
        .expect("send");
    let (mut level, mut name) = (None, String::new());
    loop {
        let frame = tokio::time::timeout(MOST, worker.connection.frames.next()).await.expect("in time");
        match frame.expect("the worker lives").expect("a sound frame") {
            FromWorker::Hello { sandbox, .. } => level = Some(sandbox.level),
            FromWorker::Ready { version, .. } => name = version,
            FromWorker::LoadFailed { failure } => return Err(failure),
            FromWorker::Events { events, .. } => {
                let ended = events.into_iter().find_map(|event| match event.event {
                    AttemptEvent::Ended { outcome } => Some(outcome),
                    _ => None,
                });
                let Some(ended) = ended else { continue };
                let Outcome::Completed { usage, output, .. } = ended else { panic!("{ended:?}") };
                return Ok(Played {
                    output: output.expect("an output"),
                    device: usage.device.expect("the device is in the usage"),
                    sandbox: level.expect("a greeting"),
                    version: name,
                    libraries: fs::read_to_string(format!("/proc/{}/maps", worker.process.pid()))
                        .expect("the worker's memory map"),
                });
            }
            _ => {}
        }
    }
}

/// The pixels of the first image, in 0..255.
fn pixels(output: &Value) -> Vec<u8> {
    let file = STANDARD.decode(output["images"][0]["data"].as_str().expect("an image")).expect("base64");
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    reader.next_frame(&mut pixels).expect("pixels");
    pixels
}

#[tokio::test(flavor = "multi_thread")]
async fn gpu_and_processor_make_the_same_image_in_the_sandbox() {
    let Some(environment) = vulkan::software("Stable Diffusion on a GPU") else { return };
    let fixture = Fixture::named("sdxl");
    let input =
        json!({ "prompt": "a boat", "steps": 2, "width": 32, "height": 32, "seed": 1, "scheduler": "ddim" });
    let on_cpu = run(&fixture, input.clone(), Vec::new(), &environment).await.expect("it loads");
    let on_gpu = run(&fixture, input, grant(), &environment).await.expect("it loads");
    assert_eq!((on_cpu.device.as_str(), on_cpu.sandbox), (CPU, SandboxLevel::Full));
    assert!(on_gpu.device.starts_with("webgpu: llvmpipe"), "{}", on_gpu.device);
    assert_eq!(on_gpu.sandbox, SandboxLevel::Full);
    assert!(on_gpu.version.contains("f16"), "{}", on_gpu.version);
    assert!(on_gpu.libraries.contains("libvulkan_lvp") && on_gpu.libraries.contains("providers_webgpu"));
    assert!(!on_cpu.libraries.contains("vulkan") && !on_cpu.libraries.contains("onnxruntime"));
    let (one, other) = (pixels(&on_cpu.output), pixels(&on_gpu.output));
    assert_eq!(one.len(), other.len());
    let apart: Vec<u8> = one.iter().zip(&other).map(|(one, other)| one.abs_diff(*other)).collect();
    let most = apart.iter().max().copied().unwrap_or_default();
    let mean = apart.iter().map(|apart| f64::from(*apart)).sum::<f64>() / apart.len() as f64;
    println!("pixels differ by {most} at most, {mean:.2} on average");
    assert!(most <= 8 && mean <= 1.0, "{most} at most, {mean} on average");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_never_falls_back_to_the_processor() {
    let Some(environment) = vulkan::software("Stable Diffusion without a usable GPU") else { return };
    let fixture = Fixture::named("sd15");
    let refused = async |gpus, environment: &Environment| {
        let loaded = run(&fixture, json!({ "prompt": "a boat" }), gpus, environment).await;
        loaded.expect_err("no GPU runs it")
    };
    let with = |name: &str, value: &str| {
        let mut environment = environment.clone();
        environment.insert(name.to_owned(), value.to_owned());
        environment
    };
    let missing = refused(grant(), &with("ISLAND_WEBGPU_PLUGIN", "/nowhere/plugin.so")).await;
    assert_eq!(missing.fault, Fault::Host, "{missing:?}");
    assert!(missing.message.contains("/nowhere/plugin.so, which does not exist"), "{}", missing.message);
    let small = refused(vec![GpuGrant { memory_mb: 100, ..grant()[0].clone() }], &environment).await;
    assert!(small.message.contains("this Island lends 100 MB"), "{}", small.message);
}

#[test]
fn probe_reports_the_gpu_and_the_processor() {
    let Some(environment) = vulkan::software("the probe of Stable Diffusion") else { return };
    let probe = |environment: &Environment| -> ProbeReport {
        let output = Command::new(BINARY).arg("--probe").envs(environment).output().expect("it runs");
        serde_json::from_slice(&output.stdout).expect("a report")
    };
    let found = probe(&environment);
    let [gpu, cpu] = &found.devices[..] else { panic!("{found:?}") };
    assert!(gpu.api == "webgpu" && gpu.is_software, "{gpu:?}");
    assert_eq!(*cpu, Device::cpu());
    let mut without = environment;
    without.insert("VK_DRIVER_FILES".to_owned(), "/nowhere.json".to_owned());
    let found = probe(&without);
    assert_eq!(found.devices, [Device::cpu()]);
    assert!(found.details["webgpu"].contains("Vulkan finds no driver"), "{:?}", found.details);
}
